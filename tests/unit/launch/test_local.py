"""LocalLauncher beside ranks that never were; with real ones it is in tests/trials."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from autotuner.domain.trial import FailureKind, StepReport, TrialFailure, TrialSpec
from autotuner.domain.wire import to_dict
from autotuner.launch.local import LocalLauncher
from autotuner.launch.ranks import Death, Ranks
from autotuner.launch.reports import TrialFiles
from tests.builders import step_report
from tests.trials.launching import SHORT, Watcher, spec


class StuckRanks:
    """Ranks that report one step, and of which one process cannot be ended."""

    pid = 4711

    def start(self, spec: TrialSpec, files: TrialFiles, environment: Mapping[str, str]) -> Ranks:
        del spec, environment
        files.reports.write_text(json.dumps({"type": "step", **to_dict(step_report(0))}) + "\n")
        return self

    def close(self) -> None:
        pass

    def ended(self) -> bool:
        return False

    def deaths(self) -> Sequence[Death]:
        return ()

    def log(self) -> str:
        return ""

    def end(self, *, grace_s: float) -> tuple[int, ...]:
        del grace_s
        return (self.pid,)


def test_a_trial_with_a_process_that_cannot_be_ended_ends_at_its_limit_and_names_the_process(tmp_path: Path) -> None:
    trial = spec("stuck", replace(SHORT, timeout_s=0.1))
    outcome = LocalLauncher(tmp_path, StuckRanks()).run(trial, Watcher())
    assert isinstance(outcome, TrialFailure)
    assert outcome.kind == FailureKind.TIMEOUT
    assert outcome.message.endswith("SIGKILL did not end process 4711")


def test_a_watcher_that_cannot_store_a_step_is_not_taken_for_a_work_directory_that_is_broken(tmp_path: Path) -> None:
    class FullStore(Watcher):
        def on_step(self, step: StepReport) -> None:
            raise OSError(f"no space left for step {step.step}")

    with pytest.raises(OSError, match="no space left for step 0"):
        LocalLauncher(tmp_path, StuckRanks()).run(spec("unheard"), FullStore())
    assert list(tmp_path.iterdir()) == []
