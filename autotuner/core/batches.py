"""Batches of sequences of different lengths: their lengths, and their assignment to data-parallel ranks.

Trials and predictions assign sequences by the same functions. Every method assigns each sequence once, and the same
number of sequences to each rank, so that all methods train on the same batch. The methods follow the sampler and the
exchange within nodes of arXiv 2402.02447 (MLPerf training v1.1 and v2.0, BERT).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from math import gcd
from random import Random

from autotuner.core.choices import BatchBalance
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.core.value import nearest_divisor
from autotuner.core.workload import LengthDistribution

NUM_STRATA = 4
"""Number of equally wide ranges of lengths between zero and the longest length, as in the MLPerf submissions."""

_STRATIFIED = (BatchBalance.STRATIFIED, BatchBalance.STRATIFIED_SNAKE)

Shares = tuple[tuple[int, ...], ...]
"""Indices of the sequences of every rank, in the order in which the rank trains on them."""


def drawn(distribution: LengthDistribution, *, num_sequences: int, seed: int, step: int) -> tuple[int, ...]:
    """Return the length in tokens of each sequence of one step's global batch, drawn at random from a distribution.

    Lengths are drawn independently, as from a shuffled corpus. They do not depend on how sequences are assigned to
    ranks, so that a prediction and a trial see the same lengths.

    Args:
        distribution: Lengths of sequences and their weights.
        num_sequences: Sequences of the global batch.
        seed: Seed of the random numbers.
        step: Number of the step. Each step has another batch.
    """
    generator = Random(f"{seed}/{step}")  # a string: its bytes are hashed alike in every process
    return distribution.at_each([generator.random() for _ in range(num_sequences)])


def dealing_ranks(layout: Layout, devices_per_node: int) -> int:
    """Return the number of data-parallel ranks in a group that exchanges sequences to balance the batch.

    The layout may state this number. Otherwise it is the number of data-parallel ranks in one node. If that number does
    not divide the number of all data-parallel ranks, the result is their greatest common divisor.

    Args:
        layout: The layout.
        devices_per_node: Accelerators of each node.
    """
    if layout.num_dealing_ranks:
        return layout.num_dealing_ranks
    ranks = layout.data_parallel_degree
    of_a_node = max(1, devices_per_node // (layout.tensor_parallel_degree * layout.context_parallel_degree))
    return ranks if ranks <= of_a_node else gcd(ranks, of_a_node)


def shares_of_ranks(
    lengths: Sequence[int],
    *,
    num_ranks: int,
    balance: BatchBalance,
    num_dealing_ranks: int = 1,
    bounds: Sequence[int] | None = None,
) -> Shares:
    """Return the sequences that each data-parallel rank trains on, as positions in ``lengths``.

    Args:
        lengths: Tokens of each sequence of a global batch, in the order in which they were drawn.
        num_ranks: Number of data-parallel ranks.
        balance: Method that assigns sequences to ranks.
        num_dealing_ranks: Number of neighbouring ranks in a group that exchanges its sequences; it must divide
            ``num_ranks``.
        bounds: Longest length of each stratum (range of lengths), in rising order. Only methods that use strata read
            it. None: each stratum is a quarter of the longest length.

    Raises:
        InvalidInput: ``num_ranks`` does not divide the number of sequences, or ``num_dealing_ranks`` does not divide
            ``num_ranks``.
    """
    _require_shares(len(lengths), num_ranks, num_dealing_ranks)
    if balance in _STRATIFIED:
        shares = _stratified(lengths, num_ranks, strata(max(lengths)) if bounds is None else bounds)
    else:
        shares = _as_they_come(len(lengths), num_ranks)
    match balance:
        case BatchBalance.NONE | BatchBalance.STRATIFIED:
            return shares
        case BatchBalance.SNAKE | BatchBalance.STRATIFIED_SNAKE:
            return _to_and_fro(shares, lengths, num_dealing_ranks)
        case BatchBalance.GLOBAL_SORT:
            return _to_and_fro(shares, lengths, num_ranks)


def strata(longest: int) -> tuple[int, ...]:
    """Return the longest length of each stratum: four equally wide ranges of sequence lengths from 0 to ``longest``."""
    return tuple(longest * (i + 1) // NUM_STRATA for i in range(NUM_STRATA))


def _require_shares(num_sequences: int, num_ranks: int, num_dealing_ranks: int) -> None:
    if num_ranks < 1 or num_sequences % num_ranks or num_sequences < num_ranks:
        raise InvalidInput(
            "num_ranks",
            num_ranks,
            f"must divide the number of sequences in a batch, {num_sequences}",
            nearest_divisor(num_ranks, num_sequences) if num_sequences else None,
        )
    if num_dealing_ranks < 1 or num_ranks % num_dealing_ranks:
        raise InvalidInput(
            "num_dealing_ranks",
            num_dealing_ranks,
            f"must divide the number of ranks, {num_ranks}, because it is the size of the groups within which "
            "sequences are redistributed",
            nearest_divisor(num_dealing_ranks, num_ranks),
        )


def _as_they_come(num_sequences: int, num_ranks: int) -> Shares:
    size = num_sequences // num_ranks
    return tuple(tuple(range(rank * size, (rank + 1) * size)) for rank in range(num_ranks))


def _stratified(lengths: Sequence[int], num_ranks: int, bounds: Sequence[int]) -> Shares:
    """Return sequences for every rank, with the same number from each length range (stratum), the longest range first.

    The number of sequences of a range is rounded to a multiple of the number of ranks. Sequences near the bound of a
    range may therefore count to the next range.
    """
    rising = sorted(range(len(lengths)), key=lengths.__getitem__)
    counts = [bisect_left(rising, bound + 1, key=lengths.__getitem__) for bound in bounds]
    cuts = [0, *((count + num_ranks // 2) // num_ranks * num_ranks for count in counts[:-1]), len(lengths)]
    order = [position for low, high in reversed(list(pairwise(cuts))) for position in sorted(rising[low:high])]
    return tuple(tuple(order[rank::num_ranks]) for rank in range(num_ranks))


def _to_and_fro(shares: Shares, lengths: Sequence[int], group_size: int) -> Shares:
    """Assign the sequences of every group, longest first, to its ranks in order, then in reverse order, and so on.

    The reverse order balances the ranks: a rank that got a longer sequence in one round gets a shorter one in the next.
    """
    return tuple(
        share
        for start in range(0, len(shares), group_size)
        for share in _snake([one for held in shares[start : start + group_size] for one in held], lengths, group_size)
    )


def _snake(positions: list[int], lengths: Sequence[int], num_ranks: int) -> Shares:
    falling = sorted(positions, key=lambda position: (-lengths[position], position))
    rounds = [falling[start : start + num_ranks] for start in range(0, len(falling), num_ranks)]
    for one in rounds[1::2]:
        one.reverse()
    return tuple(zip(*rounds, strict=True))
