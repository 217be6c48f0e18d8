"""What a pipeline does about the delays of its links: another plan, other senders, or nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autotuner.schedules.planner import plan
from autotuner.schedules.schedule import Kind, Schedule
from autotuner.schedules.simulate import BLOCKING, PassTimes, delegated, simulate

_UNSURE = 0.15
"""Share of a forward pass by which a measured delay may be off; within it a plan stays."""

_DELEGATION_COST = 0.1
"""Share of a step that delegates have to win before they send: they cost 3 to 21 % of a healthy one (measured in
arXiv 2504.19232 on four models, 2.6, 10.5, 18.4 and 21.1 %)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Powers:
    """What a controller may do to a pipeline."""

    may_replan: bool
    """Its schedule may change."""
    may_delegate: bool = False
    """Delegates may send where that pays; they bridge a dead link in any case."""
    is_always_delegated: bool = False
    """Delegates send whatever the links do."""
    num_delegates: int = 1
    """Per neighbour and direction."""
    extra_slack: int = 0
    """Forwards per slow link that are run ahead, beyond those that its delay asks for."""
    most_in_flight: tuple[int, ...] | None = None
    """Micro-batches that each stage has memory for; None: for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How the next steps run."""

    schedule: Schedule
    is_delegated: bool

    @property
    def warm_up(self) -> tuple[int, ...]:
        """Forwards per pipeline rank before its first backward."""
        return tuple(
            next((at for at, action in enumerate(actions) if action.kind is not Kind.FORWARD), len(actions))
            for actions in self.schedule.ranks
        )


def forwards_late(delays_s: Sequence[float], forward_s: Sequence[float], before: Sequence[int]) -> tuple[int, ...]:
    """Return how many forward passes fit into each link's delay, rounded up: ceil(c / t_F), by which a plan is made.

    Args:
        delays_s: By link.
        forward_s: Of the stage before each link.
        before: The last result; a delay near a whole number of passes keeps it.
    """
    return tuple(_forwards_late(*one) for one in zip(delays_s, forward_s, before, strict=True))


def _forwards_late(delay_s: float, forward_s: float, before: int) -> int:
    if delay_s <= 0 or forward_s <= 0:
        return 0
    ratio = delay_s / forward_s
    if before - 1 - _UNSURE < ratio <= before + _UNSURE:
        return before
    return max(1, math.ceil(ratio - _UNSURE))


def choose(times: PassTimes, late: Sequence[int], plain: Schedule, now: Schedule, powers: Powers) -> Choice:
    """Return what is predicted to be fastest with the powers there are.

    Args:
        times: Times of passes, and delays of links as they were found.
        late: From ``forwards_late``.
        plain: The schedule while nothing is wrong.
        now: The one that runs.
        powers: What may be done.
    """
    must_delegate = powers.is_always_delegated
    if not any(late):
        return Choice(schedule=plain if powers.may_replan else now, is_delegated=must_delegate)
    if not powers.may_replan:
        return Choice(
            schedule=now, is_delegated=must_delegate or (powers.may_delegate and _pays(now, now, times, powers))
        )
    planned = _planned(times, late, plain.num_micro_batches, powers)
    if must_delegate or (powers.may_delegate and _pays(planned, plain, times, powers)):
        return Choice(schedule=planned, is_delegated=True)
    inline = min((plain, planned), key=lambda one: _blocked_s(one, times))
    return Choice(schedule=inline, is_delegated=False)


def _planned(times: PassTimes, late: Sequence[int], num_micro_batches: int, powers: Powers) -> Schedule:
    """Plan for the delays as far as they count: one near a whole number of passes is that number."""
    whole_s = (count * forward_s * (1 - 1e-9) for count, forward_s in zip(late, times.forward_s, strict=False))
    counted = replace(times, send_s=tuple(map(min, times.send_s, whole_s)))
    slack, most = powers.extra_slack, powers.most_in_flight
    return plan(counted, num_micro_batches, extra_slack=slack, most_in_flight=most).schedule


def _pays(planned: Schedule, inline: Schedule, times: PassTimes, powers: Powers) -> bool:
    """Return whether sends beside the passes win more than delegates cost."""
    delegated_s = simulate(planned, times, delegated(powers.num_delegates)).makespan_s
    return delegated_s < _blocked_s(inline, times) * (1 - _DELEGATION_COST)


def _blocked_s(schedule: Schedule, times: PassTimes) -> float:
    return simulate(schedule, times, BLOCKING).makespan_s
