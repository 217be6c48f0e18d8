"""Orders for the ranks of a layout: a schedule by its name, or the adaptive one planned around slow links.

The planner selects the best of a few orders (PipeMorph, arXiv 2504.19232).

An order is a word per stage with a letter per pass (``FFIFIWIW``). Passes of one kind run in the order of
micro-batches, and each rank holds one stage, so that a word determines the order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from heapq import heappop, heappush
from itertools import accumulate, pairwise
from math import ceil, inf

from autotuner.core.choices import PipelineSchedule
from autotuner.core.errors import InvalidInput
from autotuner.schedules.schedule import Action, Kind, Schedule
from autotuner.schedules.simulate import PassTimes
from autotuner.schedules.standard_schedules import (
    dualpipev,
    gpipe,
    interleaved_1f1b,
    one_f_one_b,
    zb_h1,
    zb_h2,
    zb_interleaved,
    zbv,
)


def warm_up(times: PassTimes, extra_slack: int = 0) -> tuple[int, ...]:
    """Return the number of forwards that each stage runs before its first backward, so that delays of links are hidden.

    The last stage runs 1 forward. Each earlier stage runs ``2 + ceil(c / F)`` more than the next one, plus
    ``extra_slack``: ``c`` is the delay of the link between them, and ``F`` is the forward time of the earlier stage.
    Without delays the result is the warm-up of ZB-H2. Slack is the number of forwards that a stage is ahead of the next
    stage. Each unit of slack beyond the first hides a delay of about one forward (``absorbed_delay_s``).

    Args:
        times: Times of passes and delays of links, with one stage per rank.
        extra_slack: Slack per link, in addition to the slack for the link's delay. It helps if delays vary.

    Source: the greedy planner of arXiv 2504.19232.
    """
    if extra_slack < 0:
        raise InvalidInput("extra_slack", extra_slack, "must not be negative", 0)
    if min(times.forward_s) <= 0:
        raise InvalidInput("forward_s", times.forward_s, "must be above 0 for every stage")
    counts = [1]
    for forward_s, send_s in zip(reversed(times.forward_s[:-1]), reversed(times.send_s), strict=True):
        counts.append(counts[-1] + 2 + ceil(send_s / forward_s) + extra_slack)
    return tuple(reversed(counts))


def even_warm_up(num_stages: int, most_on_first: int) -> tuple[int, ...]:
    """Return warm-ups (forwards before the first backward) of all stages, which fall evenly to 1 on the last stage.

    If the difference does not divide evenly, the warm-up falls by one more over each of the first links.

    Args:
        num_stages: Number of stages.
        most_on_first: Warm-up of the first stage.

    Source: ``get_init_warmup_fwds`` of the code of arXiv 2504.19232.
    """
    each, rest = divmod(most_on_first - 1, max(1, num_stages - 1))
    slack = [each + (link < rest) for link in range(num_stages - 1)]
    return tuple(most_on_first - before for before in accumulate(slack, initial=0))


def within(warm_up_counts: Sequence[int], most_in_flight: Sequence[int]) -> tuple[int, ...]:
    """Return the warm-up of each stage, limited by the number of micro-batches that the stage has memory for.

    The limit of a stage also applies to all later stages, because warm-ups must not grow from stage to stage.

    Args:
        warm_up_counts: Wanted number of forwards before the first backward, by stage.
        most_in_flight: Micro-batches that each stage may keep.
    """
    return tuple(accumulate(map(min, warm_up_counts, most_in_flight), min))


def absorbed_delay_s(slack: int, forward_s: float, input_s: float) -> float:
    """Return the longest link delay that slack hides, so that it lengthens a step only once, by the delay itself.

    A step sends many times over a link. The slack hides all of these delays but one. If a delay is longer than the
    result, its excess is added twice for every round of the first stage's warm-up. The formula assumes that weight
    gradients can be deferred.

    Args:
        slack: Number of forwards that the sending stage runs ahead of the receiving stage, as ``warm_up`` counts them.
        forward_s: Seconds of a forward pass of either stage.
        input_s: Seconds of an input gradient of either stage.

    Source: derived for two stages, and equal to the simulator there (tests/published/test_schedules.py).
    """
    if forward_s >= input_s:
        return (slack - 1) * (forward_s + input_s) / 2
    return (slack - 1) * forward_s - (input_s - forward_s)


def adaptive(times: PassTimes, num_micro_batches: int, warm_up_counts: Sequence[int]) -> Schedule:
    """Return the schedule in which each stage, after its warm-up, runs any pass that is ready: I before F before W.

    F is a forward pass, I an input gradient, and W a weight gradient. A stage that has run its warm-up waits for its
    first I. The given times and delays determine the order. Use ``simulate`` to find how long the same order takes with
    other times.

    Args:
        times: Times of passes and delays of links, with one stage per rank.
        num_micro_batches: Micro-batches of a step, 1 or more.
        warm_up_counts: Forwards before the first backward, by stage, such as ``warm_up(times)``.

    Source: greedy planner of arXiv 2504.19232.
    """
    if len(warm_up_counts) != len(times.forward_s):
        raise InvalidInput(
            "warm_up_counts", warm_up_counts, f"must have {len(times.forward_s)} values, one for each stage"
        )
    if warm_up_counts[-1] < 1 or any(behind > before for before, behind in pairwise(warm_up_counts)):
        raise InvalidInput(
            "warm_up_counts",
            warm_up_counts,
            "must be 1 or more for every stage, and must not increase from one stage to the next",
        )
    if num_micro_batches < 1:
        raise InvalidInput("num_micro_batches", num_micro_batches, "must be 1 or more", 1)
    unlimited = [num_micro_batches] * len(warm_up_counts)
    return schedule_of(greedy_orders(times, num_micro_batches, warm_up_counts, unlimited))


_F, _I, _W = Kind.FORWARD.value, Kind.INPUT.value, Kind.WEIGHT.value


def greedy_orders(
    times: PassTimes, num_micro_batches: int, warm_up_counts: Sequence[int], most_in_flight: Sequence[int]
) -> tuple[str, ...]:
    """Return the passes of each stage as a text such as ``FFIFIWIW``, in a greedy order: I before F before W.

    F is a forward pass, I an input gradient, and W a weight gradient. After its warm-up a stage waits for its first I,
    and then runs any pass that is ready. A stage that keeps as many micro-batches as it may starts no further F, so
    that it runs its W earlier.

    Args:
        times: Times of one stage per rank.
        num_micro_batches: Micro-batches of a step, 1 or more.
        warm_up_counts: Forwards before the first I, by stage: not fewer than on the next stage, and not more than the
            stage may keep.
        most_in_flight: Number of micro-batches that each stage may keep from F to W, 1 or more.

    Source: greedy planner of arXiv 2504.19232.
    """
    stages = [
        _Stage(min(ahead, num_micro_batches), num_micro_batches, most)
        for ahead, most in zip(warm_up_counts, most_in_flight, strict=True)
    ]
    stages[0].forward_ready_s = [0.0] * num_micro_batches
    moments = [(0.0, 0)]  # times at which a stage becomes free, or an input arrives there
    last = len(stages) - 1
    while moments:
        now_s, i = heappop(moments)
        stage = stages[i]
        kind = stage.next_kind(now_s)
        if kind == _F:
            end_s = stage.run(_F, now_s, times.forward_s[i])
            arrival_s = end_s + times.send_s[i] if i < last else end_s
            (stages[i + 1].forward_ready_s if i < last else stage.input_ready_s).append(arrival_s)
            heappush(moments, (arrival_s, min(i + 1, last)))
        elif kind == _I:
            end_s = stage.run(_I, now_s, times.input_s[i])
            if i > 0:
                arrival_s = end_s + times.send_s[i - 1]
                stages[i - 1].input_ready_s.append(arrival_s)
                heappush(moments, (arrival_s, i - 1))
        elif kind == _W:
            end_s = stage.run(_W, now_s, times.weight_s[i])
        else:
            continue  # busy, or with nothing to run until something arrives
        heappush(moments, (end_s, i))
    return tuple("".join(stage.order) for stage in stages)


class _Stage:
    """The passes that one stage has run in a simulation, and the arrival times of its next inputs."""

    __slots__ = (
        "_forwards", "_free_s", "_inputs", "_most_in_flight", "_num_micro_batches", "_warm_up", "_weights",
        "forward_ready_s", "input_ready_s", "order",
    )  # fmt: skip

    def __init__(self, warm_up: int, num_micro_batches: int, most_in_flight: int) -> None:
        self.forward_ready_s: list[float] = []
        self.input_ready_s: list[float] = []
        self.order: list[str] = []
        self._forwards = self._inputs = self._weights = 0
        self._free_s = 0.0
        self._warm_up, self._num_micro_batches, self._most_in_flight = warm_up, num_micro_batches, most_in_flight

    def next_kind(self, now_s: float) -> str:
        """Return the next pass of the stage: F, I or W.

        The result is empty while the stage computes, or if no pass is ready and allowed.
        """
        if now_s < self._free_s:
            return ""
        forwards, inputs = self._forwards, self._inputs
        warming = forwards < self._warm_up
        if not warming and inputs < len(self.input_ready_s) and self.input_ready_s[inputs] <= now_s:
            return _I
        arrived = forwards < len(self.forward_ready_s) and self.forward_ready_s[forwards] <= now_s
        if arrived and (warming or inputs) and forwards - self._weights < self._most_in_flight:
            return _F
        return _W if self._weights < inputs else ""

    def run(self, kind: str, now_s: float, seconds: float) -> float:
        """Start a pass of the stage, and return the time when it ends."""
        self.order.append(kind)
        if kind == _F:
            self._forwards += 1
        elif kind == _I:
            self._inputs += 1
        else:
            self._weights += 1
        self._free_s = now_s + seconds
        return self._free_s


def makespan_s(orders: Sequence[str], times: PassTimes) -> float:
    """Return the seconds from the first start to the last end of the given orders, if sends overlap with computation.

    ``simulate`` gives the same time for ``schedule_of(orders)``. Stages must not wait for each other in a circle. They
    never do so in the results of ``greedy_orders``.

    Args:
        orders: Passes of each stage, as a text of the letters F, I and W.
        times: Times of passes and delays of links, with one stage per rank.
    """
    last, size = len(orders) - 1, len(orders[0])
    forward_s: list[list[float]] = [[] for _ in orders]  # ends, by micro-batch
    input_s: list[list[float]] = [[] for _ in orders]
    places, free_s = [0] * len(orders), [0.0] * len(orders)
    while min(places) < size:
        for i, order in enumerate(orders):
            place, now_s = places[i], free_s[i]
            own_f, own_i = forward_s[i], input_s[i]
            before = forward_s[i - 1] if i else None
            behind = input_s[i + 1] if i < last else None
            while place < size:
                kind = order[place]
                if kind == _F:
                    if before is not None:
                        if len(own_f) >= len(before):
                            break
                        now_s = max(now_s, before[len(own_f)] + times.send_s[i - 1])
                    now_s += times.forward_s[i]
                    own_f.append(now_s)
                elif kind == _I:
                    if behind is not None:
                        if len(own_i) >= len(behind):
                            break
                        now_s = max(now_s, behind[len(own_i)] + times.send_s[i])
                    now_s += times.input_s[i]
                    own_i.append(now_s)
                else:
                    now_s += times.weight_s[i]
                place += 1
            places[i], free_s[i] = place, now_s
    return max(free_s)


def schedule_of(orders: Sequence[str]) -> Schedule:
    """Return the schedule with one stage per rank in which each stage runs its text of passes, such as ``FFIFIWIW``.

    Args:
        orders: Passes of each stage, as a text of the letters F, I and W.
    """
    return Schedule(ranks=tuple(tuple(_actions(stage, order)) for stage, order in enumerate(orders)))


def _actions(stage: int, order: str) -> list[Action]:
    counts = dict.fromkeys((_F, _I, _W), 0)
    actions = []
    for letter in order:
        actions.append(Action(stage, Kind(letter), counts[letter]))
        counts[letter] += 1
    return actions


_TRIED = ((1.0, 0), (0.0, 0), (0.5, 0), (1.0, 1), (0.0, 1))
"""Assumptions that orders are planned with: a share of the real delays, and additional slack per link.

The paper plans with the full delays. The other assumptions make plans of unequal stages up to 2 % shorter
(tests/published/test_schedules.py).
"""

_NO_ORDERS: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The planned order of passes of all stages of a pipeline, and the expected time of a step."""

    schedule: Schedule
    """Actions by rank, with one stage on each."""
    warm_up: tuple[int, ...]
    """Number of forward passes before the first backward pass, by stage."""
    makespan_s: float
    """Time from the first start to the last end, if sends run during computation."""
    planned_send_s: tuple[float, ...]
    """Delays by link that the order was planned for. They are smaller than the real delays if that gives a better
    order."""


def plan(
    times: PassTimes, num_micro_batches: int, *, extra_slack: int = 0, most_in_flight: Sequence[int] | None = None
) -> Plan:
    """Return the fastest order found for a pipeline whose stages and links have these times.

    The order is never slower than the zero-bubble schedules that ignore delays (ZB-H1, ZB-H2), if these fit into
    memory. No stage keeps more micro-batches than the first stage needs to hide all delays (``warm_up(times)[0]``).
    With more micro-batches, steps would be shorter by only a few tenths of a percent.

    Args:
        times: Passes of one stage per rank, and the delays of the links between them.
        num_micro_batches: Micro-batches of a step, 1 or more.
        extra_slack: Forwards per link that the sending stage runs ahead, in addition to those that hide the link's
            delay.
        most_in_flight: Micro-batches that each stage has memory for, from F until W has released them, as
            ``Schedule.peak_in_flight`` counts. If memory allows fewer micro-batches than the delays require, stages run
            ahead less, and compute weight gradients earlier. None: memory does not limit the number.

    Raises:
        InvalidInput: A number of micro-batches is below 1, or ``most_in_flight`` does not have one value per stage.

    Source: greedy planner of arXiv 2504.19232, and its choice among simulated delays.

    Example:
        >>> times = PassTimes.equal(2, forward_s=1.0, input_s=1.0, weight_s=1.0, send_s=1.5)
        >>> plan(times, 4).warm_up
        (4, 1)
    """
    if num_micro_batches < 1:
        raise InvalidInput("num_micro_batches", num_micro_batches, "must be 1 or more", 1)
    needed = min(num_micro_batches, warm_up(times, extra_slack)[0])
    most = _most_in_flight(most_in_flight, len(times.forward_s), needed)
    took_s, orders, planned_send_s = inf, _NO_ORDERS, times.send_s
    for send_s, candidate in _candidates(times, num_micro_batches, extra_slack, most):
        candidate_s = makespan_s(candidate, times)
        if candidate_s < took_s * (1 - 1e-9):  # the paper's rule comes first, and stays unless another is shorter
            took_s, orders, planned_send_s = candidate_s, candidate, send_s
    return Plan(
        schedule=schedule_of(orders),
        warm_up=tuple(len(order) - len(order.lstrip("F")) for order in orders),
        makespan_s=took_s,
        planned_send_s=planned_send_s,
    )


def _candidates(
    times: PassTimes, num_micro_batches: int, extra_slack: int, most: Sequence[int]
) -> Iterator[tuple[tuple[float, ...], tuple[str, ...]]]:
    """Yield assumed delays, and the orders that are planned for them."""
    for send_s, counts in _starts(times, extra_slack, most):
        yield send_s, greedy_orders(replace(times, send_s=send_s), num_micro_batches, counts, most)
    for orders in _fixed_orders(len(most), num_micro_batches):
        if all(_kept(order) <= allowed for order, allowed in zip(orders, most, strict=True)):
            yield (0.0,) * len(times.send_s), orders


def _starts(
    times: PassTimes, extra_slack: int, most: Sequence[int]
) -> Iterator[tuple[tuple[float, ...], tuple[int, ...]]]:
    """Yield assumed delays, and numbers of warm-up forward passes that fit in memory."""
    even = within(even_warm_up(len(most), most[0]), most)
    for share, more in _TRIED:
        send_s = tuple(share * one for one in times.send_s)
        asked = warm_up(replace(times, send_s=send_s), more + (extra_slack if share else 0))
        allowed = within(asked, most)
        yield send_s, allowed
        if allowed not in (asked, even):
            yield send_s, even


@lru_cache(maxsize=64)
def _fixed_orders(num_stages: int, num_micro_batches: int) -> tuple[tuple[str, ...], ...]:
    """Return the orders of the zero-bubble schedules, which ignore delays."""
    schedules = zb_h2(num_stages, num_micro_batches), zb_h1(num_stages, num_micro_batches)
    return tuple(tuple("".join(action.kind for action in rank) for rank in one.ranks) for one in schedules)


def _kept(order: str) -> int:
    """Return the largest number of micro-batches that are between their F and their W at the same time."""
    kept = peak = 0
    for kind in order:
        kept += (kind == "F") - (kind == "W")
        peak = max(peak, kept)
    return peak


def _most_in_flight(most: Sequence[int] | None, num_stages: int, needed: int) -> list[int]:
    if most is None:
        return [needed] * num_stages
    if len(most) != num_stages:
        raise InvalidInput("most_in_flight", most, f"must have {num_stages} values, one for each stage")
    if min(most) < 1:
        rule = "must be 1 or more for every stage, because a stage holds at least one micro-batch"
        raise InvalidInput("most_in_flight", most, rule, tuple(max(1, one) for one in most))
    return [min(one, needed) for one in most]


_BUILDERS: dict[PipelineSchedule, Callable[[int, int, int], Schedule]] = {
    PipelineSchedule.GPIPE: lambda p, v, m: gpipe(p, m),
    PipelineSchedule.ONE_F_ONE_B: lambda p, v, m: one_f_one_b(p, m),
    PipelineSchedule.INTERLEAVED_1F1B: interleaved_1f1b,
    PipelineSchedule.ZERO_BUBBLE: lambda p, v, m: _in_rounds(zb_interleaved, p, v, m),
    PipelineSchedule.ZBV: lambda p, v, m: zbv(p, m),
    PipelineSchedule.DUALPIPEV: lambda p, v, m: dualpipev(p, m),
}


def _in_rounds(build: Callable[[int, int, int], Schedule], p: int, v: int, m: int) -> Schedule:
    """Return a schedule for whole rounds of the ranks, without the actions of micro-batches beyond ``m``."""
    whole = build(p, v, m if v == 1 else -(-m // p) * p)
    ranks = (tuple(action for action in actions if action.micro_batch < m) for actions in whole.ranks)
    return whole if v == 1 or m % p == 0 else Schedule(ranks=tuple(ranks))


def named_schedule(name: PipelineSchedule, num_ranks: int, stages_per_rank: int, num_micro_batches: int) -> Schedule:
    """Return the order of actions on each pipeline rank for the schedule with this name.

    The adaptive schedule is planned for equal passes and links without delay; ``plan`` plans it for other times.

    Args:
        name: Name of the schedule.
        num_ranks: Pipeline ranks.
        stages_per_rank: Stages of each rank; 1 for the adaptive schedule.
        num_micro_batches: Micro-batches of a step.

    Raises:
        InvalidInput: The schedule does not run with this number of micro-batches.

    Example:
        >>> print(named_schedule(PipelineSchedule.GPIPE, 2, 1, 2))
        0F0 0F1 0B0 0B1
        1F0 1F1 1B0 1B1
    """
    if name == PipelineSchedule.ADAPTIVE:
        return plan(PassTimes.equal(num_ranks, 1.0, 1.0, 1.0), num_micro_batches).schedule
    return _BUILDERS[name](num_ranks, stages_per_rank, num_micro_batches)
