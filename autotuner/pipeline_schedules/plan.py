"""Plans of a pipeline around the links it has: the best order that a few greedy ones yield on the real delays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from autotuner.errors import InvalidInput
from autotuner.pipeline_schedules.actions import Schedule
from autotuner.pipeline_schedules.adaptive import even_warm_up, warm_up, within
from autotuner.pipeline_schedules.greedy import greedy_orders, makespan_s, schedule_of
from autotuner.pipeline_schedules.simulate import PassTimes

__all__ = ["Plan", "plan"]

_TRIED = ((1.0, 0), (0.0, 0), (0.5, 0), (1.0, 1), (0.0, 1))
"""What an order is planned for: a share of the real delays, and more slack per link than was asked for.

All of the delays is the paper's rule, none the fixed zero-bubble plan. The others make plans of unequal stages shorter
by up to 2 % (``python -m bench.plan_gap``).
"""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What every stage of a pipeline runs, and how long a step of it should take.

    Attributes:
        schedule: Actions by rank, one stage each.
        warm_up: Forwards before the first backward, by stage.
        makespan_s: From the first start to the last end, when sends run beside compute.
        planned_send_s: Delays that the order was made for, by link; less than the real ones where that is better.
    """

    schedule: Schedule
    warm_up: tuple[int, ...]
    makespan_s: float
    planned_send_s: tuple[float, ...]


def plan(
    times: PassTimes, num_micro_batches: int, *, extra_slack: int = 0, most_in_flight: Sequence[int] | None = None
) -> Plan:
    """The best order found for stages and links of these times; never worse than the one that knows of no delays.

    Args:
        times: Passes of one stage per rank, and the delays of the links between them.
        num_micro_batches: 1 or more.
        extra_slack: Micro-batches per link that the stage before runs further ahead than the delay asks for.
        most_in_flight: Micro-batches that each stage has memory for, from F until W has released them, as
            ``Schedule.peak_in_flight`` counts. Where that is less than the delays ask for, slack is what memory allows,
            as planned or spread evenly, and weight gradients are computed earlier.

    Raises:
        InvalidInput: Fewer than one micro-batch in flight, or a number of values that is not that of the stages.

    Source: greedy planner of arXiv 2504.19232, and its choice among simulated delays.
    """
    if num_micro_batches < 1:
        raise InvalidInput("num_micro_batches", num_micro_batches, "must be 1 or more", 1)
    most = _most_in_flight(most_in_flight, len(times.forward_s), num_micro_batches)
    best: tuple[float, tuple[str, ...], _Start] | None = None
    for start in _starts(times, extra_slack, most):
        planned = replace(times, send_s=start.send_s)
        orders = greedy_orders(planned, num_micro_batches, start.warm_up, most)
        took_s = makespan_s(orders, times)
        if best is None or took_s < best[0] * (1 - 1e-9):
            best = took_s, orders, start
    assert best is not None, "something is tried"
    took_s, orders, start = best
    counts = tuple(min(ahead, num_micro_batches) for ahead in start.warm_up)
    return Plan(schedule=schedule_of(orders), warm_up=counts, makespan_s=took_s, planned_send_s=start.send_s)


@dataclass(frozen=True, slots=True)
class _Start:
    """What an order is made from."""

    send_s: tuple[float, ...]
    warm_up: tuple[int, ...]


def _starts(times: PassTimes, extra_slack: int, most: Sequence[int]) -> Iterator[_Start]:
    """What to try, the paper's rule first."""
    even = within(even_warm_up(len(most), most[0]), most)
    for share, more in _TRIED:
        send_s = tuple(share * one for one in times.send_s)
        asked = warm_up(replace(times, send_s=send_s), more + (extra_slack if share else 0))
        allowed = within(asked, most)
        yield _Start(send_s, allowed)
        if allowed not in (asked, even):
            yield _Start(send_s, even)


def _most_in_flight(most: Sequence[int] | None, num_stages: int, num_micro_batches: int) -> list[int]:
    if most is None:
        return [num_micro_batches] * num_stages
    if len(most) != num_stages:
        raise InvalidInput("most_in_flight", most, f"must have {num_stages} values, one per stage")
    if min(most) < 1:
        rule = "every stage must be able to keep one micro-batch"
        raise InvalidInput("most_in_flight", most, rule, tuple(max(1, one) for one in most))
    return [min(one, num_micro_batches) for one in most]
