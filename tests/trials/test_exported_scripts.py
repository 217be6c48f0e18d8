"""Exported scripts that start our own trial, started: one under torchrun, one with stand-ins for Slurm's commands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotuner.core.choices import ShardLevel
from autotuner.export.registry import export
from autotuner.launch.reports import Reports
from tests.builders import cpu_layout, tiny_job

_STAND_INS = {"srun": 'shift 2; exec "$@"', "scontrol": "echo 127.0.0.1"}
"""srun has two options before the command."""


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["torchrun", "sbatch"])
def test_a_script_trains_on_two_ranks_and_its_reports_end_with_a_measurement(name: str, tmp_path: Path) -> None:
    layout = cpu_layout(data_parallel_shard_degree=2, shard_level=ShardLevel.PARAMETERS, micro_batch_size=2)
    exported = export(tiny_job(), layout, name)
    assert not exported.unsaid
    (tmp_path / "script").write_text(exported.text)
    for command, does in _STAND_INS.items():
        (tmp_path / command).write_text(f"#!/usr/bin/env bash\n{does}\n")
        (tmp_path / command).chmod(0o755)
    slurm = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "here", "SLURM_CPUS_ON_NODE": "2", "PYTHON": sys.executable}
    environment = {**os.environ, **slurm, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_SUBMIT_DIR": str(tmp_path)}
    subprocess.run(["bash", "script"], cwd=tmp_path, env=environment, timeout=200, check=True)
    (path,) = tmp_path.glob("*trial*/reports.jsonl")
    reports = Reports(path)
    assert reports.new_steps()
    assert reports.measurement is not None
    assert len(reports.measurement.peak_bytes) == 2
