"""Zero-bubble schedules of several stages per rank, in the order in which PyTorch's classes run them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator

from autotuner.core.errors import InvalidInput
from autotuner.schedules.actions import Action, Kind, Schedule, check_sizes, rounds


def zb_interleaved(num_ranks: int, stages_per_rank: int, num_micro_batches: int) -> Schedule:
    """ZB-H1 in which a rank holds every ``num_ranks``-th stage; every rank keeps ``p v`` passes of a stage.

    Rank r runs ``p - r - 1 + (v - 1) p`` forwards ahead, then a forward, an input gradient and the weight gradient of r
    turns before.

    Raises:
        InvalidInput: Micro-batches that are not whole rounds of the ranks.

    Source: ``ScheduleInterleavedZeroBubble`` in PyTorch, after arXiv 2401.10241.
    """
    check_sizes(num_ranks, num_micro_batches, stages_per_rank)
    p, v, m = num_ranks, stages_per_rank, num_micro_batches
    if v > 1 and m % p:
        raise InvalidInput("num_micro_batches", m, f"must be a multiple of the {p} pipeline ranks", max(p, m // p * p))
    return Schedule(ranks=tuple(tuple(_deferring(rank, p, v, m)) for rank in range(p)))


def _deferring(rank: int, p: int, v: int, m: int) -> Iterator[Action]:
    forwards, gradients = rounds(rank, p, v, m, Kind.FORWARD), rounds(rank, p, v, m, Kind.INPUT)
    ahead = min((v - 1) * p + p - rank - 1, m * v)
    yield from forwards[:ahead]
    for turn, gradient in enumerate(gradients):
        yield from forwards[ahead + turn : ahead + turn + 1]
        yield gradient
        if turn >= rank:
            yield gradients[turn - rank]._replace(kind=Kind.WEIGHT)
    for gradient in gradients[max(0, len(gradients) - rank) :]:
        yield gradient._replace(kind=Kind.WEIGHT)


def dualpipev(num_ranks: int, num_micro_batches: int) -> Schedule:
    """DualPipeV: stages in a V, forwards of one direction beside backwards of the other; ``2 p + 1`` passes kept.

    A forward and the backward beside it are two actions here, one after the other.

    Raises:
        InvalidInput: Fewer micro-batches than stages.

    Source: ``ScheduleDualPipeV`` in PyTorch, after arXiv 2412.19437 and deepseek-ai/DualPipe.
    """
    check_sizes(num_ranks, num_micro_batches)
    if num_micro_batches < 2 * num_ranks:
        rule = f"must not be fewer than the {2 * num_ranks} stages"
        raise InvalidInput("num_micro_batches", num_micro_batches, rule, 2 * num_ranks)
    return Schedule(ranks=tuple(tuple(_both_ways(rank, num_ranks, num_micro_batches)) for rank in range(num_ranks)))


def _both_ways(rank: int, p: int, m: int) -> Iterator[Action]:
    """One rank's order; ``a`` is its stage on the way down, ``b`` on the way up."""
    counts: Counter[tuple[str, bool]] = Counter()
    stages, deferred = {"a": rank, "b": 2 * p - 1 - rank}, deque[Action]()
    for word in _program(rank, p, m):
        if word == "W":
            if deferred:
                yield deferred.popleft()
            continue
        place, kind = word[0], Kind(word[1])
        action = Action(stages[place], kind, counts[place, kind is Kind.FORWARD])
        counts[place, kind is Kind.FORWARD] += 1
        if kind is Kind.INPUT:
            deferred.append(action._replace(kind=Kind.WEIGHT))
        yield action


def _program(rank: int, p: int, m: int) -> list[str]:
    """Passes by stage and kind; ``W`` is the weight gradient that was deferred first, if one is."""
    behind, half = p - rank - 1, (rank + 1) // 2
    whole = ["bB", "aB"] * half + ["bB"] * (rank % 2 == 0)  # of rank + 1 pairs of backwards, the first half
    split = (["aI"] * (rank % 2 == 0)) + ["bI", "aI"] * (rank + 1 - half - (rank % 2 == 0))
    return [
        *["aF"] * (2 * behind),
        *["aF", "bF"] * (rank + 1),
        *["bI", "W", "bF"] * behind,
        *["aF", "bB", "bF", "aB"] * (m - 2 * p + rank + 1),
        *["bB", "bF", "aB"] * behind,
        *whole,
        *split,
        *["W", "aI"] * behind,
        *["W"] * (rank + 1),
    ]
