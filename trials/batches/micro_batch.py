"""MicroBatch: sequences of different lengths, padded to rows of one length or packed into one row.

Tensor suffixes: B rows, S tokens of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from autotuner.core.errors import InvalidInput
from trials.batches.documents import WHOLE_ROWS, Documents

NO_LABEL = -100
"""Label of a token that nobody is asked about; what ``torch.nn.functional.cross_entropy`` leaves out by default."""

_PADDING = 0
"""Token that fills rows: any would do, for no real token comes behind one of its own row's or document's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """What one forward pass sees.

    Attributes:
        labels_BS: The token that follows each; ``NO_LABEL`` behind a sequence's end.
        documents: Tokens of the sequences in the one row, with what fills it up as the last of them; none where
            each row is one sequence.
    """

    tokens_BS: Tensor
    labels_BS: Tensor
    documents: Documents = WHOLE_ROWS

    @property
    def num_tokens(self) -> int:
        """Real tokens: those with a label."""
        return int((self.labels_BS != NO_LABEL).sum())


def padded(sequences: Sequence[Tensor], *, row_length: int | None = None) -> MicroBatch:
    """A row for each sequence, filled up to the longest of them; a causal model needs no mask for that.

    Args:
        sequences: Of n + 1 tokens each, of which n are seen and n are labels.
        row_length: Tokens of a row; None: those of the longest.

    Raises:
        InvalidInput: There is no sequence, or one is longer than ``row_length``.
    """
    longest = max(_lengths(sequences))
    if row_length is not None and row_length < longest:
        raise InvalidInput("row_length", row_length, "must hold the longest sequence of a micro-batch", longest)
    return MicroBatch(
        tokens_BS=torch.stack([_filled(one[:-1], row_length or longest, _PADDING) for one in sequences]),
        labels_BS=torch.stack([_filled(one[1:], row_length or longest, NO_LABEL) for one in sequences]),
    )


def packed(sequences: Sequence[Tensor], *, multiple: int = 1) -> MicroBatch:
    """One row of all sequences, one behind the other; attention, and positions, have to heed ``documents``.

    Args:
        sequences: Of n + 1 tokens each, of which n are seen and n are labels.
        multiple: The row is filled up to a multiple of it.

    Raises:
        InvalidInput: There is no sequence, or one of a single token.
    """
    documents = _lengths(sequences)
    row_length = -(-sum(documents) // multiple) * multiple
    rest = row_length - sum(documents)
    return MicroBatch(
        tokens_BS=_filled(torch.cat([one[:-1] for one in sequences]), row_length, _PADDING)[None],
        labels_BS=_filled(torch.cat([one[1:] for one in sequences]), row_length, NO_LABEL)[None],
        documents=(*documents, rest) if rest else documents,
    )


def _lengths(sequences: Sequence[Tensor]) -> Documents:
    """Tokens that are seen of each sequence."""
    if not sequences or min(map(len, sequences)) < 2:
        rule = "must be one or more, each of two tokens or more: one that is seen, and one that follows it"
        raise InvalidInput("sequences", [len(one) for one in sequences], rule)
    return tuple(len(one) - 1 for one in sequences)


def _filled(tokens_S: Tensor, row_length: int, value: int) -> Tensor:
    return functional.pad(tokens_S, (0, row_length - len(tokens_S)), value=value)
