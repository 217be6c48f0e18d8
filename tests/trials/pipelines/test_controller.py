"""What a controller does with a pipeline whose other ranks are invented."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

import pytest

from autotuner.core.measurement import LinkEvent, LinkEventKind
from autotuner.schedules.planner import plan
from autotuner.schedules.schedule import Kind, Schedule
from autotuner.schedules.simulate import PassTimes
from tests.trials.pipelines.observed import PASS_S, Steps
from trials.pipelines.controller import Controller
from trials.pipelines.detector import Observation
from trials.pipelines.steering import Powers

NUM_MICRO_BATCHES = 12

PLAIN = plan(PassTimes.equal(4, PASS_S, PASS_S, PASS_S), NUM_MICRO_BATCHES).schedule

ADAPTIVE = Powers(may_replan=True, may_delegate=True, num_delegates=6)


@dataclass
class Pipeline:
    """Remembers what it was told."""

    schedule: Schedule = PLAIN
    is_delegated: bool = False
    dead_peers: frozenset[int] = frozenset()
    plans: list[Schedule] = field(default_factory=list)

    @property
    def transport(self) -> Pipeline:
        return self

    def replan(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.plans.append(schedule)

    def switch(self, *, delegated: bool) -> None:
        self.is_delegated = delegated


class Nothing:
    """A step of which this rank measured nothing: the group knows better."""

    def durations_s(self, kind: Kind) -> Sequence[float]:
        del kind
        return ()

    def shortest_transfer_s(self, peer: int) -> float | None:
        del peer
        return None


@dataclass
class Group:
    """Tells what all ranks of an invented step measured, whatever this one says."""

    steps: Steps

    def tell(self, numbers: Sequence[float]) -> Group:
        Observation.of_numbers(numbers)
        return self

    def wait(self) -> list[list[float]]:
        return [one.numbers() for one in self.steps.next()]


@dataclass
class Run:
    """A pipeline under a controller, step by step."""

    powers: Powers = ADAPTIVE
    pipeline: Pipeline = field(default_factory=Pipeline)
    steps: Steps = field(default_factory=Steps)
    known_s: Sequence[float] = ()
    number: int = 0

    def __post_init__(self) -> None:
        self.controller = Controller(
            self.pipeline, Group(self.steps), rank=0, powers=self.powers, known_s=self.known_s, clock=lambda: 0.0
        )

    def go(self, num_steps: int, *delays_s: float) -> list[LinkEvent]:
        """The events of the next steps, with these delays."""
        self.steps.delays_s = delays_s
        numbers = range(self.number, self.number + num_steps)
        self.number += num_steps
        return list(chain.from_iterable(self.controller.after_step(number, Nothing()) for number in numbers))


def kinds(events: Iterable[LinkEvent]) -> list[tuple[int, LinkEventKind]]:
    return [(event.step, event.kind) for event in events]


def test_a_slow_link_is_found_planned_around_once_and_the_plain_schedule_comes_back_with_it() -> None:
    run = Run()
    assert run.go(7, 0.0, 0.0, 0.0) == []
    slow, replanned = run.go(23, 0.0, 0.0, 0.06)
    assert (slow.step, slow.kind, slow.stages) == (8, LinkEventKind.LINK_SLOW, (2, 3))
    assert (replanned.step, replanned.kind, replanned.delegated) == (8, LinkEventKind.REPLANNED, True)
    assert replanned.warm_up == (10, 8, 6, 1)  # two more than the rank behind, and three that the link is late
    recovered, back = run.go(20, 0.0, 0.0, 0.0)
    assert (recovered.step, recovered.kind, recovered.stages) == (31, LinkEventKind.LINK_RECOVERED, (2, 3))
    assert (back.kind, back.delegated, back.warm_up) == (LinkEventKind.REPLANNED, False, (7, 5, 3, 1))
    assert run.pipeline.schedule is PLAIN


def test_nothing_is_planned_anew_while_as_many_forwards_fit_into_the_delay() -> None:
    run = Run()
    run.go(8, 0.0, 0.0, 0.0)
    run.go(8, 0.0, 0.0, 0.045)
    assert len(run.pipeline.plans) == 1
    for delay_s in (0.058, 0.043, 0.06, 0.05):
        run.go(6, 0.0, 0.0, delay_s)
    assert len(run.pipeline.plans) == 1
    run.go(6, 0.0, 0.0, 0.095)
    assert len(run.pipeline.plans) == 2


def test_a_second_slow_link_is_one_more_plan() -> None:
    run = Run()
    run.go(8, 0.0, 0.0, 0.0)
    run.go(8, 0.0, 0.0, 0.06)
    slow, replanned = run.go(8, 0.03, 0.0, 0.06)
    assert (slow.stages, replanned.warm_up) == ((0, 1), (12, 8, 6, 1))


def test_a_slow_rank_is_reported_and_nothing_else() -> None:
    run = Run()
    run.go(8, 0.0, 0.0, 0.0)
    run.steps.slower_s = (0.0, 0.0, PASS_S, 0.0)
    assert kinds(run.go(10, 0.0, 0.0, 0.0)) == [(11, LinkEventKind.RANK_SLOW)]
    assert run.pipeline.plans == []


def test_a_layout_with_a_fixed_schedule_only_hears_of_it() -> None:
    run = Run(Powers(may_replan=False))
    run.go(8, 0.0, 0.0, 0.0)
    assert kinds(run.go(8, 0.0, 0.0, 0.06)) == [(9, LinkEventKind.LINK_SLOW)]
    assert (run.pipeline.plans, run.pipeline.is_delegated) == ([], False)


def test_a_layout_that_sends_inline_is_planned_anew_and_goes_on_inline() -> None:
    run = Run(Powers(may_replan=True))
    run.go(8, 0.0, 0.0, 0.0)
    run.go(8, 0.0, 0.0, 0.06)
    assert not run.pipeline.is_delegated


def test_a_link_that_its_ranks_had_to_bridge_is_reported_dead() -> None:
    run = Run()
    run.go(8, 0.0, 0.0, 0.0)
    run.steps.dead = frozenset({2})
    assert kinds(run.go(5, 0.0, 0.0, 0.0)) == [(8, LinkEventKind.LINK_DEAD)]


def test_a_short_delay_that_delegates_would_not_win_back_is_borne_inline() -> None:
    run = Run()
    run.go(8, 0.0, 0.0, 0.0)
    run.go(8, 0.006, 0.0, 0.0)
    assert not run.pipeline.is_delegated


def test_delays_that_were_planned_for_from_the_start_are_no_reason_to_plan() -> None:
    run = Run(known_s=(0.0, 0.0, 0.06))
    assert run.go(20, 0.0, 0.0, 0.06) == []
    assert kinds(run.go(8, 0.0, 0.0, 0.0)) == [(21, LinkEventKind.LINK_RECOVERED)]


@pytest.mark.parametrize("late", [1, 2, 3])
def test_a_delay_of_whole_forwards_is_that_many_however_it_is_measured(late: int) -> None:
    run = Run(steps=Steps(noise_s=0.001))
    run.go(8, 0.0, 0.0, 0.0)
    (_, replanned, *more) = run.go(50, 0.0, 0.0, late * PASS_S)
    assert (replanned.warm_up[2], more) == (3 + late, [])
