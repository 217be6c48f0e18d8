"""Replicas and shards against the single process, and what each level of sharding spares."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotuner.domain.choice import OptimizerKernel, Precision, ShardLevel
from autotuner.domain.layout import Layout
from autotuner.domain.model import TransformerSpec
from autotuner.domain.trial import TrialSettings
from tests.builders import cpu_layout, tiny_model
from tests.trials.conftest import Reference
from tests.trials.specs import fsdp, trial_spec, zero
from tests.trials.test_oracle import (
    BF16_GRADIENT_TOLERANCE,
    BF16_LOSS_TOLERANCE,
    GRADIENT_TOLERANCE,
    LOSS_TOLERANCE,
    assert_gradients_agree,
    gradients,
    trial_losses,
)
from tests.trials.zygote import Zygote

References = Callable[[TransformerSpec, Precision], Reference]

SEQUENCE = {"tensor_parallel_degree": 2, "sequence_parallel": True}
SMALL_BUCKETS = {"gradient_bucket_bytes": 2**14}
IN_FP32 = {"precision": Precision.BF16, "fp32_gradient_reduce": True}
LARGE = tiny_model(num_layers=6, hidden_size=512, ffn_size=2048)
"""Several buckets of gradients in fp32."""
PADDED = tiny_model(name="padded", num_layers=3, ffn_size=127, mlp_bias=True)
"""No multiple of four parameters, for its six odd biases."""


def replicas(**changes: Any) -> Layout:
    return cpu_layout(data_parallel_replicate_degree=2, **changes)


LAYOUTS = (
    replicas(micro_batch_size=2, **SMALL_BUCKETS),
    replicas(micro_batch_size=2, **IN_FP32),
    fsdp(2, micro_batch_size=2, **IN_FP32),
    fsdp(2, micro_batch_size=2, optimizer_kernel=OptimizerKernel.FOREACH, **SEQUENCE),
    zero(2, micro_batch_size=2),
    zero(2, micro_batch_size=2, precision=Precision.BF16),
    zero(2, micro_batch_size=2, **IN_FP32),
    zero(2, micro_batch_size=2, tensor_parallel_degree=2),
    zero(2, micro_batch_size=2, **SEQUENCE),
    zero(2, micro_batch_size=1, data_parallel_replicate_degree=2),
    zero(2, shard_level=ShardLevel.GRADIENTS, micro_batch_size=2),
    zero(2, shard_level=ShardLevel.GRADIENTS, micro_batch_size=1, data_parallel_replicate_degree=2, **SEQUENCE),
)


@pytest.mark.oracle
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_replicas_and_shards_train_as_a_single_process_does(
    layout: Layout, zygote: Zygote, reference: References, tmp_path: Path
) -> None:
    half = layout.precision == Precision.BF16
    expected = reference(tiny_model(), layout.precision)
    losses = trial_losses(zygote, layout, tiny_model(), tmp_path / "trial")
    assert losses == pytest.approx(expected.losses, rel=BF16_LOSS_TOLERANCE if half else LOSS_TOLERANCE)
    found = gradients(zygote, layout, tiny_model(), tmp_path / "gradients")
    assert_gradients_agree(found, expected, BF16_GRADIENT_TOLERANCE if half else GRADIENT_TOLERANCE)


def test_slices_of_uneven_length_train_alike(zygote: Zygote, reference: References, tmp_path: Path) -> None:
    expected, layout = reference(PADDED, Precision.FP32), zero(4, micro_batch_size=1)
    assert trial_losses(zygote, layout, PADDED, tmp_path / "trial") == pytest.approx(
        expected.losses, rel=LOSS_TOLERANCE
    )
    assert_gradients_agree(gradients(zygote, layout, PADDED, tmp_path / "gradients"), expected, GRADIENT_TOLERANCE)


def test_each_level_of_sharding_lowers_the_peak(zygote: Zygote, tmp_path: Path) -> None:
    """On four ranks: two gain nothing by sharding gradients, for FSDP keeps its half of the parameters beside all."""
    levels = (ShardLevel.OPTIMIZER, ShardLevel.GRADIENTS, ShardLevel.PARAMETERS)
    layouts = (cpu_layout(data_parallel_replicate_degree=4), *(zero(4, shard_level=level) for level in levels))
    peaks = [peak(zygote, layout, tmp_path / layout.shard_level.label) for layout in layouts]
    assert peaks == sorted(peaks, reverse=True)
    moments_spared = 8 * LARGE.num_parameters * 3 // 4  # two of fp32, of which each rank keeps a quarter
    assert peaks[0] - peaks[1] > moments_spared


def peak(zygote: Zygote, layout: Layout, folder: Path) -> int:
    settings = TrialSettings(
        warmup_steps=0, max_warmup_steps=0, measured_steps=1, max_measured_steps=1, profiled_steps=0
    )
    return max(zygote.run(trial_spec(layout, model=LARGE, settings=settings), folder).measurement.peak_bytes)
