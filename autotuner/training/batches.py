"""Batches of sequences of different lengths: balanced over ranks, padded or packed, averaged over all their tokens.

Tensor suffixes: B rows; S tokens of a row; H heads; K kv heads; E head dim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.flex_attention import BlockMask
from torch.utils.data import Sampler

from autotuner.core.batches import shares_of_ranks, strata
from autotuner.core.choices import BatchBalance
from autotuner.core.errors import InvalidInput

# ---------------------------------------------------------------- which rank takes which sequences


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The number of data-parallel ranks, and the method that divides the sequences of a global batch among them."""

    num_ranks: int
    """Number of data-parallel ranks."""
    balance: BatchBalance = BatchBalance.STRATIFIED_SNAKE
    num_dealing_ranks: int = 1
    """Number of neighbouring ranks that redistribute their sequences among each other, such as the ranks of a node. It
    must divide ``num_ranks``."""


class BalancedBatchSampler(Sampler[list[int]]):
    """A batch sampler for ``DataLoader(batch_sampler=...)`` that yields the batches of one rank.

    All ranks shuffle in the same way, and each rank assigns the whole global batch to the ranks by itself. Therefore
    ranks need not communicate. The global batches of an epoch do not depend on the method of assignment. If the number
    of sequences is not a multiple of the global batch size, the remaining sequences are left out. In each epoch,
    different sequences are left out.

    Args:
        lengths: Number of tokens of each sequence of the data set.
        batch_size: Number of sequences per rank in a global batch.
        assignment: Method that assigns a global batch to ranks.
        rank: Number of this rank.
        seed: Seed of the shuffle, the same on all ranks.

    Raises:
        InvalidInput: The assignment has no such rank, or the data set is smaller than one global batch.

    Example:
        >>> lengths = [8, 1, 4, 2]
        >>> sampler = BalancedBatchSampler(lengths, batch_size=1, assignment=Assignment(num_ranks=2), rank=0)
        >>> len(sampler)
        2
    """

    def __init__(
        self, lengths: Sequence[int], *, batch_size: int, assignment: Assignment, rank: int = 0, seed: int = 0
    ) -> None:
        super().__init__()
        if not 0 <= rank < assignment.num_ranks:
            raise InvalidInput(
                "rank",
                rank,
                f"must be a rank of the assignment, from 0 to {assignment.num_ranks - 1}",
                min(max(rank, 0), assignment.num_ranks - 1),
            )
        self._global_size = batch_size * assignment.num_ranks
        if not 0 < self._global_size <= len(lengths):
            rule = f"must give each of the {assignment.num_ranks} ranks at least one of the {len(lengths)} sequences"
            raise InvalidInput("batch_size", batch_size, rule, max(1, len(lengths) // assignment.num_ranks))
        self._lengths = lengths
        self._assignment = assignment
        self._rank = rank
        self._seed = seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the epoch, which changes the shuffle. Call this on every rank before you iterate."""
        self._epoch = epoch

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        return len(self._lengths) // self._global_size

    def __iter__(self) -> Iterator[list[int]]:
        """Yield one list of positions in the data set for each batch, in the order in which micro-batches use them."""
        order = list(range(len(self._lengths)))
        Random(f"{self._seed}/{self._epoch}").shuffle(order)  # the hash of a string is the same everywhere
        bounds = strata(max(self._lengths))
        for number in range(len(self)):
            of_all = order[number * self._global_size : (number + 1) * self._global_size]
            of_ranks = shares_of_ranks(
                [self._lengths[position] for position in of_all],
                num_ranks=self._assignment.num_ranks,
                balance=self._assignment.balance,
                num_dealing_ranks=self._assignment.num_dealing_ranks,
                bounds=bounds,
            )
            yield [of_all[place] for place in of_ranks[self._rank]]


# ---------------------------------------------------------------- sequences as rows
Documents = tuple[int, ...]
"""Number of tokens of each document in the row, in order; empty if every row is one sequence."""

WHOLE_ROWS: Documents = ()
"""Value of ``documents`` if every row is one sequence."""

NO_LABEL = -100
"""Label of a token that is not predicted; ``torch.nn.functional.cross_entropy`` ignores it by default."""

_PADDING = 0
"""Token that fills rows. Its value does not matter, because no real token follows it in its row or document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """The input of one forward pass: token ids and labels."""

    tokens_BS: Tensor
    labels_BS: Tensor
    """Labels: for each token, the token that follows; ``NO_LABEL`` after the end of a sequence."""
    documents: Documents = WHOLE_ROWS
    """Number of tokens of each sequence in the packed row. Padding counts as the last sequence."""

    @property
    def num_tokens(self) -> int:
        """The number of tokens that have a label. Padding has no label and does not count."""
        return int((self.labels_BS != NO_LABEL).sum())


def pad(sequences: Sequence[Tensor], *, row_length: int | None = None) -> MicroBatch:
    """Return a micro-batch with one row per sequence, padded at the end to ``row_length`` or to the longest sequence.

    A causal model needs no mask for this padding. The first n of a sequence's n + 1 tokens are the input, and the last
    n are the labels.

    Raises:
        InvalidInput: There is no sequence, or one is longer than ``row_length``.

    Example:
        >>> batch = pad([torch.tensor([1, 2, 3]), torch.tensor([4, 5])])
        >>> batch.tokens_BS.tolist(), batch.labels_BS.tolist()
        ([[1, 2], [4, 0]], [[2, 3], [5, -100]])
    """
    longest = max(_lengths(sequences))
    if row_length is not None and row_length < longest:
        raise InvalidInput(
            "row_length", row_length, "must be at least the length of the longest sequence of a micro-batch", longest
        )
    return MicroBatch(
        tokens_BS=torch.stack([_filled(one[:-1], row_length or longest, _PADDING) for one in sequences]),
        labels_BS=torch.stack([_filled(one[1:], row_length or longest, NO_LABEL) for one in sequences]),
    )


def pack(sequences: Sequence[Tensor], *, multiple: int = 1) -> MicroBatch:
    """Return a micro-batch with all sequences one after the other in one row, padded to a multiple of ``multiple``.

    Attention and positions must treat each sequence separately. Field ``documents`` of the result has the lengths of
    the sequences in the row. The first n of a sequence's n + 1 tokens are the input, and the last n are the labels.

    Raises:
        InvalidInput: There is no sequence, or one of a single token.

    Example:
        >>> batch = pack([torch.tensor([1, 2, 3]), torch.tensor([4, 5])], multiple=4)
        >>> batch.tokens_BS.tolist(), batch.documents
        ([[1, 2, 4, 0]], (2, 1, 1))
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
    if not sequences or min(map(len, sequences)) < 2:
        rule = (
            "must have at least one sequence, and each sequence must have at least two tokens: an input and its target"
        )
        raise InvalidInput("sequences", [len(one) for one in sequences], rule)
    return tuple(len(one) - 1 for one in sequences)


def _filled(tokens_S: Tensor, row_length: int, value: int) -> Tensor:
    return functional.pad(tokens_S, (0, row_length - len(tokens_S)), value=value)


# ---------------------------------------------------------------- documents of a packed row
_BLOCK = 128
"""Side of a block of scores in tokens; FlexAttention's default (torch 2.13)."""


def positions_in(documents: Documents, device: torch.device | None = None) -> Tensor:
    """Return the position of each token in its document, counted from 0, as a tensor of shape (S,).

    Example:
        >>> positions_in((3, 2)).tolist()
        [0, 1, 2, 0, 1]
    """
    return torch.cat([torch.arange(length, device=device) for length in documents])


def attend_by_document(
    attend: Callable[[Tensor, Tensor, Tensor], Tensor],
    q_BSHE: Tensor,
    k_BSKE: Tensor,
    v_BSKE: Tensor,
    documents: Documents,
) -> Tensor:
    """Return the attention output of a packed row, computed for each document separately.

    The cost is the sum of the squared lengths of the documents.

    Args:
        attend: Function that computes causal attention for one document from queries, keys and values.
        q_BSHE: Queries of one row.
        k_BSKE: Keys of one row.
        v_BSKE: Values of one row.
        documents: Number of tokens of each document in the row.
    """
    pieces = zip(*(torch.split(x, list(documents), dim=1) for x in (q_BSHE, k_BSKE, v_BSKE)), strict=True)
    return torch.cat([attend(*piece) for piece in pieces], dim=1)


def document_mask(documents: Documents, device: torch.device) -> BlockMask:
    """Return the block mask for FlexAttention: a token attends to itself and to earlier tokens of its document.

    The tokens of a document follow each other. Therefore the first and the last token of a block show which documents
    the block contains. torch's ``create_block_mask`` gives the same result, but looks at every attention score and
    needs one byte for each.
    """
    seq_len = sum(documents)
    document_S = torch.repeat_interleave(torch.tensor(documents, device=device))
    last = torch.arange(_BLOCK - 1, seq_len + _BLOCK - 1, _BLOCK, device=device).clamp(max=seq_len - 1)
    first_document, last_document = document_S[::_BLOCK], document_S[last]
    block = torch.arange(len(last), device=device)
    earlier = block[:, None] > block
    full = earlier & (first_document[None] == last_document[:, None])
    if seq_len % _BLOCK:
        full[-1] = False  # the last row has queries that do not exist
    seen = earlier & (last_document[None] == first_document[:, None]) | (block[:, None] == block)

    def is_visible_in_document(sequence: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return is_visible(sequence, head, query, key) & (document_S[query] == document_S[key])

    mask: BlockMask = BlockMask.from_kv_blocks(
        *_numbers_and_columns(seen & ~full),
        *_numbers_and_columns(full),
        BLOCK_SIZE=_BLOCK,
        mask_mod=is_visible if len(documents) == 1 else is_visible_in_document,
        seq_lengths=(seq_len, seq_len),
    )
    return mask


def is_visible(sequence: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Return True where a query may attend to a key: the key has the same position as the query, or an earlier one.

    ``sequence`` and ``head`` are not used. FlexAttention passes them to every mask function.
    """
    del sequence, head
    return query >= key


def _numbers_and_columns(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Return the number of visible blocks of each row of blocks, and their indices.

    They are the same for all sequences and heads.
    """
    columns = blocks.int().argsort(dim=-1, descending=True, stable=True)
    return blocks.sum(-1, dtype=torch.int32)[None, None], columns.int()[None, None]


# ---------------------------------------------------------------- the mean over all tokens
def tokens_per_rank(labels_BS: Tensor, group: dist.ProcessGroup | None = None) -> float:
    """Return the average number of tokens with a label per rank in a step. Each rank divides its summed losses by it.

    With this divisor, the average of the gradients of all ranks is the gradient of the mean loss over all labelled
    tokens of the job. If each rank divided by its own number of tokens instead, a token on a rank with few tokens would
    have more weight, and the result of training would depend on the assignment of sequences to ranks.

    Args:
        labels_BS: Labels of all micro-batches of this rank's step.
        group: The ranks whose gradients are averaged; None: all ranks, or only this rank if there is no process group.

    Example:
        >>> tokens_per_rank(torch.tensor([[5, 6, NO_LABEL]]))
        2.0
    """
    total = torch.tensor(float((labels_BS != NO_LABEL).sum()), dtype=torch.float64, device=labels_BS.device)
    if not dist.is_initialized():
        return total.item()
    dist.all_reduce(total, group=group)
    return total.item() / dist.get_world_size(group)
