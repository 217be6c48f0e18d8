"""Real ranks, forked, under torchrun and by exported scripts. How trials die is in test_failures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autotuner.core import codec
from autotuner.core.choices import ShardLevel
from autotuner.core.codec import dumps
from autotuner.core.measurement import Measurement
from autotuner.core.trial import Stopped
from autotuner.exports.formats import export
from autotuner.launch.forks import Forks
from autotuner.launch.lines import LineReader, RankReports
from autotuner.launch.local import LocalLauncher
from autotuner.launch.node_processes import NodeProcesses
from tests.builders import cpu_layout, tiny_job
from tests.patience import PATIENCE_S
from tests.trials.fork_server import ForkServer, read_lines
from tests.trials.launching import ENDLESS, Watcher, left_over, spec
from tests.trials.specs import trial_spec

# ---------------------------------------------------------------- local launcher


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
    outcomes = [LocalLauncher(tmp_path, starter).run(spec("same"), Watcher()) for starter in (forks, NodeProcesses())]
    forked, fresh = (outcome.losses for outcome in outcomes if isinstance(outcome, Measurement))
    assert forked == fresh


def test_a_trial_that_is_stopped_before_its_ranks_have_started_does_not_disturb_one_beside_it(
    tmp_path: Path, forks: Forks
) -> None:
    """They have forks in common but no devices."""

    def stop_another() -> None:
        assert LocalLauncher(tmp_path, forks).run(spec("early"), Watcher(stop_after=0)) == Stopped(reason="cancelled")

    outcome = LocalLauncher(tmp_path, forks).run(spec("beside"), Watcher(at_first_step=stop_another))
    assert isinstance(outcome, Measurement), outcome
    assert left_over("early") == []
    assert isinstance(LocalLauncher(tmp_path, forks).run(spec("after"), Watcher()), Measurement)


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


# ---------------------------------------------------------------- torchrun


def test_torchrun_with_too_few_ranks_fails_and_the_reports_say_why(tmp_path: Path) -> None:
    spec, reports = tmp_path / "spec.json", tmp_path / "reports.jsonl"
    spec.write_text(codec.dumps(trial_spec(cpu_layout(pipeline_parallel_degree=2))))
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1")
    command = [*torchrun, "-m", "autotuner.trials", "--spec", str(spec), "--reports", str(reports)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert process.returncode == 1  # torchrun's own code for any failed rank
    assert "exitcode  : 2" in process.stderr
    failures = [line for line in read_lines(reports) if line["type"] == "failure"]
    assert "accelerators of the cluster, 1, but it is 2" in failures[0]["message"]


def test_a_spec_that_is_no_spec_is_refused_with_the_field(fork_server: ForkServer, tmp_path: Path) -> None:
    document = json.loads(codec.dumps(trial_spec()))
    document["layout"]["tensor_degree"] = 2
    (tmp_path / "spec.json").write_text(json.dumps(document))
    run = fork_server.have_done("tests.trials.rank_tasks:run_alone", tmp_path, 1)
    assert run.exit_codes == (2,)
    (failure,) = run.lines
    assert failure["kind"] == "crash"
    assert "layout.tensor_degree" in failure["message"]


def test_the_machine_s_gemm_rate_is_one_line_of_json(fork_server: ForkServer, tmp_path: Path) -> None:
    run = fork_server.have_done("tests.trials.rank_tasks:measure_gemm", tmp_path, 1)
    rates = json.loads(run.logs[0])
    assert rates["num_cores"] == len(os.sched_getaffinity(0))
    assert min(rates["fp32_flop_per_s"], rates["bf16_flop_per_s"]) > 1e8  # slower than any core that runs torch


# ---------------------------------------------------------------- exported scripts

_STAND_INS = {"srun": 'shift 2; exec "$@"', "scontrol": "echo 127.0.0.1"}
"""srun has two options before the command."""


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["torchrun", "sbatch"])
def test_a_script_trains_on_two_ranks_and_its_reports_end_with_a_measurement(name: str, tmp_path: Path) -> None:
    layout = cpu_layout(data_parallel_shard_degree=2, shard_level=ShardLevel.PARAMETERS, micro_batch_size=2)
    exported = export(tiny_job(), layout, name)
    assert not exported.unsupported
    (tmp_path / "script").write_text(exported.text)
    for command, does in _STAND_INS.items():
        (tmp_path / command).write_text(f"#!/usr/bin/env bash\n{does}\n")
        (tmp_path / command).chmod(0o755)
    slurm = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "here", "SLURM_CPUS_ON_NODE": "2", "PYTHON": sys.executable}
    environment = {**os.environ, **slurm, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_SUBMIT_DIR": str(tmp_path)}
    subprocess.run(["bash", "script"], cwd=tmp_path, env=environment, timeout=200, check=True)
    (path,) = tmp_path.glob("*trial*/reports.jsonl")
    reports = RankReports()
    assert reports.take(LineReader().read(path.read_bytes()))
    assert reports.measurement is not None
    assert len(reports.measurement.peak_bytes) == 2
