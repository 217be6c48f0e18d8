"""The examples do what their documents say, on ranks of this machine."""

from __future__ import annotations

import json
import os
import re
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
from autotuner.exports.formats import export
from tests.builders import cpu_layout, tiny_job, tiny_model
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.oracle


def ran(example: str, num_ranks: int, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """An example on so many ranks."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(num_ranks)]
    return subprocess.run(
        [*command, str(ROOT / "examples" / f"{example}.py"), *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **variables},
    )


def said(example: str, num_ranks: int, *arguments: str) -> str:
    """What an example prints that ends well."""
    found = ran(example, num_ranks, *arguments)
    assert found.returncode == 0, found.stderr
    return found.stdout


def figures(pattern: str, printed: str) -> list[list[float]]:
    """The numbers that a pattern finds, line by line."""
    return [[float(figure) for figure in found.groups()] for found in re.finditer(pattern, printed)]


def test_batches_train_alike_with_and_without_balancing_and_more_evenly_with_it() -> None:
    dealt, as_they_come = (
        figures(r"imbalance +([\d.]+)%  loss ([\d.]+)", said("balanced_batches", 3, "--steps", "4", "--balance", how))
        for how in ("stratified_snake", "none")
    )
    # printed to 1e-4; sums in another order differ by 1e-6 of a loss near 6
    assert [loss for _, loss in dealt] == pytest.approx([loss for _, loss in as_they_come], abs=2e-4)
    assert len(dealt) == 4
    assert sum(one for one, _ in dealt) < 0.5 * sum(one for one, _ in as_they_come)


def test_clipping_says_how_much_was_reduced_under_the_backward_pass() -> None:
    assert "0% of the gradients" in said("clipping", 2, "--clip", "pre")
    # eight layers fill as many buckets, in all but the first two steps, which count them
    assert "of the gradients reduced" in said("clipping", 2, "--clip", "bucket")


def test_a_lossy_exchange_gives_replicas_the_knowledge_of_others_with_a_thirteenth_of_the_bytes() -> None:
    (sent_kib, loss), (_, loss_of_none) = (
        figures(r"([\d.]+) KiB .* loss on both halves ([\d.]+)", said("lossy_exchange", 4, "--exchange", how))[0]
        for how in ("demo", "none")
    )
    assert sent_kib == pytest.approx(2.56, abs=0.01)  # four components of five bytes of each of 131 chunks
    assert loss < 0.5 * loss_of_none


def test_a_resilient_pipeline_finds_the_link_that_turned_slow_and_goes_on_by_another_plan() -> None:
    printed = said("resilient_pipeline", 3, "--steps", "18", "--slow", "10", "--well", "18")
    for words in ("step 17", "link_slow: stages (1, 2)", "replanned"):
        assert words in printed


def test_an_all_reduce_trains_alike_on_one_level_and_on_two() -> None:
    as_two_nodes = ("two_level_all_reduce", 4, "--ranks-per-node", "2", "--steps", "4")
    flat, two_level = (
        [loss for (loss,) in figures(r"loss ([\d.]+)", said(*as_two_nodes, "--hierarchy", *how))]
        for how in (("flat",), ("two_level", "--algorithm", "ring"))
    )
    assert len(flat) == 4
    # printed to 1e-5; sums in another order differ by 1e-7 of a loss near 1
    assert two_level == pytest.approx(flat, abs=2e-5)


# ---------------------------------------------------------------- the loop to copy
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
    arguments = export(tiny_job(), chosen, "arguments").arguments
    return ran("train", chosen.world_size, "--steps", "6", *arguments, **variables, GLOO_SOCKET_IFNAME="lo")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """Losses of one rank that takes the whole batch at once."""
    return losses(layout(micro_batch_size=8), tmp_path_factory.mktemp("plain"))


@pytest.mark.parametrize("chosen", LAYOUTS, ids=str)
def test_the_loss_is_that_of_one_rank_in_every_layout(chosen: Layout, plain: list[float], tmp_path: Path) -> None:
    assert losses(chosen, tmp_path) == pytest.approx(plain, abs=ROUNDING, rel=0)
    assert max(plain) - min(plain) > 1000 * ROUNDING


def test_a_layout_that_the_training_loop_cannot_express_is_refused_and_not_trained_as_another(tmp_path: Path) -> None:
    ran = trained(layout(pipeline_parallel_degree=2), tmp_path)
    assert ran.returncode != 0
    assert "unrecognized arguments: --pipeline-parallel-degree 2" in ran.stderr
    assert list(tmp_path.iterdir()) == []
