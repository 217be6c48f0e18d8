"""What every launcher promises, whether it starts processes or pretends to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from autotuner.domain.trial import FailureKind, Measurement, Stopped, TrialFailure, TrialSpec
from autotuner.launch.careful import CarefulLauncher
from autotuner.launch.fake import FakeLauncher, plain_measurement
from autotuner.launch.forks import Forks
from autotuner.launch.local import LocalLauncher
from autotuner.launch.patient import PatientLauncher
from autotuner.launch.torchrun import Torchrun
from autotuner.ports import Launcher
from tests.builders import cpu_cluster, failure
from tests.trials.launching import Watcher, left_over, spec, too_large


def pretend(trial: TrialSpec) -> Measurement | TrialFailure:
    """What the fake does for a trial that would run, and for one that would not."""

    return failure(FailureKind.OOM) if trial.settings.memory_budget_bytes else plain_measurement(trial)


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    starter = Forks()
    yield starter
    starter.close()


@pytest.fixture(params=["fake", "zygote", "torchrun", "careful", "patient"])
def launcher(request: pytest.FixtureRequest, tmp_path: Path, forks: Forks) -> Iterator[Launcher]:
    launchers: dict[str, Callable[[], Launcher]] = {
        "fake": lambda: FakeLauncher(pretend),
        "zygote": lambda: LocalLauncher(tmp_path, forks),
        "torchrun": lambda: LocalLauncher(tmp_path, Torchrun()),
        "careful": lambda: CarefulLauncher(FakeLauncher(pretend)),
        "patient": lambda: PatientLauncher(FakeLauncher(pretend)),
    }
    made = launchers[request.param]()
    yield made
    made.close()


def test_a_trial_that_ran_comes_back_as_its_measurement_after_all_its_steps(launcher: Launcher) -> None:
    watcher = Watcher()
    outcome = launcher.run(spec("contract-good"), watcher)
    assert isinstance(outcome, Measurement)
    assert [step.step for step in watcher.steps] == [0, 1, 2]
    assert [step.is_warmup for step in watcher.steps] == [True, False, False]
    assert outcome.num_steps == 2


def test_a_trial_that_died_comes_back_as_a_failure_and_raises_nothing(launcher: Launcher) -> None:
    outcome = launcher.run(too_large("contract-bad"), Watcher())
    assert isinstance(outcome, TrialFailure)
    assert outcome.kind == FailureKind.OOM


def test_a_trial_whose_watcher_wants_a_stop_comes_back_with_the_watchers_answer(launcher: Launcher) -> None:
    watcher = Watcher(stop_after=0)
    assert launcher.run(spec("contract-stop"), watcher) == watcher.stop_requested()


class Unwell(Watcher):
    """Cannot say whether the trial should stop."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def stop_requested(self) -> Stopped | None:
        raise self._error


def test_what_a_watcher_raises_comes_out_as_it_is_and_ends_the_trial(launcher: Launcher) -> None:
    error = OSError("no space left for the store")  # an error of this type may be the launcher's own
    with pytest.raises(OSError, match="for the store") as raised:
        launcher.run(spec("contract-watcher"), Unwell(error))
    assert raised.value is error
    assert left_over("contract-watcher") == []


@pytest.mark.parametrize("capacity", [1, 4, 16])
def test_as_many_trials_run_at_once_as_the_launcher_has_room_for(capacity: int) -> None:
    together = threading.Barrier(capacity, timeout=20.0)

    def behave(trial: TrialSpec) -> Measurement:
        together.wait()  # nobody passes who runs alone
        return plain_measurement(trial)

    launcher = FakeLauncher(behave, capacity=capacity)
    room = launcher.capacity(cpu_cluster())
    with ThreadPoolExecutor(room) as threads:
        outcomes = list(threads.map(lambda n: launcher.run(spec(f"one-of-{n}"), Watcher()), range(room)))
    assert room == capacity
    assert all(isinstance(outcome, Measurement) for outcome in outcomes)


def test_cores_have_room_for_one_trial_however_small(launcher: Launcher) -> None:
    assert launcher.capacity(cpu_cluster(2)) == 1
