"""What every launcher promises, whether it starts processes or pretends to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import psutil
import pytest

from autotuner.domain.runs.trial import FailureKind, Measurement, Outcome, StepReport, Stopped, TrialFailure, TrialSpec
from autotuner.launch.fake import FakeLauncher, plain_measurement
from autotuner.launch.repeating import RepeatingLauncher
from autotuner.ports import Launcher, TrialWatcher
from tests.builders import cpu_cluster
from tests.contracts.launchers import LAUNCHERS, Held
from tests.trials.launching import ENDLESS, SHORT, Watcher, spec, too_large


@dataclass(frozen=True, slots=True)
class Subject:
    """A launcher that is held to the contract, and what is expected of it."""

    launcher: Launcher
    held: Held

    def run(self, trial: TrialSpec, watcher: TrialWatcher) -> Outcome:
        """How the trial ended, after which no process of it is left."""
        outcome = self.launcher.run(self.held.trial(trial), watcher)
        assert list(self.held.left_over(trial.trial_id)) == []
        return outcome


# a torchrun takes ten seconds of a core to start: `make oracle` has the time, and forked ranks keep the contract here
SUBJECTS = [pytest.param(name, marks=pytest.mark.oracle) if name == "torchrun" else name for name in LAUNCHERS]


@pytest.fixture(scope="module", params=SUBJECTS)
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    """A launcher for all tests of this module, which leaves no process when it is closed."""
    before = set(psutil.Process().children())
    held = LAUNCHERS[request.param]
    made = held.make(tmp_path_factory.mktemp(request.param))
    yield Subject(made, held)
    made.close()
    assert set(psutil.Process().children()) <= before


def test_a_cluster_that_it_has_is_not_refused(subject: Subject) -> None:
    assert subject.launcher.refuses(subject.held.cluster) is None


def test_it_says_how_many_trials_it_has_room_for(subject: Subject) -> None:
    assert subject.launcher.capacity(subject.held.cluster) == subject.held.capacity


def test_a_trial_that_ran_comes_back_as_its_measurement_after_all_its_steps(subject: Subject) -> None:
    watcher = Watcher()
    outcome = subject.run(spec("contract-good"), watcher)
    assert isinstance(outcome, Measurement)
    assert [step.step for step in watcher.steps] == [0, 1, 2]
    assert [step.is_warmup for step in watcher.steps] == [True, False, False]
    assert outcome.num_steps == 2


def test_a_trial_that_died_comes_back_as_a_failure_and_raises_nothing(subject: Subject) -> None:
    outcome = subject.run(too_large("contract-bad"), Watcher())
    assert isinstance(outcome, TrialFailure)
    assert outcome.kind == FailureKind.OOM


@pytest.mark.parametrize("num_steps", [0, 1])
def test_a_trial_whose_watcher_wants_a_stop_comes_back_with_the_watchers_answer(
    subject: Subject, num_steps: int
) -> None:
    watcher = Watcher(stop_after=num_steps)
    assert subject.run(spec("contract-stop", ENDLESS), watcher) == watcher.stop_requested()


def test_a_trial_past_its_time_limit_comes_back_as_a_timeout(subject: Subject) -> None:
    outcome = subject.run(spec("contract-slow", replace(ENDLESS, timeout_s=2.0)), Watcher())
    assert isinstance(outcome, TrialFailure)
    assert outcome.kind == FailureKind.TIMEOUT


class Unwell(Watcher):
    """Cannot store a step, or cannot say whether the trial should stop."""

    def __init__(self, error: Exception, *, at: str) -> None:
        super().__init__()
        self._error = error
        self._at = at

    def on_step(self, step: StepReport) -> None:
        super().on_step(step)
        if self._at == "step":
            raise self._error

    def stop_requested(self) -> Stopped | None:
        if self._at == "stop":
            raise self._error
        return None


@pytest.mark.parametrize(
    ("error", "at"),
    [(OSError("no space left for the store"), "step"), (RuntimeError("a bug"), "stop")],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value,
)
def test_what_a_watcher_raises_comes_out_as_it_is_and_ends_the_trial(
    subject: Subject, error: Exception, at: str
) -> None:
    """An ``OSError`` too, though the launcher's own trouble often is one."""
    trial = spec("contract-watcher", ENDLESS)
    with pytest.raises(type(error)) as raised:
        subject.run(trial, Unwell(error, at=at))
    assert raised.value is error
    assert list(subject.held.left_over(trial.trial_id)) == []


def test_what_a_watcher_raises_at_a_note_comes_out_as_it_is() -> None:
    class Illiterate(Watcher):
        def on_note(self, note: str) -> None:
            raise OSError(note)

    with pytest.raises(OSError, match="run 2 of 2"):
        RepeatingLauncher(FakeLauncher()).run(spec("note", replace(SHORT, num_runs=2)), Illiterate())


def test_trials_run_at_once_from_as_many_threads_as_there_is_room_for_and_each_has_its_own_steps(
    subject: Subject,
) -> None:
    watchers = [Watcher() for _ in range(subject.held.capacity)]
    trials = [spec(f"contract-at-once-{number}-") for number in range(subject.held.capacity)]
    with ThreadPoolExecutor(len(trials)) as threads:
        outcomes = list(threads.map(subject.run, trials, watchers))
    assert all(isinstance(outcome, Measurement) for outcome in outcomes)
    assert [[step.step for step in watcher.steps] for watcher in watchers] == [[0, 1, 2]] * len(trials)


@pytest.mark.parametrize("capacity", [1, 4, 16])
def test_the_fake_runs_as_many_trials_at_once_as_it_was_told(capacity: int) -> None:
    together = threading.Barrier(capacity, timeout=20.0)

    def behave(trial: TrialSpec) -> Measurement:
        together.wait()  # nobody passes who runs alone
        return plain_measurement(trial)

    launcher = FakeLauncher(behave, capacity=capacity)
    room = launcher.capacity(cpu_cluster())
    with ThreadPoolExecutor(room) as threads:
        outcomes = list(threads.map(lambda n: launcher.run(spec(f"one-of-{n}"), Watcher()), range(room)))
    assert len(outcomes) == capacity
