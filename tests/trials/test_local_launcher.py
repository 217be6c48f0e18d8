"""LocalLauncher with real ranks, forked and under torchrun. How trials die is in test_failures."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from autotuner.core.codec import dumps
from autotuner.core.measurement import Measurement
from autotuner.core.trial import Stopped
from autotuner.launch.local import LocalLauncher
from autotuner.launch.torchrun import Torchrun
from autotuner.launch.zygote import Forks
from tests.patience import PATIENCE_S
from tests.trials.launching import ENDLESS, Watcher, left_over, spec


def test_a_trial_is_measured_its_steps_are_passed_on_and_its_files_are_gone(tmp_path: Path, forks: Forks) -> None:
    watcher = Watcher()
    outcome = LocalLauncher(tmp_path / "work", forks).run(spec("measured"), watcher)
    assert isinstance(outcome, Measurement), outcome
    assert [step.step for step in watcher.steps] == [0, 1, 2]
    assert outcome.losses == tuple(step.loss for step in watcher.steps)
    assert len(outcome.peak_bytes) == 2
    assert left_over("measured") == []
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.oracle  # starts torchrun
def test_forked_ranks_compute_what_those_of_torchrun_compute(tmp_path: Path, forks: Forks) -> None:
    outcomes = [LocalLauncher(tmp_path, starter).run(spec("same"), Watcher()) for starter in (forks, Torchrun())]
    forked, fresh = (outcome.losses for outcome in outcomes if isinstance(outcome, Measurement))
    assert forked == fresh


def test_a_trial_that_is_stopped_before_its_ranks_have_started_does_not_disturb_one_beside_it(tmp_path: Path) -> None:
    """They have forks in common but no devices; the thread that starts both ends before a third trial runs."""
    forks = Forks()

    def stop_another() -> None:
        assert LocalLauncher(tmp_path, forks).run(spec("early"), Watcher(stop_after=0)) == Stopped(reason="cancelled")

    with ThreadPoolExecutor(1) as thread:
        watcher = Watcher(at_first_step=stop_another)
        outcome = thread.submit(LocalLauncher(tmp_path, forks).run, spec("beside"), watcher).result()
    assert isinstance(outcome, Measurement), outcome
    assert left_over("early") == []
    assert isinstance(LocalLauncher(tmp_path, forks).run(spec("after"), Watcher()), Measurement)
    forks.close()


@pytest.mark.parametrize("starter", ["forked", pytest.param("torchrun", marks=pytest.mark.oracle)])
def test_a_trial_dies_with_a_launcher_that_is_killed(tmp_path: Path, starter: str) -> None:
    (tmp_path / "spec.json").write_text(dumps(spec("orphan", ENDLESS)))
    command = [sys.executable, "-m", "tests.trials.left_alone", str(tmp_path), starter]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        assert service.stdout.readline() == "running\n"
        service.kill()
    deadline = time.monotonic() + PATIENCE_S
    while left_over("orphan") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left_over("orphan") == []
