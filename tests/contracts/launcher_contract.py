"""What every launcher promises, whether it starts processes or pretends to.

The tests run in every module that imports them and has a fixture ``subject``: here for launchers of this machine, under
``tests/engines`` for those of engines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest

from autotuner.core.measurement import Measurement, StepReport
from autotuner.core.trial import FailureKind, Outcome, Stopped, TrialFailure
from autotuner.core.trial_spec import TrialSpec
from autotuner.launch.contract import Launcher, TrialWatcher
from tests.contracts.held import Held
from tests.trials.launching import ENDLESS, Watcher, spec, too_large

__all__ = [
    "Subject",
    "held_to_contract",
    "test_a_cluster_that_it_has_is_not_refused",
    "test_a_launcher_runs_trials_at_once_from_as_many_threads_as_it_has_room_for_and_each_has_its_own_steps",
    "test_a_trial_past_its_time_limit_comes_back_as_a_timeout",
    "test_a_trial_that_died_comes_back_as_a_failure_and_raises_nothing",
    "test_a_trial_that_ran_comes_back_as_its_measurement_after_all_its_steps",
    "test_an_answer_or_error_of_a_watcher_passes_unchanged_and_ends_the_trial",
    "test_the_engine_says_how_many_trials_it_has_room_for",
]


@dataclass(frozen=True, slots=True)
class Subject:
    """A launcher that is held to the contract, and what is expected of it."""

    launcher: Launcher
    held: Held
    folder: Path

    def run(self, trial: TrialSpec, watcher: TrialWatcher) -> Outcome:
        """How the trial ended, after which no process of it is left."""
        outcome = self.launcher.run(self.held.trial(trial), watcher)
        assert list(self.held.left_over(trial.trial_id)) == []
        return outcome


@contextmanager
def held_to_contract(held: Held, folder: Path) -> Iterator[Subject]:
    """A launcher with a folder of its own, which leaves no process when it is closed."""
    before = set(psutil.Process().children())
    made = held.make(folder)
    yield Subject(made, held, folder)
    made.close()
    assert set(psutil.Process().children()) <= before


def test_a_cluster_that_it_has_is_not_refused(subject: Subject) -> None:
    assert subject.launcher.refuses(subject.held.cluster) is None


def test_the_engine_says_how_many_trials_it_has_room_for(subject: Subject) -> None:
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


def test_a_trial_past_its_time_limit_comes_back_as_a_timeout(subject: Subject) -> None:
    outcome = subject.run(spec("contract-slow", replace(ENDLESS, timeout_s=1.0)), Watcher())
    assert isinstance(outcome, TrialFailure)
    assert outcome.kind == FailureKind.TIMEOUT


def test_a_launcher_runs_trials_at_once_from_as_many_threads_as_it_has_room_for_and_each_has_its_own_steps(
    subject: Subject,
) -> None:
    watchers = [Watcher() for _ in range(subject.held.capacity)]
    trials = [spec(f"contract-at-once-{number}-") for number in range(subject.held.capacity)]
    with ThreadPoolExecutor(len(trials)) as threads:
        outcomes = list(threads.map(subject.run, trials, watchers))
    assert all(isinstance(outcome, Measurement) for outcome in outcomes)
    assert [[step.step for step in watcher.steps] for watcher in watchers] == [[0, 1, 2]] * len(trials)


class Unwell(Watcher):
    """Cannot store a step, or cannot say whether the trial should stop."""

    def __init__(self, error: Exception, *, at: str) -> None:
        super().__init__()
        self.error = error
        self._at = at

    def on_step(self, step: StepReport) -> None:
        super().on_step(step)
        if self._at == "step":
            raise self.error

    def stop_requested(self) -> Stopped | None:
        if self._at == "stop":
            raise self.error
        return None


WATCHERS: dict[str, Callable[[], Watcher]] = {
    "a stop after a step": lambda: Watcher(stop_after=1),
    "an error after a step": lambda: Unwell(OSError("no space left for the store"), at="step"),
    # Before the first step the process goes too that was to fork the ranks, and whoever comes next starts another:
    # so these are the last.
    "an error at once": lambda: Unwell(RuntimeError("a bug"), at="stop"),
    "a stop at once": lambda: Watcher(stop_after=0),
}


@pytest.mark.parametrize("what", WATCHERS)
def test_an_answer_or_error_of_a_watcher_passes_unchanged_and_ends_the_trial(subject: Subject, what: str) -> None:
    """An ``OSError`` too, though the launcher's own trouble often is one."""
    trial, watcher = spec("contract-watcher", ENDLESS), WATCHERS[what]()
    if not isinstance(watcher, Unwell):
        assert subject.run(trial, watcher) == watcher.stop_requested()
        return
    with pytest.raises(type(watcher.error)) as raised:
        subject.run(trial, watcher)
    assert raised.value is watcher.error
    assert list(subject.held.left_over(trial.trial_id)) == []
