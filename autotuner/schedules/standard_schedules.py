"""Schedules that ignore delays of links, as lists of actions: GPipe, 1F1B, and the zero-bubble schedules."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator

from autotuner.core.errors import InvalidInput
from autotuner.schedules.schedule import Action, Kind, Schedule


def gpipe(num_ranks: int, num_micro_batches: int) -> Schedule:
    """Return the schedule of GPipe: all forwards, then all backwards (arXiv 1811.06965).

    Args:
        num_ranks: Pipeline ranks, with one stage each.
        num_micro_batches: Micro-batches of a step.

    Example:
        >>> print(gpipe(2, 2))
        0F0 0F1 0B0 0B1
        1F0 1F1 1B0 1B1
    """
    check_sizes(num_ranks, num_micro_batches)
    kinds = (Kind.FORWARD, Kind.BACKWARD)
    micro_batches = range(num_micro_batches)
    return Schedule(
        ranks=tuple(tuple(Action(rank, kind, i) for kind in kinds for i in micro_batches) for rank in range(num_ranks))
    )


def one_f_one_b(num_ranks: int, num_micro_batches: int) -> Schedule:
    """Return the 1F1B schedule: each rank runs some forwards first, then backwards and forwards in turn.

    Rank r runs ``num_ranks - r`` forwards before its first backward (arXiv 2104.04473, section 2.2).

    Args:
        num_ranks: Pipeline ranks, with one stage each.
        num_micro_batches: Micro-batches of a step.

    Example:
        >>> print(one_f_one_b(2, 3))
        0F0 0F1 0B0 0F2 0B1 0B2
        1F0 1B0 1F1 1B1 1F2 1B2
    """
    return interleaved_1f1b(num_ranks, 1, num_micro_batches)


def interleaved_1f1b(num_ranks: int, stages_per_rank: int, num_micro_batches: int) -> Schedule:
    """Return the interleaved 1F1B schedule of Megatron-LM (arXiv 2104.04473, section 2.3).

    With p ranks, rank r holds stages r, r + p, r + 2 p and so on. Micro-batches are processed in rounds of p: a rank
    runs all p of them through one stage, then through its next stage. With v stages per rank, rank r runs
    ``2 (p - r - 1) + (v - 1) p`` forwards before it alternates forwards and backwards. With one stage per rank the
    result is plain 1F1B, which runs ``p - r - 1`` forwards first.

    Raises:
        InvalidInput: There are several stages per rank, and the number of micro-batches is not a multiple of the number
            of ranks.

    Example:
        >>> print(interleaved_1f1b(2, stages_per_rank=2, num_micro_batches=2))
        0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1
        1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1
    """
    check_sizes(num_ranks, num_micro_batches, stages_per_rank)
    p, v, m = num_ranks, stages_per_rank, num_micro_batches
    if v > 1 and m % p:
        raise InvalidInput(
            "num_micro_batches",
            m,
            f"must be a multiple of the number of pipeline ranks, {p}",
            max(1, round(m / p)) * p,
        )
    ranks = []
    for rank in range(p):
        forwards, backwards = rounds(rank, p, v, m, Kind.FORWARD), rounds(rank, p, v, m, Kind.BACKWARD)
        ahead = p - rank - 1 if v == 1 else 2 * (p - rank - 1) + (v - 1) * p
        ranks.append(tuple(_alternate(forwards, backwards, min(ahead, m * v))))
    return Schedule(ranks=tuple(ranks))


def rounds(rank: int, p: int, v: int, m: int, kind: Kind) -> list[Action]:
    """Return all passes of one kind that a rank runs, in rounds of p micro-batches.

    A round goes through all stages of the rank. Forward passes begin with the first stage, backward passes with the
    last.

    Args:
        rank: Pipeline rank, from 0.
        p: Number of pipeline ranks.
        v: Stages per rank. With 1, all micro-batches are one round.
        m: Micro-batches of a step.
        kind: Kind of the passes.
    """
    size = p if v > 1 else m
    chunks = range(v) if kind is Kind.FORWARD else range(v - 1, -1, -1)
    starts = range(0, m, size)
    return [Action(rank + chunk * p, kind, i) for s in starts for chunk in chunks for i in range(s, s + size)]


def _alternate(forwards: list[Action], backwards: list[Action], ahead: int) -> Iterator[Action]:
    yield from forwards[:ahead]
    for forward, backward in zip(forwards[ahead:], backwards, strict=False):
        yield forward
        yield backward
    yield from backwards[len(forwards) - ahead :]


def zb_h1(num_ranks: int, num_micro_batches: int) -> Schedule:
    """Return the ZB-H1 schedule: 1F1B in which rank r computes each weight gradient r micro-batches later.

    The delay makes all ranks keep the activations of equally many micro-batches.

    Source: arXiv 2401.10241, section 2.3 and figure 2.

    Example:
        >>> print(zb_h1(2, 3))
        0F0 0F1 0I0 0W0 0F2 0I1 0W1 0I2 0W2
        1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2
    """
    return _deferring(num_ranks, num_micro_batches, 1)


def zb_h2(num_ranks: int, num_micro_batches: int) -> Schedule:
    """Return the ZB-H2 schedule, which runs more forwards first than ZB-H1 and defers weight gradients twice as long.

    With p ranks, rank r runs ``2 (p - r) - 1`` forwards before its first backward, and computes each weight gradient
    ``2 r`` micro-batches later than plain 1F1B. Each rank keeps the activations of ``2 p - 1`` micro-batches.

    Source: arXiv 2401.10241, section 2.3 and figure 3.
    """
    return _deferring(num_ranks, num_micro_batches, 2)


def _deferring(num_ranks: int, num_micro_batches: int, step: int) -> Schedule:
    """Return the schedule in which rank r runs ``step (p - 1 - r) + 1`` forwards, then repeats I, F and deferred W."""
    check_sizes(num_ranks, num_micro_batches)
    m = num_micro_batches
    ranks: list[tuple[Action, ...]] = []
    for rank in range(num_ranks):
        ahead, lag = step * (num_ranks - 1 - rank) + 1, step * rank
        actions = [Action(rank, Kind.FORWARD, i) for i in range(min(ahead, m))]
        for i in range(m + lag):
            turn = ((Kind.INPUT, i), (Kind.WEIGHT, i - lag), (Kind.FORWARD, i + ahead))
            actions += [Action(rank, kind, index) for kind, index in turn if 0 <= index < m]
        ranks.append(tuple(actions))
    return Schedule(ranks=tuple(ranks))


def zbv(num_ranks: int, num_micro_batches: int) -> Schedule:
    """Return the ZB-V schedule: with p ranks, rank r holds stages r and ``2 p - 1 - r``, so that stages form a V.

    A micro-batch goes down through all ranks, turns round on the last rank and comes back. Every rank keeps the
    activations of at most 2 p passes, each of which has half the usual size. With fewer than ``2 p - 1`` micro-batches,
    the result is the order for ``2 p - 1`` micro-batches, without the passes of the missing micro-batches.

    Source: arXiv 2401.10241, section 6, figure 8; the order of ``ScheduleZBVZeroBubble`` in PyTorch.

    Example:
        >>> print(zbv(2, 3))
        0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 3F2 3I2 3W2 0I1 0W1 0I2 0W2
        1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1I1 2I2 1I2 1W1 2W2 1W2
    """
    check_sizes(num_ranks, num_micro_batches)
    planned = max(num_micro_batches, 2 * num_ranks - 1)
    return Schedule(
        ranks=tuple(
            tuple(action for action in _fold(rank, num_ranks, planned) if action.micro_batch < num_micro_batches)
            for rank in range(num_ranks)
        )
    )


def _fold(rank: int, p: int, m: int) -> Iterator[Action]:
    """Yield the actions of one rank of a V-shaped schedule with at least ``2 p - 1`` micro-batches.

    ``a`` is the rank's first stage.
    """
    a, b = rank, 2 * p - 1 - rank
    counts: Counter[tuple[int, Kind]] = Counter()
    down, up = ("aF", "aI", "aW"), ("bF", "bI", "bW")
    program = [
        *["aF"] * (2 * (p - rank) - 1),
        *["bF", "aF"] * rank,
        *up * (p - rank),
        *(down + up) * (m - (2 * p - 1 - rank)),  # until every forward down has run
        *(down[1:] + up) * (p - 1 - rank),  # until every forward up has
        *["aI", "bI"] * rank,
        *down[1:] * (p - rank),
        *["bW"] * rank,
        *["aW"] * rank,
    ]
    for word in program:
        stage, kind = a if word[0] == "a" else b, Kind(word[1])
        yield Action(stage, kind, counts[stage, kind])
        counts[stage, kind] += 1


def check_sizes(num_ranks: int, num_micro_batches: int, stages_per_rank: int = 1) -> None:
    """Check that all sizes of a schedule are 1 or more: its numbers of ranks, micro-batches and stages per rank.

    Raises:
        InvalidInput: A size is below 1.
    """
    sizes = {"num_ranks": num_ranks, "num_micro_batches": num_micro_batches, "stages_per_rank": stages_per_rank}
    for name, value in sizes.items():
        if value < 1:
            raise InvalidInput(name, value, "must be 1 or more", 1)


def zb_interleaved(num_ranks: int, stages_per_rank: int, num_micro_batches: int) -> Schedule:
    """Return the ZB-H1 schedule with several stages per rank: with p ranks, rank r holds stages r, r + p and so on.

    With v stages per rank, rank r first runs ``p - r - 1 + (v - 1) p`` forwards. In each turn after that it runs a
    forward, an input gradient, and the weight gradient of the pass whose input gradient it ran r turns before. Every
    rank keeps the activations of ``p v`` passes through a stage.

    Raises:
        InvalidInput: The number of micro-batches is not a multiple of the number of ranks.

    Source: ``ScheduleInterleavedZeroBubble`` in PyTorch, after arXiv 2401.10241.
    """
    check_sizes(num_ranks, num_micro_batches, stages_per_rank)
    p, v, m = num_ranks, stages_per_rank, num_micro_batches
    if v > 1 and m % p:
        raise InvalidInput(
            "num_micro_batches",
            m,
            f"must be a multiple of the number of pipeline ranks, {p}",
            max(1, round(m / p)) * p,
        )
    return Schedule(ranks=tuple(tuple(_deferring_in_rounds(rank, p, v, m)) for rank in range(p)))


def _deferring_in_rounds(rank: int, p: int, v: int, m: int) -> Iterator[Action]:
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
    """Return the DualPipeV schedule: stages in a V, and forwards paired with backwards of the other direction.

    In DualPipe, the two passes of a pair overlap. In the returned schedule they are two actions, one after the other.

    Raises:
        InvalidInput: There are fewer micro-batches than stages.

    Source: ``ScheduleDualPipeV`` in PyTorch, after arXiv 2412.19437 and deepseek-ai/DualPipe.
    """
    check_sizes(num_ranks, num_micro_batches)
    if num_micro_batches < 2 * num_ranks:
        rule = f"must be at least the number of stages, {2 * num_ranks}"
        raise InvalidInput("num_micro_batches", num_micro_batches, rule, 2 * num_ranks)
    return Schedule(ranks=tuple(tuple(_both_ways(rank, num_ranks, num_micro_batches)) for rank in range(num_ranks)))


def _both_ways(rank: int, p: int, m: int) -> Iterator[Action]:
    """Yield the actions of one rank of DualPipeV.

    ``a`` is the rank's stage on the way down the V, ``b`` its stage on the way up.
    """
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
    """Return the passes of a rank, by stage and kind.

    ``W`` means the oldest deferred weight gradient, if there is one.
    """
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
