"""LocalLauncher with real torchrun and real ranks: whatever happens, a trial ends classified and leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from autotuner.domain.trial import FailureKind, Measurement, TrialFailure, TrialSettings
from autotuner.domain.wire import dumps
from autotuner.launch.local import LocalLauncher
from tests.trials.launching import ENDLESS, Watcher, disturb, left_over, spec, too_large


@pytest.fixture
def launcher(tmp_path: Path) -> LocalLauncher:
    return LocalLauncher(tmp_path / "work")


def died(launcher: LocalLauncher, trial_id: str, watcher: Watcher, settings: TrialSettings) -> TrialFailure:
    outcome = launcher.run(spec(trial_id, settings), watcher)
    assert isinstance(outcome, TrialFailure), outcome
    return outcome


def test_a_trial_is_measured_its_steps_are_passed_on_and_its_files_are_gone(
    launcher: LocalLauncher, tmp_path: Path
) -> None:
    watcher = Watcher()
    outcome = launcher.run(spec("measured"), watcher)
    assert isinstance(outcome, Measurement), outcome
    assert [step.step for step in watcher.steps] == [0, 1, 2]
    assert outcome.losses == tuple(step.loss for step in watcher.steps)
    assert len(outcome.peak_bytes) == 2
    assert left_over("measured") == []
    assert list((tmp_path / "work").iterdir()) == []


def test_a_rank_that_is_killed_ends_the_trial_as_a_crash_that_names_it(launcher: LocalLauncher) -> None:
    watcher = Watcher(at_first_step=disturb("killed", 1, signal.SIGKILL))
    failure = died(launcher, "killed", watcher, ENDLESS)
    assert (failure.kind, failure.rank) == (FailureKind.CRASH, 1)
    assert "SIGKILL" in failure.message
    assert left_over("killed") == []


def test_a_rank_that_hangs_ends_the_trial_at_its_time_limit(launcher: LocalLauncher) -> None:
    watcher = Watcher(at_first_step=disturb("hung", 1, signal.SIGSTOP))
    failure = died(launcher, "hung", watcher, replace(ENDLESS, timeout_s=20.0))
    assert (failure.kind, failure.rank) == (FailureKind.TIMEOUT, 1)
    assert "20 s" in failure.message
    assert left_over("hung") == []


def test_a_trial_out_of_time_shows_where_its_ranks_were(launcher: LocalLauncher) -> None:
    failure = died(launcher, "slow", Watcher(), replace(ENDLESS, timeout_s=12.0))
    assert failure.kind == FailureKind.TIMEOUT
    assert "most recent call first" in failure.log_tail


def test_a_trial_that_exhausts_its_memory_ran_out_of_memory(launcher: LocalLauncher) -> None:
    failure = launcher.run(too_large("oom"), Watcher())
    assert isinstance(failure, TrialFailure)
    assert failure.kind == FailureKind.OOM
    assert failure.rank in (0, 1)
    assert failure.log_tail
    assert left_over("oom") == []


def test_a_trial_that_is_stopped_leaves_nothing(launcher: LocalLauncher) -> None:
    watcher = Watcher(stop_after=1)
    outcome = launcher.run(spec("stopped", ENDLESS), watcher)
    assert outcome == watcher.stop_requested()
    assert left_over("stopped") == []


def test_a_trial_dies_with_a_launcher_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text(dumps(spec("orphan", ENDLESS)))
    program = (
        "import sys; from pathlib import Path\n"
        "from autotuner.domain.trial import TrialSpec; from autotuner.domain.wire import loads\n"
        "from autotuner.launch.local import LocalLauncher; from tests.trials.launching import Watcher\n"
        "directory = Path(sys.argv[1])\n"
        "spec = loads(TrialSpec, (directory / 'spec.json').read_text())\n"
        "LocalLauncher(directory / 'work').run(spec, Watcher(at_first_step=lambda: print('running', flush=True)))\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ}) as service:
        assert service.stdout is not None
        assert service.stdout.readline() == "running\n"
        service.kill()
    deadline = time.monotonic() + 30.0  # torchrun was seen to need 3 s; a loaded machine gets ten times that
    while left_over("orphan") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left_over("orphan") == []


def test_a_work_directory_that_cannot_be_written_fails_the_trial_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outcome = LocalLauncher(tmp_path / "file").run(spec("nowhere"), Watcher())
    assert isinstance(outcome, TrialFailure)
    assert outcome.kind == FailureKind.CRASH
    assert "file" in outcome.message
