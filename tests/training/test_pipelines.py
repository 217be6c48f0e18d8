from __future__ import annotations

import json
import math
import random
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, cast

import pytest

from autotuner.core.measurement import LinkEvent, LinkEventKind
from autotuner.schedules.planner import plan
from autotuner.schedules.schedule import Schedule
from autotuner.schedules.simulate import PassTimes
from autotuner.training.pipelines.controller import Controller, Powers
from autotuner.training.pipelines.detector import (
    LEARNED_STEPS,
    ChangeTest,
    Detector,
    NominalLevel,
    RankObservation,
    threshold_for,
)
from autotuner.training.pipelines.pipeline import Timings
from tests.patience import PATIENCE_S
from tests.training.pipeline_ranks import SLOW_LINK_S, expected_step, heard
from tests.trials.fork_server import ForkServer

# ---------------------------------------------------------------- change
SHIFT_S = 0.010
THRESHOLD = threshold_for(1e-4, 26)


def noise(seed: int, scale_s: float) -> Iterator[float]:
    source = random.Random(seed)
    while True:
        yield 0.001 + abs(source.gauss(0.0, scale_s))


def learned(scale_s: float = 0.0005, *, level_s: float = 0.0, seed: int = 0) -> ChangeTest:
    test = ChangeTest(THRESHOLD, level_s=level_s)
    for value_s, _ in zip(noise(seed, scale_s), range(LEARNED_STEPS), strict=False):
        test.add(level_s + value_s, SHIFT_S)
    return test


def test_the_threshold_is_the_logarithm_of_the_steps_per_alarm_of_one_test() -> None:
    assert threshold_for(1e-4, 1) == pytest.approx(math.log(10_000))


def test_a_healthy_level_is_a_median_of_the_last_steps_so_that_it_follows_clocks_that_drift() -> None:
    healthy = NominalLevel()
    for step in range(100):
        healthy.add(step * 1e-5)
    assert healthy.level_s == pytest.approx(83.5e-5)


@pytest.mark.parametrize("delay_s", [SHIFT_S, 0.06, 30.0])
def test_a_delay_that_matters_is_found_in_the_second_step_and_so_is_its_end(delay_s: float) -> None:
    test = learned()
    assert [test.add(delay_s + 0.001, SHIFT_S) for _ in range(3)] == [False, True, False]
    assert test.level_s == pytest.approx(delay_s, abs=0.0005)  # the noise is half a millisecond
    assert [test.add(0.001, SHIFT_S) for _ in range(3)] == [False, True, False]
    assert test.level_s == 0.0


@pytest.mark.parametrize(
    ("values_s", "doubt_s"),
    [((60.0, 0.001) * 20, 0.0), ((0.001 + 0.45 * SHIFT_S,) * 200, 0.0), ((0.041,) * 20, 0.04)],
    ids=["single steps, however far they lie", "less than half of what matters", "what has another cause"],
)
def test_noise_is_never_found_to_be_a_change(values_s: Sequence[float], doubt_s: float) -> None:
    test = learned(scale_s=0.0001)
    assert not any(test.add(value_s, SHIFT_S, doubt_s=doubt_s) for value_s in values_s)


def test_a_level_that_rises_and_falls_in_steps_is_followed_without_flapping() -> None:
    test = learned()
    found = [test.add(0.001 + level_s, SHIFT_S) for level_s in [0.03] * 10 + [0.06] * 10 + [0.03] * 10 + [0.0] * 10]
    assert [step for step, is_changed in enumerate(found) if is_changed] == [1, 11, 21, 31]


def test_a_disturbed_step_before_a_delay_does_not_make_it_look_shorter() -> None:
    test = learned()
    assert [test.add(value_s, SHIFT_S) for value_s in (0.013, 0.046, 0.046)] == [False, False, True]
    assert test.level_s == pytest.approx(0.045, abs=0.0005)


def test_a_delay_that_was_known_at_the_start_ends_as_any_other() -> None:
    test = learned(level_s=0.05)
    assert not any(test.add(0.051, SHIFT_S) for _ in range(10))
    assert [test.add(0.001, SHIFT_S) for _ in range(2)] == [False, True]
    assert test.level_s == 0.0


@pytest.mark.parametrize(
    ("scale_s", "share"), [(0.0001, 0.0), (0.001, 0.0), (0.005, 0.0), (0.001, 0.01), (0.001, 0.03)]
)
def test_normal_noise_and_outliers_that_come_often_raise_no_alarm_in_ten_thousand_steps(
    scale_s: float, share: float
) -> None:
    source, steps = random.Random(3), noise(1, scale_s)
    test = ChangeTest(THRESHOLD)
    late = (next(steps) + (0.5 if source.random() < share else 0.0) for _ in range(10_000))
    assert not any(test.add(value_s, SHIFT_S) for value_s in late)


# ---------------------------------------------------------------- delegates
TASKS = "tests.training.pipeline_ranks"


def running(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("task", "word"), [pytest.param("fails", "this stage is broken", marks=pytest.mark.oracle), ("is_killed", "")]
)
def test_delegates_and_their_memory_are_gone_with_a_rank_that_fails_or_is_killed(
    task: str, word: str, fork_server: ForkServer, tmp_path: Path
) -> None:
    shared = set(Path("/dev/shm").iterdir())
    run = fork_server.have_done(f"{TASKS}:{task}", tmp_path, 3)
    assert 0 not in run.exit_codes
    assert word in run.logs[1]
    pids = [pid for rank in range(3) for pid in json.loads((tmp_path / f"{rank}.delegates").read_text())]
    assert len(pids) == 8  # two directions, of one neighbour at the ends and two between
    deadline = time.monotonic() + PATIENCE_S
    while any(map(running, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(map(running, pids))
    assert {path.name for path in set(Path("/dev/shm").iterdir()) - shared if "slots" in path.name} == set()


def test_a_rank_whose_delegate_is_killed_says_so(fork_server: ForkServer, tmp_path: Path) -> None:
    run = fork_server.have_done(f"{TASKS}:loses_a_delegate", tmp_path, 3)
    assert run.exit_codes == (0, 0, 0), run.logs
    words = heard(tmp_path, 3)
    assert words[1] == "a delegate (helper process) for sends to pipeline rank 0 failed: its process ended"
    assert "pipeline rank 1 failed" in words[0]


# ---------------------------------------------------------------- detector
PASS_S = 0.02


@dataclass
class Steps:
    """Invents what ranks measure: passes of 20 ms, messages that take half a millisecond, and what is done to them."""

    seed: int = 0
    num_stages: int = 4
    noise_s: float = 0.0005
    delays_s: Sequence[float] = (0.0, 0.0, 0.0)
    """By link."""
    is_one_way: bool = False
    """Gradients are not delayed."""
    slower_s: Sequence[float] = (0.0, 0.0, 0.0, 0.0)
    """By stage: added to each pass."""
    dead: frozenset[int] = frozenset()
    """Links that are."""

    def __post_init__(self) -> None:
        self._source = random.Random(self.seed)

    def next(self) -> list[RankObservation]:
        """A step of all ranks."""
        return [self._rank(stage) for stage in range(self.num_stages)]

    def _rank(self, stage: int) -> RankObservation:
        pass_s, is_last = PASS_S + self.slower_s[stage] + self._late_s(), stage == self.num_stages - 1
        return RankObservation(
            stage=stage,
            forward_s=PASS_S,
            input_s=PASS_S,
            weight_s=PASS_S,
            micro_batch_s=3 * pass_s,
            from_previous_s=self._way_s(stage - 1, is_forth=True) if stage else None,
            from_next_s=None if is_last else self._way_s(stage, is_forth=False),
            lost_previous=stage - 1 in self.dead,
            lost_next=stage in self.dead,
        )

    def _way_s(self, link: int, *, is_forth: bool) -> float:
        """A rank that is slow itself looks late at what comes."""
        delay_s = self.delays_s[link] if is_forth or not self.is_one_way else 0.0
        return 0.0005 + delay_s + self._late_s() + max(self.slower_s[link], self.slower_s[link + 1])

    def _late_s(self) -> float:
        return abs(self._source.gauss(0.0, self.noise_s))


HEALTHY_STEPS = 8


def watched(steps: Steps, detector: Detector, num_steps: int) -> list[tuple[int, LinkEvent]]:
    """What was found in which of the next steps."""
    return [(number, event) for number in range(num_steps) for event in detector.look(number, steps.next())]


def started() -> tuple[Steps, Detector]:
    steps, detector = Steps(), Detector(4)
    assert watched(steps, detector, HEALTHY_STEPS) == []
    return steps, detector


@pytest.mark.parametrize("delay_s", [PASS_S / 2, PASS_S, 0.06])
@pytest.mark.parametrize("link", [0, 1, 2])
def test_a_slow_link_is_named_in_the_second_step_with_its_delay(link: int, delay_s: float) -> None:
    steps, detector = started()
    steps.delays_s = tuple(delay_s * (one == link) for one in range(3))
    ((number, finding),) = watched(steps, detector, 20)
    assert (number, finding.kind, finding.stages) == (1, LinkEventKind.LINK_SLOW, (link, link + 1))
    assert finding.delay_s == pytest.approx(delay_s, abs=0.001)  # twice the noise
    assert detector.delays_s[link] == finding.delay_s


def test_a_link_that_recovers_is_healthy_again_in_the_second_step() -> None:
    steps, detector = started()
    steps.delays_s = (0.0, 0.0, 0.06)
    watched(steps, detector, 20)
    steps.delays_s = (0.0, 0.0, 0.0)
    ((number, finding),) = watched(steps, detector, 20)
    assert (number, finding.kind, finding.stages) == (1, LinkEventKind.LINK_RECOVERED, (2, 3))
    assert detector.delays_s == (0.0, 0.0, 0.0)


def test_a_link_that_is_slow_one_way_takes_more_steps_to_be_sure_of() -> None:
    steps, detector = started()
    steps.delays_s, steps.is_one_way = (0.0, 0.0, 0.06), True
    ((number, finding),) = watched(steps, detector, 20)
    assert (number, finding.kind, finding.stages) == (5, LinkEventKind.LINK_SLOW, (2, 3))


def test_a_slow_rank_is_no_slow_link_though_it_sees_late_what_comes() -> None:
    steps, detector = started()
    steps.slower_s = (0.0, PASS_S, 0.0, 0.0)
    ((number, finding),) = watched(steps, detector, 20)
    assert (number, finding.kind, finding.stages) == (3, LinkEventKind.RANK_SLOW, (1,))
    assert finding.delay_s == pytest.approx(3 * PASS_S, abs=0.003)  # three passes of each micro-batch, and their noise
    steps.slower_s = (0.0,) * 4
    ((_, finding),) = watched(steps, detector, 20)
    assert (finding.kind, finding.stages) == (LinkEventKind.RANK_RECOVERED, (1,))


def test_a_machine_that_slows_every_rank_is_neither() -> None:
    steps, detector = started()
    steps.slower_s = (PASS_S,) * 4
    assert watched(steps, detector, 20) == []


def test_a_slow_link_beside_a_slow_rank_elsewhere_is_found() -> None:
    steps, detector = started()
    steps.slower_s, steps.delays_s = (PASS_S, 0.0, 0.0, 0.0), (0.0, 0.0, 0.06)
    kinds = {finding.kind: finding.stages for _, finding in watched(steps, detector, 20)}
    assert kinds == {LinkEventKind.LINK_SLOW: (2, 3), LinkEventKind.RANK_SLOW: (0,)}


def test_a_link_that_ranks_lost_is_dead_at_once_and_recovers_when_they_have_it_again() -> None:
    steps, detector = started()
    steps.dead = frozenset({1})
    assert watched(steps, detector, 3) == [(0, LinkEvent(step=0, kind=LinkEventKind.LINK_DEAD, stages=(1, 2)))]
    steps.dead = frozenset()
    assert watched(steps, detector, 3) == [(0, LinkEvent(step=0, kind=LinkEventKind.LINK_RECOVERED, stages=(1, 2)))]


def test_delays_that_were_known_are_no_news() -> None:
    steps, detector = Steps(delays_s=(0.03, 0.0, 0.0)), Detector(4, known_s=(0.03, 0.0, 0.0))
    assert watched(steps, detector, 30) == []
    steps.delays_s = (0.0, 0.0, 0.0)
    ((_, finding),) = watched(steps, detector, 10)
    assert (finding.kind, detector.delays_s) == (LinkEventKind.LINK_RECOVERED, (0.0, 0.0, 0.0))


def test_a_message_without_a_seen_arrival_measures_nothing() -> None:
    steps, detector = started()
    unseen = [type(one)(stage=one.stage, forward_s=PASS_S, micro_batch_s=3 * PASS_S) for one in steps.next()]
    assert detector.look(0, unseen) == []


def test_thousands_of_healthy_steps_raise_no_alarm() -> None:
    assert watched(Steps(noise_s=0.003), Detector(4), 2_000) == []


# ---------------------------------------------------------------- live
@pytest.mark.oracle  # twenty seconds of stages that sleep
@pytest.mark.parametrize("story", ["two links", "dies"])
def test_ranks_find_faults_of_their_links_and_continue(story: str) -> None:
    """Each process is new: ranks are forks, and of one that has no threads."""
    command = [sys.executable, "-m", "tests.training.sleeping", story]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert ended.returncode == 0, ended.stderr


# ---------------------------------------------------------------- pipeline
SEEN_SLOW_S = 0.9 * SLOW_LINK_S
"""Clocks of two ranks are known to each other to within half a round trip, which a busy machine makes longer."""


def done(fork_server: ForkServer, folder: Path, task: str, num_ranks: int) -> list[Any]:
    run = fork_server.have_done(f"{TASKS}:{task}", folder, num_ranks)
    assert set(run.exit_codes) == {0}, run.logs
    return heard(folder, num_ranks)


@pytest.mark.parametrize(
    ("task", "num_ranks", "num_stages"),
    [("replans", 3, 3), ("turns_round", 2, 4), ("wraps", 2, 4), ("delegates", 3, 3), ("switches", 3, 3)],
)
def test_every_step_of_a_planned_pipeline_trains_as_one_process_does(
    task: str, num_ranks: int, num_stages: int, fork_server: ForkServer, tmp_path: Path
) -> None:
    loss, norms = expected_step(num_stages)
    for steps in zip(*done(fork_server, tmp_path, task, num_ranks), strict=True):
        assert sum(of_rank for of_rank, _ in steps) == pytest.approx(loss, rel=1e-5)
        found = {int(stage): norm for _, of_rank in steps for stage, norm in of_rank.items()}
        assert found == pytest.approx(norms, rel=1e-5)


def test_transfer_times_identify_the_slow_link(fork_server: ForkServer, tmp_path: Path) -> None:
    healthy, slow = zip(*done(fork_server, tmp_path, "delays", 3), strict=True)
    quick = [one or 0.0 for one in (healthy[0]["1"], healthy[1]["0"], slow[2]["1"])]  # None: it was there before
    assert max(quick) < SEEN_SLOW_S <= min(slow[0]["1"], slow[1]["0"])


def test_delegates_report_how_long_messages_took_and_end_with_their_pipeline(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    done(fork_server, tmp_path, "delegates", 3)
    more = [json.loads((tmp_path / f"{rank}.more").read_text()) for rank in range(3)]
    assert all(all(of_rank["gone"]) for of_rank in more)
    transfers = [of_rank["transfers"] for of_rank in more]
    assert transfers[2]["1"] < SEEN_SLOW_S <= min(transfers[0]["1"], transfers[1]["0"])


@pytest.mark.parametrize(
    ("task", "dead"),
    [
        ("breaks", [[[], [], []], [[], [2], [2]], [[], [1], [1]]]),
        ("dies", [[[]] * 4, [[], [2], [2], []], [[], [1], [1], []]]),
    ],
)
def test_delegates_bridge_a_link_that_dies_within_a_step_which_trains_all_the_same(
    task: str, dead: list[Any], fork_server: ForkServer, tmp_path: Path
) -> None:
    loss, norms = expected_step(3)
    for steps in zip(*done(fork_server, tmp_path, task, 3), strict=True):
        assert sum(of_rank for of_rank, _ in steps) == pytest.approx(loss, rel=1e-5)
        found = {int(stage): norm for _, of_rank in steps for stage, norm in of_rank.items()}
        assert found == pytest.approx(norms, rel=1e-5)
    assert [json.loads((tmp_path / f"{rank}.more").read_text()) for rank in range(3)] == dead


# ---------------------------------------------------------------- controller

NUM_MICRO_BATCHES = 12

PLAIN = plan(PassTimes.equal(4, PASS_S, PASS_S, PASS_S), NUM_MICRO_BATCHES).schedule

ADAPTIVE = Powers(may_replan=True, may_delegate=True, num_delegates=6)


@dataclass
class Pipeline:
    """Remembers what it was told, and measured nothing: the group knows better."""

    schedule: Schedule = PLAIN
    timings: Timings = field(default_factory=Timings)
    rank: int = 0
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


@dataclass
class Group:
    """Tells what all ranks of an invented step measured, whatever this one says."""

    steps: Steps

    def gather(self, own: RankObservation) -> list[RankObservation]:
        assert own.stage == 0
        return [RankObservation.of_numbers(one.numbers()) for one in self.steps.next()]


@dataclass
class Run:
    """A pipeline under a controller, step by step."""

    powers: Powers = ADAPTIVE
    pipeline: Pipeline = field(default_factory=Pipeline)
    steps: Steps = field(default_factory=Steps)
    known_s: Sequence[float] = ()
    number: int = 0

    def __post_init__(self) -> None:
        pipeline, group = cast("Any", self.pipeline), cast("Any", Group(self.steps))
        self.controller = Controller(pipeline, group, powers=self.powers, known_s=self.known_s, clock=lambda: 0.0)

    def go(self, num_steps: int, *delays_s: float) -> list[LinkEvent]:
        """The events of the next steps, with these delays."""
        self.steps.delays_s = delays_s
        numbers = range(self.number, self.number + num_steps)
        self.number += num_steps
        return list(chain.from_iterable(self.controller.after_step(number) for number in numbers))


def healthy(**changes: Any) -> Run:
    """A pipeline after eight steps of which none was late."""
    run = Run(**changes)
    assert run.go(8, 0.0, 0.0, 0.0) == []
    return run


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
    run = healthy()
    run.go(8, 0.0, 0.0, 0.045)
    assert len(run.pipeline.plans) == 1
    for delay_s in (0.058, 0.043, 0.06, 0.05):
        run.go(6, 0.0, 0.0, delay_s)
    assert len(run.pipeline.plans) == 1
    run.go(6, 0.0, 0.0, 0.095)
    assert len(run.pipeline.plans) == 2


def test_a_second_slow_link_is_one_more_plan() -> None:
    run = healthy()
    run.go(8, 0.0, 0.0, 0.06)
    slow, replanned = run.go(8, 0.03, 0.0, 0.06)
    assert (slow.stages, replanned.warm_up) == ((0, 1), (12, 8, 6, 1))


def test_a_slow_rank_is_reported_and_nothing_else() -> None:
    run = healthy()
    run.steps.slower_s = (0.0, 0.0, PASS_S, 0.0)
    assert kinds(run.go(10, 0.0, 0.0, 0.0)) == [(11, LinkEventKind.RANK_SLOW)]
    assert run.pipeline.plans == []


@pytest.mark.parametrize(
    ("powers", "delay_s", "found"),
    [
        (Powers(may_replan=False), 0.06, [(9, LinkEventKind.LINK_SLOW)]),
        (Powers(may_replan=True), 0.06, [(9, LinkEventKind.LINK_SLOW)]),
        (ADAPTIVE, 0.006, []),
    ],
    ids=["a fixed schedule", "one that sends inline", "a delay that delegates would not win back"],
)
def test_a_layout_that_may_not_delegate_or_would_gain_nothing_goes_on_inline(
    powers: Powers, delay_s: float, found: list[tuple[int, LinkEventKind]]
) -> None:
    run = healthy(powers=powers)
    assert kinds(run.go(8, 0.0, 0.0, delay_s)) == found
    assert (run.pipeline.plans, run.pipeline.is_delegated) == ([], False)


def test_a_link_that_its_ranks_had_to_bridge_is_reported_dead() -> None:
    run = healthy()
    run.steps.dead = frozenset({2})
    assert kinds(run.go(5, 0.0, 0.0, 0.0)) == [(8, LinkEventKind.LINK_DEAD)]


def test_delays_that_were_planned_for_from_the_start_are_no_reason_to_plan() -> None:
    run = Run(known_s=(0.0, 0.0, 0.06))
    assert run.go(20, 0.0, 0.0, 0.06) == []
    assert kinds(run.go(8, 0.0, 0.0, 0.0)) == [(21, LinkEventKind.LINK_RECOVERED)]


@pytest.mark.parametrize("late", [1, 2, 3])
def test_a_delay_of_whole_forwards_is_that_many_however_it_is_measured(late: int) -> None:
    run = healthy(steps=Steps(noise_s=0.001))
    (_, replanned, *more) = run.go(50, 0.0, 0.0, late * PASS_S)
    assert (replanned.warm_up[2], more) == (3 + late, [])
