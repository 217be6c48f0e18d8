"""BatchShape: the work of ranks on batches of sequences of different lengths, including padding and waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from math import lcm
from random import Random
from typing import Generic

from autotuner.core.batches import dealing_ranks, shares_of_ranks
from autotuner.core.choices import BatchBalance, ShardLevel
from autotuner.core.layout import Layout
from autotuner.core.prediction import Number
from autotuner.core.workload import LengthDistribution, Workload

_DRAWN_SEQUENCES = 8192
"""Number of sequences whose assignment a prediction averages over. For the lengths in docs/explanation/batches.md,
assigned at random to 4, 16 or 1,024 ranks, the tokens of the slowest rank then vary by 0.8, 1.3 and 2.2 % from seed
to seed (one standard deviation)."""

_FEWEST_BATCHES, _MOST_SEQUENCES = 4, 1 << 16
"""Smallest number of batches and largest number of sequences in a prediction. Few large batches are as good as many
small ones, because the slowest of thousands of ranks varies little from batch to batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchShape(Generic[Number]):
    """The tokens, padding and load imbalance of data-parallel ranks, on average over steps; for one layout or many.

    If sequences have different lengths, the ranks get different numbers of tokens in every step.
    """

    tokens: Number
    """Tokens per sequence that the slowest rank computes, including padding."""
    keys: Number
    """Mean length of the row or document that one of these tokens attends to. The time of attention depends on it."""
    imbalance: Number
    """Work of the slowest rank in excess of the mean of all ranks, as a share of the mean."""
    padding_waste: Number
    """Padding as a share of all real tokens."""


def batch_shape(layout: Layout, workload: Workload, devices_per_node: int) -> BatchShape:
    """Return the tokens, padding and load imbalance of a layout's data-parallel ranks, on average over many steps.

    Ranks of a pipeline send hidden states of one fixed shape. A layout with a pipeline therefore pads all sequences to
    the longest length allowed.

    Args:
        layout: A legal layout.
        workload: Lengths of the sequences, and number of sequences per step.
        devices_per_node: Accelerators per node. They limit which ranks redistribute sequences among themselves.
    """
    seq_len, lengths = workload.seq_len, workload.lengths
    if lengths is None:
        return BatchShape(tokens=seq_len, keys=seq_len, imbalance=0.0, padding_waste=0.0)
    if layout.pipeline_parallel_degree > 1:
        return BatchShape(tokens=seq_len, keys=seq_len, imbalance=0.0, padding_waste=seq_len / lengths.mean - 1)
    return _shapes_of(lengths, workload.global_batch_size)(_Sharing.of(layout, devices_per_node))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sharing:
    """The properties of a layout that decide how ranks share a batch."""

    num_ranks: int
    """Number of data-parallel ranks."""
    balance: BatchBalance
    """Way in which sequences are assigned to ranks."""
    num_dealing_ranks: int
    """Number of ranks in a group that redistributes its sequences among its members."""
    micro_batch_size: int
    """Number of sequences in a micro-batch. It divides the number of sequences of a rank."""
    is_packed: bool
    """True if sequences follow each other in one row; otherwise each is padded to the longest of them."""
    multiple: int
    """Number of which the tokens of a row must be a multiple, so that the ranks that split the row get equal parts. A
    context rank holds two parts."""
    waits_for_each: bool
    """True if ranks wait for each other in every micro-batch, and not only at the end of the step."""

    @classmethod
    def of(cls, layout: Layout, devices_per_node: int) -> _Sharing:
        """Return the properties of a layout that decide how its ranks share a batch.

        If parameters are gathered for every micro-batch, all ranks wait for each other in each of them.
        """
        context = layout.context_parallel_degree
        return cls(
            num_ranks=layout.data_parallel_degree,
            balance=layout.batch_balance,
            num_dealing_ranks=dealing_ranks(layout, devices_per_node),
            micro_batch_size=layout.micro_batch_size,
            is_packed=layout.sequence_packing,
            multiple=lcm(context * layout.tensor_parallel_degree, 2 * context if context > 1 else 1),
            waits_for_each=layout.shard_level == ShardLevel.PARAMETERS,
        )

    def filled(self, num_tokens: int) -> int:
        """Return the number of tokens of a row with ``num_tokens`` tokens after padding."""
        return -(-num_tokens // self.multiple) * self.multiple


@dataclass(frozen=True, slots=True)
class _Pass:
    """The number of tokens in the rows of a micro-batch and the sum of their squares, including padding."""

    tokens: int
    squares: int


@lru_cache(maxsize=16)
def _shapes_of(lengths: LengthDistribution, num_sequences: int) -> Callable[[_Sharing], BatchShape]:
    """Return a function that computes the shape of batches with these lengths, once for each way to share them.

    The batches come from one corpus that is always shuffled in the same way, so that predictions are reproducible.
    """
    batches = _batches(lengths, num_sequences)

    @lru_cache(maxsize=32)  # shares are long and are the same for all divisions into micro-batches
    def shares(num_ranks: int, balance: BatchBalance, num_dealing_ranks: int) -> list[list[list[int]]]:
        return [
            [
                [batch[position] for position in share]
                for share in shares_of_ranks(
                    batch, num_ranks=num_ranks, balance=balance, num_dealing_ranks=num_dealing_ranks
                )
            ]
            for batch in batches
        ]

    @cache
    def shape(sharing: _Sharing) -> BatchShape:
        return _shape(shares(sharing.num_ranks, sharing.balance, sharing.num_dealing_ranks), sharing)

    return shape


def _batches(lengths: LengthDistribution, num_sequences: int) -> list[list[int]]:
    """Return batches of a corpus in which every length has its stated frequency, up to one sequence."""
    num_batches = max(_DRAWN_SEQUENCES // num_sequences, min(_FEWEST_BATCHES, _MOST_SEQUENCES // num_sequences), 1)
    total = num_batches * num_sequences
    corpus = list(lengths.at_each((i + 0.5) / total for i in range(total)))
    Random(0).shuffle(corpus)
    return [corpus[start : start + num_sequences] for start in range(0, total, num_sequences)]


def _shape(batches: Sequence[Sequence[Sequence[int]]], sharing: _Sharing) -> BatchShape:
    """Return the shape of the batches, from sums over the slowest ranks and over all ranks."""
    slowest = squares = computed = real = 0
    for shares in batches:
        ranks = [list(_passes(share, sharing)) for share in shares]
        waited_for = list(_waited_for(ranks, waits_for_each=sharing.waits_for_each))
        slowest += sum(one.tokens for one in waited_for)
        squares += sum(one.squares for one in waited_for)
        computed += sum(one.tokens for passes in ranks for one in passes)
        real += sum(map(sum, shares))
    num_sequences = sum(len(shares[0]) for shares in batches)
    return BatchShape(
        tokens=slowest / num_sequences,
        keys=squares / slowest,
        imbalance=slowest * sharing.num_ranks / computed - 1,
        padding_waste=computed / real - 1,
    )


def _passes(share: Sequence[int], sharing: _Sharing) -> Iterator[_Pass]:
    """Yield the micro-batches of a rank that has these sequences."""
    for start in range(0, len(share), sharing.micro_batch_size):
        rows = share[start : start + sharing.micro_batch_size]
        if sharing.is_packed:
            yield _Pass(sharing.filled(sum(rows)), sum(length * length for length in rows))
        else:
            width = sharing.filled(max(rows))
            yield _Pass(width * len(rows), width * width * len(rows))


def _waited_for(ranks: Sequence[Sequence[_Pass]], *, waits_for_each: bool) -> Sequence[_Pass]:
    """Return the micro-batches that other ranks wait for.

    If ranks wait for each other in every micro-batch, this is the largest one of each round; otherwise those of the
    rank with most work.
    """
    if waits_for_each:
        return [max(round_of, key=lambda one: one.tokens) for round_of in zip(*ranks, strict=True)]
    return max(ranks, key=lambda passes: sum(one.tokens for one in passes))
