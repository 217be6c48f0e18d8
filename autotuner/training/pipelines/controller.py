"""Controller: all ranks hear what each measured, find the same, and follow one plan from the next step on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from statistics import fmean, median
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from autotuner.core.measurement import LinkEvent, LinkEventKind
from autotuner.schedules.schedule import Kind, Schedule
from autotuner.schedules.simulate import PassTimes
from autotuner.training.pipelines.detector import Detector, Finding, Observation, RecentPasses
from autotuner.training.pipelines.pipeline import PlannedPipeline
from autotuner.training.pipelines.steering import Choice, Powers, choose, forwards_late

# ControlGroup: tells every rank a few numbers of every other after each step, whatever becomes of the links.


class Told(Protocol):
    """What all ranks tell, while it is on its way."""

    def wait(self) -> list[list[float]]:
        """The numbers of every rank."""


class Telling(Protocol):
    """A way to tell all ranks."""

    def tell(self, numbers: Sequence[float]) -> Told:
        """Start to tell as many numbers as every other rank does."""


class ControlGroup:
    """A gloo group of all ranks with connections of its own, over the hosts' network: no link of a pipeline is theirs.

    Every rank of the job must make one at the same time.
    """

    def __init__(self, *, timeout_s: float) -> None:
        self._group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s), group_desc="control")

    def tell(self, numbers: Sequence[float]) -> Told:
        """Start to tell all ranks; they may compute until somebody waits."""
        own = torch.tensor(numbers, dtype=torch.float64)
        told = [torch.empty_like(own) for _ in range(dist.get_world_size(self._group))]
        work = dist.all_gather(told, own, group=self._group, async_op=True)
        assert work is not None  # this rank is in the group
        return _Told(told, work)


class _Told:
    def __init__(self, told: list[Tensor], work: dist.Work) -> None:
        self._told, self._work = told, work

    def wait(self) -> list[list[float]]:
        self._work.wait()
        return [one.tolist() for one in self._told]


# Controller: after each step all ranks hear what each measured, find the same, and follow one plan from the next.

_OF_LINKS = (LinkEventKind.LINK_SLOW, LinkEventKind.LINK_RECOVERED, LinkEventKind.LINK_DEAD)


class Measured(Protocol):
    """What a rank's pipeline measured in a step."""

    def durations_s(self, kind: Kind) -> Sequence[float]:
        """Of every pass of a kind."""

    def shortest_transfer_s(self, peer: int) -> float | None:
        """From send to receive, of what another pipeline rank sent; None where nothing was seen to come."""


class Senders(Protocol):
    """Who sends for a rank."""

    @property
    def is_delegated(self) -> bool:
        """Whether others send for this rank."""

    @property
    def dead_peers(self) -> frozenset[int]:
        """Pipeline ranks to which this one cannot send by itself any more."""


class Steered(Protocol):
    """A pipeline that can be told to go on otherwise, between two steps."""

    schedule: Schedule

    @property
    def transport(self) -> Senders:
        """How its tensors get to other ranks."""

    def replan(self, schedule: Schedule) -> None:
        """Run this schedule from the next step on."""

    def switch(self, *, delegated: bool) -> None:
        """Have delegates send from the next step on, or this rank itself again."""


class Controller:
    """Watches a pipeline's links and ranks, and steers it around what became slow.

    Every rank of the job has one, and calls ``after_step`` behind the same steps. Each tells the others what it
    measured, and as all then compute the same of the same numbers, all follow the same plan without a vote.

    Args:
        pipeline: Of this rank; runs its plain schedule.
        group: How all ranks are told.
        rank: Of the pipeline.
        lane: Which of the pipelines, where there are several ranks per stage.
        num_lanes: How many there are.
        powers: What may be done.
        plain: The schedule while nothing is wrong; None: the one that runs.
        known_s: Delays that links have from the first step on, by the stage before each.
        clock: Seconds.
    """

    def __init__(
        self,
        pipeline: Steered,
        group: Telling,
        *,
        rank: int,
        powers: Powers,
        lane: int = 0,
        num_lanes: int = 1,
        plain: Schedule | None = None,
        known_s: Sequence[float] = (),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._pipeline, self._group = pipeline, group
        self._rank, self._lane = rank, lane
        self._powers, self._clock = powers, clock
        self._plain = plain or pipeline.schedule
        self._num_ranks = len(pipeline.schedule.ranks)
        self._detector = Detector(self._num_ranks, num_lanes=num_lanes, known_s=known_s)
        self._recent = RecentPasses()
        self._late: tuple[int, ...] | None = None

    def after_step(self, step: int, measured: Measured) -> tuple[LinkEvent, ...]:
        """What was found with a step, and what is done about it from the next one on; the same on every rank.

        Args:
            step: As the events shall count it.
            measured: In that step, by this rank.
        """
        told = [Observation.of_numbers(row) for row in self._group.tell(self._observed(measured).numbers()).wait()]
        if self._late is None:
            self._late = self._forwards_late(told, (0,) * (self._num_ranks - 1))
        findings = self._detector.look(told)
        events = [_event(step, finding) for finding in findings]
        if any(finding.kind in _OF_LINKS for finding in findings):
            events += self._steer(step, told, self._late)
        return tuple(events)

    def _observed(self, measured: Measured) -> Observation:
        durations = {kind: measured.durations_s(kind) for kind in Kind}
        self._recent.add(durations)
        dead = self._pipeline.transport.dead_peers
        return Observation(
            stage=self._rank,
            lane=self._lane,
            forward_s=self._recent.median_s(Kind.FORWARD),
            input_s=self._recent.median_s(Kind.INPUT, Kind.BACKWARD),
            weight_s=self._recent.median_s(Kind.WEIGHT),
            micro_batch_s=sum(median(ran) for ran in durations.values() if ran),
            from_previous_s=measured.shortest_transfer_s(self._rank - 1),
            from_next_s=measured.shortest_transfer_s(self._rank + 1),
            lost_previous=self._rank - 1 in dead,
            lost_next=self._rank + 1 in dead,
        )

    def _forwards_late(self, told: Sequence[Observation], before: Sequence[int]) -> tuple[int, ...]:
        times = _pass_times(told, self._detector.delays_s)
        return forwards_late(times.send_s, times.forward_s[:-1], before)

    def _steer(self, step: int, told: Sequence[Observation], before: tuple[int, ...]) -> list[LinkEvent]:
        """The re-plan that follows from the links as they are now; none where it would be what runs."""
        began_s = self._clock()
        self._late = self._forwards_late(told, before)
        now = Choice(schedule=self._pipeline.schedule, is_delegated=self._pipeline.transport.is_delegated)
        if self._late == before:
            return []
        times = _pass_times(told, self._detector.delays_s)
        chosen = choose(times, self._late, self._plain, now.schedule, self._powers)
        if chosen == now:
            return []
        self._follow(chosen, now)
        event = LinkEvent(
            step=step,
            kind=LinkEventKind.REPLANNED,
            warm_up=chosen.warm_up,
            delegated=chosen.is_delegated,
            cost_s=self._clock() - began_s,
        )
        return [event]

    def _follow(self, chosen: Choice, now: Choice) -> None:
        if chosen.schedule != now.schedule:
            self._pipeline.replan(chosen.schedule)
        if chosen.is_delegated != now.is_delegated:
            self._pipeline.switch(delegated=chosen.is_delegated)


def _event(step: int, finding: Finding) -> LinkEvent:
    return LinkEvent(step=step, kind=finding.kind, stages=finding.stages, delay_s=finding.delay_s)


def _pass_times(told: Sequence[Observation], delays_s: Sequence[float]) -> PassTimes:
    """Of each stage the mean over its ranks, of links what was found."""
    by_stage: dict[int, list[Observation]] = {}
    for one in told:
        by_stage.setdefault(one.stage, []).append(one)
    stages = [by_stage[stage] for stage in sorted(by_stage)]
    return PassTimes(
        forward_s=tuple(fmean(one.forward_s for one in ranks) for ranks in stages),
        input_s=tuple(fmean(one.input_s for one in ranks) for ranks in stages),
        weight_s=tuple(fmean(one.weight_s for one in ranks) for ranks in stages),
        send_s=tuple(delays_s),
    )


# What the ranks of a pipeline agree on before they plan: times of stages and links, each as its ranks saw them.

_NOTICED = 0.5
"""Share of a forward pass from which a transfer's time is a delay to plan with; less is what every link takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes:
    """What one rank tells the others of its stage."""

    rank: int
    """Of the pipeline."""
    forward_s: float
    """Median of the step, as the next two; a whole backward counts as its two halves."""
    input_s: float
    weight_s: float
    from_previous_s: float = 0.0
    """One-way delay of the link to the stage before, as far as it is one to plan with."""
    from_next_s: float = 0.0
    """Of the link to the stage behind."""
    most_in_flight: int
    """Micro-batches that the rank has memory for."""

    @classmethod
    def of(cls, pipeline: PlannedPipeline, *, most_in_flight: int) -> StageTimes:
        """Of the step that a pipeline of one stage per rank ran last."""
        timings, rank = pipeline.timings, pipeline.rank
        whole_s = timings.median_s(Kind.BACKWARD)
        forward_s = timings.median_s(Kind.FORWARD) or 0.0

        def delay_s(peer: int) -> float:
            known_s, seen_s = pipeline.conditions.between(rank, peer).delay_s, timings.shortest_transfer_s(peer) or 0.0
            return max(known_s, seen_s if seen_s > _NOTICED * forward_s else 0.0)

        return cls(
            rank=rank,
            forward_s=forward_s,
            input_s=timings.median_s(Kind.INPUT) or (whole_s or 0.0) / 2,
            weight_s=timings.median_s(Kind.WEIGHT) or (whole_s or 0.0) / 2,
            from_previous_s=delay_s(rank - 1),
            from_next_s=delay_s(rank + 1),
            most_in_flight=most_in_flight,
        )


def agreed_times(told: Sequence[StageTimes]) -> tuple[PassTimes, tuple[int, ...]]:
    """Times of stages and links, and what each stage has memory for, from what all ranks of all pipelines told.

    A stage's time is the mean of its ranks', a link's the longest that any rank saw, in either direction.
    """
    num_stages = 1 + max(one.rank for one in told)
    stages = [[one for one in told if one.rank == stage] for stage in range(num_stages)]
    times = PassTimes(
        forward_s=tuple(fmean(one.forward_s for one in stage) for stage in stages),
        input_s=tuple(fmean(one.input_s for one in stage) for stage in stages),
        weight_s=tuple(fmean(one.weight_s for one in stage) for stage in stages),
        send_s=tuple(
            max(*(one.from_next_s for one in before), *(one.from_previous_s for one in behind))
            for before, behind in pairwise(stages)
        ),
    )
    return times, tuple(min(one.most_in_flight for one in stage) for stage in stages)
