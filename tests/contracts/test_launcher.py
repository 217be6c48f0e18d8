"""What every launcher promises, whether it starts processes or pretends to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from tests.builders import failure
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
