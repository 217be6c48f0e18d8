"""What every launcher promises, whether it starts processes or pretends to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autotuner.domain.trial import FailureKind, Measurement, TrialFailure, TrialSpec
from autotuner.launch.careful import CarefulLauncher
from autotuner.launch.fake import FakeLauncher, plain_measurement
from autotuner.launch.forks import Forks
from autotuner.launch.local import LocalLauncher
from autotuner.launch.torchrun import Torchrun
from autotuner.ports import Launcher
from tests.builders import failure
from tests.trials.launching import Watcher, spec, too_large


def pretend(trial: TrialSpec) -> Measurement | TrialFailure:
    """What the fake does for a trial that would run, and for one that would not."""

    return failure(FailureKind.OOM) if trial.settings.memory_budget_bytes else plain_measurement(trial)


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    starter = Forks()
    yield starter
    starter.close()


@pytest.fixture(params=["fake", "zygote", "torchrun", "careful"])
def launcher(request: pytest.FixtureRequest, tmp_path: Path, forks: Forks) -> Iterator[Launcher]:
    launchers: dict[str, Callable[[], Launcher]] = {
        "fake": lambda: FakeLauncher(pretend),
        "zygote": lambda: LocalLauncher(tmp_path, forks),
        "torchrun": lambda: LocalLauncher(tmp_path, Torchrun()),
        "careful": lambda: CarefulLauncher(LocalLauncher(tmp_path, forks)),
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
