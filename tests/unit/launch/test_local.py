"""LocalLauncher beside ranks that never were; with real ones it is in tests/trials."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from autotuner.core.codec import to_plain
from autotuner.core.measurement import StepReport
from autotuner.core.trial import FailureKind, Stopped, TrialFailure
from autotuner.core.trial_spec import TrialSpec
from autotuner.launch.exclusive import DevicePool
from autotuner.launch.local import LocalLauncher
from autotuner.launch.ranks import Death, Ranks
from autotuner.launch.reports import TrialFiles
from tests.builders import cpu_cluster, cpu_layout, step_report, tiny_model
from tests.trials.launching import SHORT, Watcher, spec


class NoRanks:
    """Starts none."""

    def start(self, spec: TrialSpec, files: TrialFiles, environment: Mapping[str, str]) -> Ranks:
        raise AssertionError(f"{spec.trial_id} was started in {files.directory} with {environment}")

    def close(self) -> None:
        pass


class StuckRanks:
    """Ranks that report one step, and of which one process cannot be ended."""

    pid = 4711

    def __init__(self) -> None:
        self.environment: Mapping[str, str] = {}

    def start(self, spec: TrialSpec, files: TrialFiles, environment: Mapping[str, str]) -> Ranks:
        del spec
        self.environment = environment
        files.reports.write_text(json.dumps({"type": "step", **to_plain(step_report(0))}) + "\n")
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


def test_ranks_on_gpus_see_those_alone_that_no_other_trial_has(tmp_path: Path) -> None:
    ranks, pool = StuckRanks(), DevicePool(lambda: ("0", "1", "2", "3"))
    with pool.claim(spec("beside", device="cuda"), Watcher()):
        LocalLauncher(tmp_path, ranks, pool).run(spec("gpus", replace(SHORT, timeout_s=0.1), device="cuda"), Watcher())
    assert ranks.environment["CUDA_VISIBLE_DEVICES"] == "2,3"


def test_ranks_that_cannot_be_started_say_why_and_nothing_of_the_trial(tmp_path: Path) -> None:
    class Unstartable(StuckRanks):
        def start(self, spec: TrialSpec, files: TrialFiles, environment: Mapping[str, str]) -> Ranks:
            del files, environment
            raise BlockingIOError(f"too many processes to start {spec.trial_id}")

    outcome = LocalLauncher(tmp_path, Unstartable()).run(spec("unstarted"), Watcher())
    assert isinstance(outcome, Stopped)
    assert outcome.reason == "infrastructure"
    assert "too many processes" in outcome.detail
    assert list(tmp_path.iterdir()) == []


def test_more_ranks_than_the_cores_share_are_refused_and_never_started(tmp_path: Path) -> None:
    launcher = LocalLauncher(tmp_path, NoRanks())
    refusal = launcher.refuses(cpu_cluster(num_nodes=2**17, accelerators_per_node=8))
    assert refusal is not None
    assert "1048576 ranks, these cores share" in refusal
    crowd = spec("crowd", layout=cpu_layout(data_parallel_replicate_degree=2**20))
    outcome = launcher.run(crowd, Watcher())
    assert isinstance(outcome, TrialFailure)
    assert (outcome.kind, "1048576 ranks are more than" in outcome.message) == (FailureKind.CRASH, True)


def test_weights_that_the_machine_cannot_hold_are_out_of_memory_before_a_rank_starts(tmp_path: Path) -> None:
    huge = replace(spec("huge"), model=tiny_model(num_layers=2**31 - 1, ffn_size=2**20))
    outcome = LocalLauncher(tmp_path, NoRanks()).run(huge, Watcher())
    assert isinstance(outcome, TrialFailure)
    assert (outcome.kind, "the weights alone need" in outcome.message) == (FailureKind.OOM, True)
