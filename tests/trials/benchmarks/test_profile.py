from __future__ import annotations

import pytest

from autotuner.core.choices import AttentionKernel, Precision
from autotuner.core.codec import dumps, loads
from autotuner.core.profile import Measurements, ProfileRequest
from autotuner.launch.torch_jobs import ask_torch
from tests.patience import PATIENCE_S


@pytest.mark.oracle  # ten seconds of benchmarks
def test_two_cores_measure_products_attention_memory_and_collectives() -> None:
    question = dumps(ProfileRequest(device="cpu", num_ranks=2, quick=True))
    found = loads(Measurements, ask_torch("trials.benchmarks.profile", question, timeout_s=PATIENCE_S))
    assert {point.precision for point in found.gemm} == {Precision.FP32, Precision.BF16}
    assert {point.kernel for point in found.attention} == {AttentionKernel.MATH, AttentionKernel.FLASH}
    assert {point.operation for point in found.traffic} == {"copy", "triad"}
    kinds = {point.kind for point in found.collectives}
    assert kinds == {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"}
    assert all(point.seconds > 0 for points in (found.gemm, found.traffic, found.collectives) for point in points)
    assert found.environment["torch"]
    assert {(point.kind, point.num_ranks) for point in found.passes} == {
        ("plain", 1),
        ("recompute_selective", 1),
        ("recompute_full", 1),
        ("sharded", 2),
        ("tensor", 2),
        ("sequence", 2),
    }
    assert all(point.forward_s > 0 and point.backward_s > 0 for point in found.passes)


@pytest.mark.oracle  # ten seconds of benchmarks
def test_a_rank_alone_measures_no_collectives() -> None:
    question = dumps(ProfileRequest(device="cpu", num_ranks=1, quick=True))
    assert loads(Measurements, ask_torch("trials.benchmarks.profile", question, timeout_s=PATIENCE_S)).collectives == ()
