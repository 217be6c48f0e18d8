"""Controller: ranks exchange measurements, find the same slow links, and follow the same plan from the next step on.

To the delays of links, it reacts by another schedule, by delegates that send, or not at all.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import pairwise
from statistics import fmean

import torch
import torch.distributed as dist

from autotuner.core.measurement import LinkEvent, LinkEventKind
from autotuner.schedules.planner import plan
from autotuner.schedules.schedule import Kind, Schedule
from autotuner.schedules.simulate import BLOCKING, PassTimes, delegated, simulate
from autotuner.training.pipelines.detector import Detector, RankObservation, RecentPasses
from autotuner.training.pipelines.pipeline import ResilientPipeline

_OF_LINKS = (LinkEventKind.LINK_SLOW, LinkEventKind.LINK_RECOVERED, LinkEventKind.LINK_DEAD)

_NOTICED = 0.5
"""Share of a forward pass from which the time of a transfer counts as a delay in plans. Nominal links take less."""


_UNSURE = 0.15
"""Uncertainty of a measured delay, as a share of a forward pass. The plan stays if a delay changes by less."""

_DELEGATION_COST = 0.1
"""Smallest share of a step that delegates must save before they are used. They cost 3 to 21 % of a nominal step
(measured in arXiv 2504.19232 on four models, 2.6, 10.5, 18.4 and 21.1 %)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Powers:
    """The changes that a controller may make to a pipeline when links are slow, for example to its schedule."""

    may_replan: bool
    """True if the controller may change the schedule."""
    may_delegate: bool = False
    """True if the controller may let delegates (processes that send for a rank) send when this saves time. For a dead
    link, delegates send in any case."""
    is_always_delegated: bool = False
    """True if delegates always send, whatever the state of the links."""
    num_delegates: int = 1
    """Number of delegates per neighbour and direction."""
    extra_slack: int = 0
    """Number of forward passes to run ahead for each slow link, in addition to those that the delay of the link
    requires."""
    most_in_flight: tuple[int, ...] | None = None
    """Number of micro-batches that each stage has memory for; None: memory for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A decision for the next steps: the schedule, and whether delegates send the messages of the ranks.

    A delegate is a process that sends for a rank.
    """

    schedule: Schedule
    is_delegated: bool

    @property
    def warm_up(self) -> tuple[int, ...]:
        """The number of forward passes that each pipeline rank runs before its first backward pass."""
        return tuple(
            next((at for at, action in enumerate(actions) if action.kind is not Kind.FORWARD), len(actions))
            for actions in self.schedule.ranks
        )


def forwards_late(delays_s: Sequence[float], forward_s: Sequence[float], before: Sequence[int]) -> tuple[int, ...]:
    """Return the delay of each link as a number of forward passes, rounded up: ceil(c / t_F).

    ``c`` is the delay, and ``t_F`` the time of a forward pass of the stage before the link. The schedule is planned for
    these numbers.

    Args:
        delays_s: Delay of each link.
        forward_s: Time of a forward pass of the stage before each link.
        before: The previous result. If a delay is near a whole number of passes, its previous number stays.

    Example:
        >>> forwards_late([0.0, 2.5], forward_s=[1.0, 1.0], before=[0, 0])
        (0, 3)
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
    """Return the schedule, and the decision about delegates, that give the shortest predicted step.

    Only permitted changes are considered. A delegate is a process that sends for a rank.

    Args:
        times: Times of passes, and measured delays of links.
        late: Result of ``forwards_late``.
        plain: Schedule for nominal links.
        now: Schedule that runs at present.
        powers: Permitted changes.
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
    """Return the planned schedule for the delays that count.

    A delay near a whole number of passes counts as that number.
    """
    whole_s = (count * forward_s * (1 - 1e-9) for count, forward_s in zip(late, times.forward_s, strict=False))
    counted = replace(times, send_s=tuple(map(min, times.send_s, whole_s)))
    slack, most = powers.extra_slack, powers.most_in_flight
    return plan(counted, num_micro_batches, extra_slack=slack, most_in_flight=most).schedule


def _pays(planned: Schedule, inline: Schedule, times: PassTimes, powers: Powers) -> bool:
    """Return True if sends by delegates save more than the delegates cost."""
    delegated_s = simulate(planned, times, delegated(powers.num_delegates)).makespan_s
    return delegated_s < _blocked_s(inline, times) * (1 - _DELEGATION_COST)


def _blocked_s(schedule: Schedule, times: PassTimes) -> float:
    return simulate(schedule, times, BLOCKING).makespan_s


# ---------------------------------------------------------------- what ranks tell each other
class ControlGroup:
    """A gloo process group in which all ranks exchange the times that they measured, to find slow links.

    The group has its own connections over the hosts' network, and does not use the pipeline's links. Every rank of the
    job must create its group at the same time.
    """

    def __init__(self, *, timeout_s: float) -> None:
        self._group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s), group_desc="control")

    def gather(self, observation: RankObservation) -> list[RankObservation]:
        """Return the measurements of all ranks in a step, in the order of the ranks, including this rank's own."""
        own = torch.tensor(observation.numbers(), dtype=torch.float64)
        gathered = [torch.empty_like(own) for _ in range(dist.get_world_size(self._group))]
        dist.all_gather(gathered, own, group=self._group)
        return [RankObservation.of_numbers(one.tolist()) for one in gathered]


class Controller:
    """Watches a pipeline's links and ranks, and changes the schedule or the sending process if links are slow.

    Every rank of the job has its own controller and must call ``after_step`` after the same steps. All controllers
    compute with the same numbers. Therefore they make the same decisions without a vote.

    Args:
        pipeline: Pipeline of this rank, which runs its plain schedule.
        group: Group in which all ranks exchange observations.
        powers: Permitted changes.
        pipeline_index: Number of this pipeline among the pipelines with the same stages.
        num_pipelines: Number of pipelines with the same stages.
        plain: Schedule for nominal links; None: the schedule that runs now.
        known_s: Delays of links that exist from the first step on, in the order of the stages before the links.
        clock: Function that returns seconds.
    """

    def __init__(
        self,
        pipeline: ResilientPipeline,
        group: ControlGroup,
        *,
        powers: Powers,
        pipeline_index: int = 0,
        num_pipelines: int = 1,
        plain: Schedule | None = None,
        known_s: Sequence[float] = (),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._pipeline, self._group = pipeline, group
        self._powers, self._pipeline_index, self._clock = powers, pipeline_index, clock
        self._plain = plain or pipeline.schedule
        self._num_ranks = len(pipeline.schedule.ranks)
        self._detector = Detector(self._num_ranks, num_pipelines=num_pipelines, known_s=known_s)
        self._recent = RecentPasses()
        self._late: tuple[int, ...] | None = None

    def after_step(self, step: int) -> tuple[LinkEvent, ...]:
        """Exchange observations with all ranks, and return the events of the last step.

        An event says that a link or a rank became slow or recovered, or that the schedule changes from the next step
        on. Every rank must call this method, and gets the same events.

        Args:
            step: Number of the last step, for its events.
        """
        own = RankObservation.of(self._pipeline, self._recent, pipeline_index=self._pipeline_index)
        observations = self._group.gather(own)
        if self._late is None:
            self._late = self._forwards_late(observations, (0,) * (self._num_ranks - 1))
        events = self._detector.look(step, observations)
        if any(event.kind in _OF_LINKS for event in events):
            events += self._steer(step, observations, self._late)
        return tuple(events)

    def _forwards_late(self, observations: Sequence[RankObservation], before: Sequence[int]) -> tuple[int, ...]:
        times = pass_times(observations, self._detector.delays_s)
        return forwards_late(times.send_s, times.forward_s[:-1], before)

    def _steer(self, step: int, observations: Sequence[RankObservation], before: tuple[int, ...]) -> list[LinkEvent]:
        """Plan again for the present links.

        Return no event if the running plan stays.
        """
        began_s = self._clock()
        self._late = self._forwards_late(observations, before)
        if self._late == before:
            return []
        pipeline, times = self._pipeline, pass_times(observations, self._detector.delays_s)
        now = Choice(schedule=pipeline.schedule, is_delegated=pipeline.transport.is_delegated)
        chosen = choose(times, self._late, self._plain, now.schedule, self._powers)
        if chosen == now:
            return []
        if chosen.schedule != now.schedule:
            pipeline.replan(chosen.schedule)
        if chosen.is_delegated != now.is_delegated:
            pipeline.switch(delegated=chosen.is_delegated)
        event = LinkEvent(
            step=step,
            kind=LinkEventKind.REPLANNED,
            warm_up=chosen.warm_up,
            delegated=chosen.is_delegated,
            cost_s=self._clock() - began_s,
        )
        return [event]


def pass_times(observations: Sequence[RankObservation], delays_s: Sequence[float]) -> PassTimes:
    """Return the times that are needed to plan a schedule: pass times of each stage, and delays of links.

    The times of a stage are averages over the ranks that hold it.

    Args:
        observations: Measurements of all ranks in a step.
        delays_s: One-way delay of each link, in the order of the stages before the links.
    """
    stages = _by_stage(observations)
    return PassTimes(
        forward_s=tuple(fmean(one.forward_s for one in ranks) for ranks in stages),
        input_s=tuple(fmean(one.input_s for one in ranks) for ranks in stages),
        weight_s=tuple(fmean(one.weight_s for one in ranks) for ranks in stages),
        send_s=tuple(delays_s),
    )


def noticed_delays_s(observations: Sequence[RankObservation]) -> tuple[float, ...]:
    """Return the delay of each link: the longest transfer that the ranks at its two ends measured.

    A transfer that takes less than half a forward pass counts as 0.
    """

    def noticed_s(transfer_s: float | None, forward_s: float) -> float:
        return transfer_s if transfer_s is not None and transfer_s > _NOTICED * forward_s else 0.0

    return tuple(
        max(
            *(noticed_s(one.from_next_s, one.forward_s) for one in before),
            *(noticed_s(one.from_previous_s, one.forward_s) for one in after),
        )
        for before, after in pairwise(_by_stage(observations))
    )


def _by_stage(observations: Sequence[RankObservation]) -> list[list[RankObservation]]:
    by_stage: dict[int, list[RankObservation]] = {}
    for one in observations:
        by_stage.setdefault(one.stage, []).append(one)
    return [by_stage[stage] for stage in sorted(by_stage)]
