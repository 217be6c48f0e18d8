"""BatchShape: what ranks compute of a batch whose sequences differ, and how much of that is padding or waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from math import lcm
from random import Random
from typing import Generic

from autotuner.core.batches import dealing_ranks, dealt
from autotuner.core.choices import BatchBalance, ShardLevel
from autotuner.core.layout import Layout
from autotuner.core.prediction import Number
from autotuner.core.workload import LengthDistribution, Workload

_DRAWN_SEQUENCES = 8192
"""Number of sequences whose assignment a prediction averages over. For the lengths in docs/explanation/batches.md,
assigned by chance to 4, 16 or 1,024 ranks, the tokens of the slowest rank then vary by 0.8, 1.3 and 2.2 % from seed to
seed (one standard deviation)."""

_FEWEST_BATCHES, _MOST_SEQUENCES = 4, 1 << 16
"""Few large batches are as good as many small ones: the slowest of thousands of ranks varies little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchShape(Generic[Number]):
    """The work of ranks on an average batch, in one layout or in many."""

    tokens: Number
    """Computed on the rank that the others wait for, padding included, per sequence that it has."""
    keys: Number
    """Of the row or the document that such a token attends to, on average: attention goes by it."""
    imbalance: Number
    """What that rank computes above the mean of all, as a share of the mean."""
    padding_waste: Number
    """Padding as a share of all real tokens."""


def batch_shape(layout: Layout, workload: Workload, devices_per_node: int) -> BatchShape:
    """The shape of the workload's batches in a legal layout.

    Stages of a pipeline exchange states of one shape, so that there all sequences are padded to the longest allowed.
    """
    seq_len, lengths = workload.seq_len, workload.lengths
    if lengths is None:
        return BatchShape(tokens=seq_len, keys=seq_len, imbalance=0.0, padding_waste=0.0)
    if layout.pipeline_parallel_degree > 1:
        return BatchShape(tokens=seq_len, keys=seq_len, imbalance=0.0, padding_waste=seq_len / lengths.mean - 1)
    return _shapes_of(lengths, workload.global_batch_size)(_Sharing.of(layout, devices_per_node))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sharing:
    """How ranks share a batch."""

    num_ranks: int
    """Data-parallel ranks."""
    balance: BatchBalance
    """How sequences are dealt to them."""
    num_dealing_ranks: int
    """Ranks of a group that deals among its members."""
    micro_batch_size: int
    """Sequences of a forward pass; they divide what a rank has."""
    is_packed: bool
    """They follow each other in one row; else each is padded to the longest of them."""
    multiple: int
    """Rows have a multiple of so many tokens: as ranks that split them ask for, a context rank in two parts."""
    waits_for_each: bool
    """Ranks wait for each other in every micro-batch, not only at the end of the step."""

    @classmethod
    def of(cls, layout: Layout, devices_per_node: int) -> _Sharing:
        """What of a layout matters; parameters that are gathered for every micro-batch have all ranks wait for it."""
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
        """Tokens of a row that holds so many."""
        return -(-num_tokens // self.multiple) * self.multiple


@dataclass(frozen=True, slots=True)
class _Pass:
    """Tokens and squares of the rows of a micro-batch, padding included."""

    tokens: int
    squares: int


@lru_cache(maxsize=16)
def _shapes_of(lengths: LengthDistribution, num_sequences: int) -> Callable[[_Sharing], BatchShape]:
    """The shapes of global batches of so many sequences, each way to share them computed once.

    Batches are of one shuffled corpus, so that two predictions of a workload agree to the last digit.
    """
    batches = _batches(lengths, num_sequences)

    @lru_cache(maxsize=32)  # hands are long, and shared by the ways to cut them into micro-batches
    def hands(num_ranks: int, balance: BatchBalance, num_dealing_ranks: int) -> list[list[list[int]]]:
        return [
            [
                [batch[position] for position in hand]
                for hand in dealt(batch, num_ranks=num_ranks, balance=balance, num_dealing_ranks=num_dealing_ranks)
            ]
            for batch in batches
        ]

    @cache
    def shape(sharing: _Sharing) -> BatchShape:
        return _shape(hands(sharing.num_ranks, sharing.balance, sharing.num_dealing_ranks), sharing)

    return shape


def _batches(lengths: LengthDistribution, num_sequences: int) -> list[list[int]]:
    """Batches of a corpus in which every length occurs as often as it should, up to one sequence."""
    num_batches = max(_DRAWN_SEQUENCES // num_sequences, min(_FEWEST_BATCHES, _MOST_SEQUENCES // num_sequences), 1)
    total = num_batches * num_sequences
    corpus = list(lengths.at_each((i + 0.5) / total for i in range(total)))
    Random(0).shuffle(corpus)
    return [corpus[start : start + num_sequences] for start in range(0, total, num_sequences)]


def _shape(batches: Sequence[Sequence[Sequence[int]]], sharing: _Sharing) -> BatchShape:
    """Sums over all batches, of what slowest ranks compute and of what all do."""
    slowest = squares = computed = real = 0
    for hands in batches:
        ranks = [list(_passes(hand, sharing)) for hand in hands]
        waited_for = list(_waited_for(ranks, waits_for_each=sharing.waits_for_each))
        slowest += sum(one.tokens for one in waited_for)
        squares += sum(one.squares for one in waited_for)
        computed += sum(one.tokens for passes in ranks for one in passes)
        real += sum(map(sum, hands))
    num_dealt = sum(len(hands[0]) for hands in batches)
    return BatchShape(
        tokens=slowest / num_dealt,
        keys=squares / slowest,
        imbalance=slowest * sharing.num_ranks / computed - 1,
        padding_waste=computed / real - 1,
    )


def _passes(hand: Sequence[int], sharing: _Sharing) -> Iterator[_Pass]:
    """The micro-batches of a rank."""
    for start in range(0, len(hand), sharing.micro_batch_size):
        rows = hand[start : start + sharing.micro_batch_size]
        if sharing.is_packed:
            yield _Pass(sharing.filled(sum(rows)), sum(length * length for length in rows))
        else:
            width = sharing.filled(max(rows))
            yield _Pass(width * len(rows), width * width * len(rows))


def _waited_for(ranks: Sequence[Sequence[_Pass]], *, waits_for_each: bool) -> Sequence[_Pass]:
    """The passes of the rank with most tokens, or of each round those of the rank that has most in it."""
    if waits_for_each:
        return [max(round_of, key=lambda one: one.tokens) for round_of in zip(*ranks, strict=True)]
    return max(ranks, key=lambda passes: sum(one.tokens for one in passes))
