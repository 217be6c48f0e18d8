"""What lossy exchanges remember, and work with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.choices import GradientSync, PayloadPrecision, Recompute
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.prediction import Memory
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict_one
from tests.builders import h100_cluster, llama_70b

REPLICAS = Layout(data_parallel_replicate_degree=8)
MASTER, MOMENTS, MOMENTUM, ANCHOR = 4, 8, 4, 4
"""Bytes per element."""


def job() -> Job:
    """A model whose activations are nothing beside its weights."""
    return Job(
        model=llama_70b(num_layers=4, hidden_size=4096, num_heads=32, num_kv_heads=32, ffn_size=8192),
        cluster=h100_cluster(1),
        workload=Workload(seq_len=64, global_batch_size=8),
    )


def num_elements() -> int:
    """The model's, but for its last norm, which the cost model leaves out."""
    return job().model.num_parameters - job().model.hidden_size


def memory(sync: GradientSync, **changes: object) -> Memory:
    layout = replace(REPLICAS, gradient_sync=sync, recompute=Recompute.FULL, **changes)  # type: ignore[arg-type]
    return predict_one(layout, job()).memory


@pytest.mark.parametrize(
    ("sync", "sign", "remembered"),
    [
        (GradientSync.FULL, True, MASTER + MOMENTS),
        (GradientSync.DEMO, True, MASTER + MOMENTUM),
        (GradientSync.RANDOM, True, MASTER + MOMENTUM),
        (GradientSync.STRIDING, False, MASTER + MOMENTS + MOMENTUM),
        (GradientSync.DILOCO, True, MASTER + MOMENTS + ANCHOR),
    ],
)
def test_an_optimizer_remembers_its_moments_a_momentum_or_an_anchor(
    sync: GradientSync, sign: bool, remembered: int
) -> None:
    assert memory(sync, sync_sign=sign).optimizer_bytes == remembered * num_elements()


def test_an_exchange_of_chunks_works_with_more_than_one_of_elements() -> None:
    demo, random, full = (memory(sync) for sync in (GradientSync.DEMO, GradientSync.RANDOM, GradientSync.FULL))
    assert demo.buffers_bytes > random.buffers_bytes > full.buffers_bytes


def test_a_rank_holds_what_all_replicas_chose() -> None:
    """Eight of them, a component of sixteen each."""
    wide, narrow = (memory(GradientSync.DEMO, payload_precision=one) for one in PayloadPrecision)
    gathered = 8 / 16 * num_elements()
    # the step of the optimizer is the fullest moment of both, so nothing else hides the difference
    assert wide.buffers_bytes - narrow.buffers_bytes == pytest.approx(2 * gathered, rel=1e-9)
