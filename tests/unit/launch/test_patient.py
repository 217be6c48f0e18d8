from __future__ import annotations

import fcntl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autotuner.bootstrap import build
from autotuner.domain.trial import Measurement, TrialSpec
from autotuner.launch.careful import CarefulLauncher
from autotuner.launch.fake import FakeLauncher, plain_measurement
from autotuner.launch.patient import PatientLauncher
from autotuner.launch.turn import lock_file
from autotuner.settings import Settings
from tests.trials.launching import SHORT, Watcher, left_over, spec


@pytest.fixture
def somebody_else() -> Iterator[None]:
    """Another launcher whose trial runs."""
    with lock_file().open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.mark.usefixtures("somebody_else")
def test_while_another_trial_runs_a_service_starts_none_and_still_hears_a_stop(tmp_path: Path) -> None:
    application = build(Settings(database_url=f"sqlite:///{tmp_path}/store", work_dir=tmp_path))
    watcher = Watcher(stop_after=0)
    assert application.launcher.run(spec("waiting"), watcher) == watcher.stop_requested()
    assert left_over("waiting") == []
    application.close()


def test_all_runs_of_a_trial_have_one_turn_so_that_waiting_for_it_takes_no_time_from_any() -> None:
    def behave(trial: TrialSpec) -> Measurement:
        with lock_file().open("w") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return plain_measurement(trial)

    launcher = FakeLauncher(behave)
    PatientLauncher(CarefulLauncher(launcher)).run(spec("twice", replace(SHORT, num_runs=2)), Watcher())
    assert len(launcher.specs) == 2
