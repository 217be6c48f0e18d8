"""Plans of a pipeline around the links it has: the best of a few orders, timed on the real delays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf

from autotuner.core.errors import InvalidInput
from autotuner.schedules.actions import Schedule, zb_h1, zb_h2
from autotuner.schedules.adaptive import even_warm_up, warm_up, within
from autotuner.schedules.greedy import greedy_orders, makespan_s, schedule_of
from autotuner.schedules.simulate import PassTimes

_TRIED = ((1.0, 0), (0.0, 0), (0.5, 0), (1.0, 1), (0.0, 1))
"""What an order is planned for: a share of the real delays, and more slack per link than was asked for.

All of the delays is the paper's rule. The others make plans of unequal stages shorter by up to 2 % (``python -m
bench.plan_gap``).
"""

_NO_ORDERS: tuple[str, ...] = ()


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
    """The best order found for stages and links of these times.

    It is never worse than the zero-bubble schedules that know of no delay (ZB-H1, ZB-H2) where these fit into memory.
    No stage keeps more micro-batches than the first needs to run ahead of all delays (``warm_up(times)[0]``): keeping
    more makes steps shorter by a few tenths of a percent.

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
    """Delays, and the orders made for them."""
    for send_s, counts in _starts(times, extra_slack, most):
        yield send_s, greedy_orders(replace(times, send_s=send_s), num_micro_batches, counts, most)
    for orders in _fixed_orders(len(most), num_micro_batches):
        if all(_kept(order) <= allowed for order, allowed in zip(orders, most, strict=True)):
            yield (0.0,) * len(times.send_s), orders


def _starts(
    times: PassTimes, extra_slack: int, most: Sequence[int]
) -> Iterator[tuple[tuple[float, ...], tuple[int, ...]]]:
    """Delays to plan for, and warm-ups within memory."""
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
    """The orders of the zero-bubble schedules that know of no delay."""
    schedules = zb_h2(num_stages, num_micro_batches), zb_h1(num_stages, num_micro_batches)
    return tuple(tuple("".join(action.kind for action in rank) for rank in one.ranks) for one in schedules)


def _kept(order: str) -> int:
    """Most micro-batches between F and W."""
    kept = peak = 0
    for kind in order:
        kept += (kind == "F") - (kind == "W")
        peak = max(peak, kept)
    return peak


def _most_in_flight(most: Sequence[int] | None, num_stages: int, needed: int) -> list[int]:
    if most is None:
        return [needed] * num_stages
    if len(most) != num_stages:
        raise InvalidInput("most_in_flight", most, f"must have {num_stages} values, one per stage")
    if min(most) < 1:
        rule = "every stage must be able to keep one micro-batch"
        raise InvalidInput("most_in_flight", most, rule, tuple(max(1, one) for one in most))
    return [min(one, needed) for one in most]
