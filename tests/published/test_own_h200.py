"""Our own measurements of one H200, to which no constant was fitted: products, steps and memory as predicted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from autotuner.catalog.hardware import load_accelerator, load_cluster
from autotuner.catalog.kernels import kernels_for
from autotuner.core.choices import AttentionKernel, Precision
from autotuner.core.codec import loads
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.prediction import Prediction
from autotuner.core.profile import DeviceProfile, profiled
from autotuner.core.workload import Workload
from autotuner.costmodel.layer.matrix_products import gemm_s
from autotuner.costmodel.predict import predict_one
from autotuner.costmodel.profile_fit import fit_profile
from research.h200_sweep import ONE_B, THREE_B
from tests.published.tables import rows

STORED = loads(DeviceProfile, Path("research/data/h200_profile.json").read_text())
MODELS = {model.name: model for model in (ONE_B, THREE_B)}


def profile() -> DeviceProfile:
    points, accelerator = STORED.measurements, load_accelerator("h200")
    return fit_profile(points, name="h200", measured_at=STORED.measured_at, num_ranks=1, accelerator=accelerator)


def predicted(row: Mapping[str, str], *, by_profile: bool = False) -> Prediction:
    cluster = load_cluster("h200:1x1")
    workload = Workload(seq_len=int(row["seq_len"]), global_batch_size=int(row["global_batch"]))
    layout = Layout(
        micro_batch_size=int(row["micro_batch"]),
        attention_kernel=AttentionKernel.from_label(row["attention"]),
        precision=Precision.from_label(row["precision"]),
        compiled=row["compiled"] == "1",
    )
    job = Job(
        model=MODELS[row["model"]], cluster=profiled(cluster, profile()) if by_profile else cluster, workload=workload
    )
    return predict_one(layout, job)


def test_products_in_bf16_take_the_time_of_the_law() -> None:
    law = kernels_for(load_accelerator("h200")).gemm[Precision.BF16]
    points = [point for point in STORED.measurements.gemm if point.precision == Precision.BF16]
    ratios = [float(gemm_s(point.m, point.n, point.k, law)) / point.seconds for point in points]
    assert len(ratios) == 18
    # 3.2 % is the largest error of the 18 shapes, and 0.6 % the median
    assert ratios == pytest.approx([1.0] * len(ratios), rel=0.035)
    assert np.median(ratios) == pytest.approx(1.0, rel=0.01)


def test_steps_and_memory_of_whole_models_are_predicted_before_anything_is_measured() -> None:
    for row in rows("own_h200"):
        said = predicted(row)
        # the largest errors are 4.0 % of a step, and 6.3 % of the memory, which is predicted too high
        assert said.step_time.total_s == pytest.approx(float(row["step_time_s"]), rel=0.045)
        assert said.memory.total_bytes / 1e9 == pytest.approx(float(row["memory_gb"]), rel=0.065)


def test_a_profile_of_the_device_predicts_its_steps_too() -> None:
    for row in rows("own_h200"):
        # 10.7 % at most: fp8 products ran slower in the benchmark than the steps show
        step_s = predicted(row, by_profile=True).step_time.total_s
        assert step_s == pytest.approx(float(row["step_time_s"]), rel=0.11)
