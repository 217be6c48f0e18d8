"""``python -m trials`` as a process of its own, alone and under torchrun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotuner.core import codec
from autotuner.core.measurement import Measurement
from autotuner.core.trial_spec import TrialSpec
from tests.builders import cpu_layout
from tests.trials.agreement import TOLERANCES
from tests.trials.specs import fsdp, trial_spec
from tests.trials.zygote import read_lines

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")


def start(spec: str, folder: Path, *launcher: str) -> subprocess.CompletedProcess[str]:
    (folder / "spec.json").write_text(spec)
    paths = ("--spec", str(folder / "spec.json"), "--reports", str(folder / "reports.jsonl"))
    command = [sys.executable, *launcher, "-m", "trials", *paths]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env=environment)


def measured(spec: TrialSpec, folder: Path, *launcher: str) -> Measurement:
    process = start(codec.dumps(spec), folder, *launcher)
    assert process.returncode == 0, process.stderr
    *_, last = read_lines(folder / "reports.jsonl")
    assert last.pop("type") == "measurement"
    return codec.from_plain(Measurement, last)


@pytest.mark.oracle
def test_torchrun_ranks_train_as_one_process_does(tmp_path: Path) -> None:
    (tmp_path / "alone").mkdir()
    (tmp_path / "together").mkdir()
    alone = measured(trial_spec(), tmp_path / "alone")
    layout = fsdp(2, micro_batch_size=4)
    together = measured(trial_spec(layout), tmp_path / "together", *TORCHRUN, "2")
    assert len(together.peak_bytes) == 2
    assert together.losses == pytest.approx(alone.losses, rel=TOLERANCES[layout.precision].loss)


def test_torchrun_with_too_few_ranks_fails_and_the_reports_say_why(tmp_path: Path) -> None:
    process = start(codec.dumps(trial_spec(cpu_layout(pipeline_parallel_degree=2))), tmp_path, *TORCHRUN, "1")
    assert process.returncode == 1  # torchrun's own code for any failed rank
    assert "exitcode  : 2" in process.stderr
    failures = [line for line in read_lines(tmp_path / "reports.jsonl") if line["type"] == "failure"]
    assert "multiply to 2 ranks, the cluster has 1" in failures[0]["message"]


def test_a_spec_that_is_no_spec_is_refused_with_the_field(tmp_path: Path) -> None:
    document = json.loads(codec.dumps(trial_spec()))
    document["layout"]["tensor_degree"] = 2
    process = start(json.dumps(document), tmp_path)
    assert process.returncode == 2
    (failure,) = read_lines(tmp_path / "reports.jsonl")
    assert failure["kind"] == "crash"
    assert "layout.tensor_degree" in failure["message"]


def test_the_machine_s_gemm_rate_is_one_line_of_json() -> None:
    process = subprocess.run(
        [sys.executable, "-m", "trials.benchmarks.gemm"], capture_output=True, text=True, timeout=100, check=True
    )
    rates = json.loads(process.stdout)
    assert rates["num_cores"] == len(os.sched_getaffinity(0))
    assert min(rates["fp32_flop_per_s"], rates["bf16_flop_per_s"]) > 1e8  # slower than any core that runs torch
