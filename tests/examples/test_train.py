from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import autotuner_report
from autotuner.core.choices import Recompute, ShardLevel
from autotuner.core.codec import dumps
from autotuner.core.layout import Layout
from autotuner.core.trial_spec import TrialSpec
from autotuner.export.registry import export
from tests.builders import cpu_layout, tiny_job, tiny_model

ROOT = Path(__file__).parents[2]

ROUNDING = 5e-6
"""Losses near 5.7 in fp32 differ by two or three roundings of a sum of a thousand terms: 1e-6 was the most seen."""


def layout(**changes: Any) -> Layout:
    return cpu_layout(**{"attention_kernel": Layout().attention_kernel, **changes})


FSDP, FULL = ShardLevel.PARAMETERS, Recompute.FULL
LAYOUTS = (
    layout(micro_batch_size=2, recompute=FULL),
    layout(data_parallel_shard_degree=2, shard_level=FSDP),
    layout(
        data_parallel_shard_degree=2, shard_level=FSDP, reshard_after_forward=True, micro_batch_size=2, recompute=FULL
    ),
    layout(data_parallel_replicate_degree=2, micro_batch_size=4),
    layout(tensor_parallel_degree=2, micro_batch_size=4),
    layout(tensor_parallel_degree=2, micro_batch_size=2, recompute=FULL),
    layout(tensor_parallel_degree=2, micro_batch_size=8),
    layout(data_parallel_shard_degree=2, shard_level=FSDP, tensor_parallel_degree=2, recompute=FULL),
    layout(data_parallel_replicate_degree=2, data_parallel_shard_degree=2, shard_level=FSDP),
)


def spec(chosen: Layout) -> TrialSpec:
    return TrialSpec(trial_id="t", model=tiny_model(), workload=tiny_job().workload, layout=chosen, device="cpu")


def losses(chosen: Layout, directory: Path) -> list[float]:
    """What rank 0 reports of its steps."""
    ran = trained(chosen, directory)
    assert ran.returncode == 0, ran.stderr
    reports = sorted(directory.glob("rank-*.jsonl"))
    assert len(reports) == chosen.world_size
    return [json.loads(line)["loss"] for line in reports[0].read_text().splitlines()]


def trained(chosen: Layout, directory: Path) -> subprocess.CompletedProcess[str]:
    variables = {autotuner_report.REPORT_DIR: str(directory), autotuner_report.SPEC: dumps(spec(chosen))}
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(chosen.world_size)]
    arguments = export(tiny_job(), chosen, "arguments").arguments
    return subprocess.run(
        [sys.executable, *launch, str(ROOT / "examples/train.py"), "--steps", "6", *arguments],
        env={**os.environ, **variables, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """Losses of one rank that takes the whole batch at once."""
    return losses(layout(micro_batch_size=8), tmp_path_factory.mktemp("plain"))


@pytest.mark.oracle
@pytest.mark.parametrize("chosen", LAYOUTS, ids=str)
def test_the_loss_is_that_of_one_rank_in_every_layout(chosen: Layout, plain: list[float], tmp_path: Path) -> None:
    assert losses(chosen, tmp_path) == pytest.approx(plain, abs=ROUNDING, rel=0)
    assert max(plain) - min(plain) > 1000 * ROUNDING


@pytest.mark.oracle
def test_a_layout_that_the_loop_cannot_be_told_is_refused_and_not_trained_as_another(tmp_path: Path) -> None:
    ran = trained(layout(pipeline_parallel_degree=2), tmp_path)
    assert ran.returncode != 0
    assert "unrecognized arguments: --pipeline-parallel-degree 2" in ran.stderr
    assert list(tmp_path.iterdir()) == []
