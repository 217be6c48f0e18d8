"""Synthetic batches: a function of seed, step and sequence, so every layout trains on the same global batches."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from autotuner.core.batches import dealing_ranks, drawn, shares_of_ranks
from autotuner.core.choices import Precision
from autotuner.core.layout import Layout
from autotuner.core.rules.rule import any_of
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.workload import LengthDistribution
from autotuner.training.batches import MicroBatch, pack, pad
from autotuner.trials.distributed.context import WHOLE, ContextPart

# Languages of synthetic sequences: what tells whether ranks learn from each other.
#
# Each data-parallel rank reads a language of its own, with words that no other has, so that a rank knows those of the
# others only by what these exchange with it. Were all ranks to read the same, one that hears nothing of the others
# would train as well, only on fewer tokens.


@dataclass(frozen=True, slots=True, kw_only=True)
class Languages:
    """A division of the vocabulary into equal parts, so that ranks can train on different kinds of data.

    The tokens of each part form one artificial language. A row of a batch has tokens of one language only.
    """

    vocab_size: int
    num_languages: int = 1
    """Number of languages; 1: all sequences use the whole vocabulary."""

    def of_row(self, row: int, num_rows: int, turn: int = 0) -> int:
        """Return the number of the artificial language in which a row of a global batch is written.

        A language is a part of the vocabulary. Neighbouring rows, such as the rows of one rank, share a language.

        Args:
            row: Number of the row.
            num_rows: Number of rows in the global batch.
            turn: Number that is added to the language of every row. With turns 0, 1, 2, …, each rank reads every
                language once.
        """
        return (row * self.num_languages // num_rows + turn) % self.num_languages

    def tokens(self, language: int, shares: Tensor) -> Tensor:
        """Return random tokens of a language, one for each number in ``shares``; small token ids are more frequent.

        ``shares`` holds random numbers from 0 to 1. The frequencies of the tokens are all that a model can learn. So
        the loss hardly falls any more after about a hundred steps.
        """
        first = language * self.vocab_size // self.num_languages
        size = (language + 1) * self.vocab_size // self.num_languages - first
        return first + (size * shares**3).long()


_FP8_BLOCK = 16
"""Number of tokens over which a weight's gradient is summed together, since ``torch._scaled_mm`` (torch 2.13) needs
multiples of it."""

_MULTIPLIED_IN_BLOCKS = (Precision.FP8, Precision.NVFP4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The part of a global batch that one replica, or one of its context ranks, trains on.

    The label of each token is the token that follows it.
    """

    micro_batches: tuple[MicroBatch, ...]
    tokens_per_loss: float
    """Real tokens of the global batch divided by the number of ranks whose losses are averaged. Each of these ranks
    divides its summed losses by it, so that every token of the batch has the same weight."""

    def together(self) -> MicroBatch:
        """Return all micro-batches as one batch, since a pipeline splits the batch itself.

        All rows must have the same length.
        """
        return MicroBatch(
            tokens_BS=torch.cat([one.tokens_BS for one in self.micro_batches]),
            labels_BS=torch.cat([one.labels_BS for one in self.micro_batches]),
        )


def batch(
    spec: TrialSpec,
    *,
    step: int,
    data_parallel_rank: int,
    device: torch.device,
    part: ContextPart = WHOLE,
    turn: int = 0,
) -> Batch:
    """Draw and return the sequences of a global batch that one rank trains on.

    The sequences of other ranks are not drawn.

    Args:
        spec: The specification of the trial.
        step: Number of the step.
        data_parallel_rank: Number of the rank's slice of the global batch.
        device: The device of this rank.
        part: The part of each sequence that this context rank holds.
        turn: Number that is added to the number of every row's artificial language (see ``Languages``).
    """
    layout, lengths = spec.layout, sequence_lengths(spec, step)
    languages = Languages(vocab_size=spec.model.vocab_size, num_languages=spec.settings.num_languages)
    own = _shares_of_ranks(spec, lengths)[data_parallel_rank]
    sequences = [
        languages.tokens(
            languages.of_row(place, len(lengths), turn), _shares(lengths[row] + 1, f"{spec.seed}/{step}/{row}")
        )
        for place, row in enumerate(own, start=data_parallel_rank * len(own))
    ]
    size, num_losses = layout.micro_batch_size, layout.data_parallel_degree * part.num_ranks
    micro_batches = [_rows(spec, sequences[start : start + size]) for start in range(0, len(sequences), size)]
    return Batch(
        micro_batches=tuple(_held(whole, part, device) for whole in micro_batches),
        tokens_per_loss=sum(lengths) / num_losses,
    )


def sequence_lengths(spec: TrialSpec, step: int) -> tuple[int, ...]:
    """Return the number of tokens of each sequence in a step's global batch.

    The sequences are not assigned to replicas yet.
    """
    workload = spec.workload
    if workload.lengths is None:
        return (workload.seq_len,) * workload.global_batch_size
    return drawn(workload.lengths, num_sequences=workload.global_batch_size, seed=spec.seed, step=step)


def as_drawn(spec: TrialSpec, steps: Iterable[int]) -> TrialSpec:
    """Return the trial with the sequence lengths that were drawn in these steps. Its tokens and FLOP are then exact."""
    if spec.workload.lengths is None:
        return spec
    drawn_lengths = LengthDistribution.of(length for step in steps for length in sequence_lengths(spec, step))
    return replace(spec, workload=replace(spec.workload, lengths=drawn_lengths))


def _shares_of_ranks(spec: TrialSpec, lengths: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return the positions of each replica's sequences; all ranks compute the same from the shared seed."""
    layout, cluster = spec.layout, spec.cluster
    return shares_of_ranks(
        lengths,
        num_ranks=layout.data_parallel_degree,
        balance=layout.batch_balance,
        num_dealing_ranks=dealing_ranks(layout, cluster.accelerators_per_node if cluster else layout.world_size),
    )


def _rows(spec: TrialSpec, sequences: Sequence[Tensor]) -> MicroBatch:
    """Return a micro-batch in the layout's form; stages of a pipeline need rows of the same length."""
    layout, seq_len = spec.layout, spec.workload.seq_len
    if layout.sequence_packing:
        return pack(sequences, multiple=_row_multiple(layout))
    if layout.pipeline_parallel_degree > 1:
        return pad(sequences, row_length=seq_len)
    multiple, longest = _row_multiple(layout), max(map(len, sequences)) - 1
    return pad(sequences, row_length=min(seq_len, -(-longest // multiple) * multiple))  # the rules know seq_len


def _row_multiple(layout: Layout) -> int:
    """Return a number of which every row's length must be a multiple, so that ranks and products can divide it."""
    context_ranks = layout.context_parallel_degree
    parts = 1 if context_ranks == 1 else 2 * context_ranks  # each context rank holds two of a row
    block = _FP8_BLOCK * context_ranks if any_of(layout.precision, _MULTIPLIED_IN_BLOCKS) else 1
    return math.lcm(parts, block, context_ranks * layout.tensor_parallel_degree)


def _held(whole: MicroBatch, part: ContextPart, device: torch.device) -> MicroBatch:
    """Return the part of the rows that a context rank holds."""
    positions = part.positions(whole.tokens_BS.shape[1])
    return MicroBatch(
        tokens_BS=whole.tokens_BS[:, positions].to(device),
        labels_BS=whole.labels_BS[:, positions].to(device),
        documents=whole.documents,
    )


def _shares(length: int, key: str) -> Tensor:
    """Return independent numbers from 0 to 1 that only depend on ``key``."""
    generator = torch.Generator().manual_seed(zlib.crc32(key.encode()))
    return torch.rand(length, generator=generator, dtype=torch.float64)
