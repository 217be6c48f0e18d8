"""Replicas and shards against the single process, and what each level of sharding spares."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotuner.core.choices import OptimizerKernel, Precision, ShardLevel
from autotuner.core.layout import Layout
from autotuner.core.model import TransformerSpec
from tests.builders import tiny_model
from tests.trials.agreement import Trainer, for_each
from tests.trials.specs import ONE_STEP, SEQUENCE, TENSOR, ddp, fsdp, trial_spec, zero
from tests.trials.zygote import Zygote

SMALL_BUCKETS = {"gradient_bucket_bytes": 2**14}
GRADIENTS = {"shard_level": ShardLevel.GRADIENTS}
IN_FP32 = {"precision": Precision.BF16, "fp32_gradient_reduce": True}
LARGE = tiny_model(num_layers=10, hidden_size=256, ffn_size=1024)
"""Two buckets of gradients in fp32."""
PADDED = tiny_model(name="padded", num_layers=3, ffn_size=127, mlp_bias=True)
"""No multiple of four parameters, for its six odd biases."""


ALWAYS = (
    (tiny_model(), ddp(2, **SMALL_BUCKETS, micro_batch_size=2)),
    (tiny_model(), zero(2, **GRADIENTS, micro_batch_size=1, data_parallel_replicate_degree=2)),
    (PADDED, zero(4, micro_batch_size=1)),
)
MORE = (
    (tiny_model(), ddp(2, **IN_FP32, micro_batch_size=2)),
    (tiny_model(), fsdp(2, **IN_FP32, micro_batch_size=2)),
    (tiny_model(), fsdp(2, **SEQUENCE, micro_batch_size=2, optimizer_kernel=OptimizerKernel.FOREACH)),
    (tiny_model(), zero(2, micro_batch_size=2)),
    (tiny_model(), zero(2, micro_batch_size=2, precision=Precision.BF16)),
    (tiny_model(), zero(2, **IN_FP32, micro_batch_size=2)),
    (tiny_model(), zero(2, **TENSOR, micro_batch_size=2)),
    (tiny_model(), zero(2, **SEQUENCE, micro_batch_size=2)),
    (tiny_model(), zero(2, micro_batch_size=1, data_parallel_replicate_degree=2)),
    (tiny_model(), zero(2, **GRADIENTS, micro_batch_size=2)),
    (tiny_model(), zero(2, **GRADIENTS, **SEQUENCE, micro_batch_size=1, data_parallel_replicate_degree=2)),
)


@for_each(ALWAYS, oracle=MORE)
def test_replicas_and_shards_train_as_a_single_process_does(
    model: TransformerSpec, layout: Layout, trainer: Trainer
) -> None:
    trainer.assert_alike(layout, model)


@pytest.mark.oracle  # four trainings
def test_each_level_of_sharding_lowers_the_peak(zygote: Zygote, tmp_path: Path) -> None:
    """On four ranks: two gain nothing by sharding gradients, for FSDP keeps its half of the parameters beside all."""
    levels = (ShardLevel.OPTIMIZER, ShardLevel.GRADIENTS, ShardLevel.PARAMETERS)
    layouts = (ddp(4), *(zero(4, shard_level=level) for level in levels))
    peaks = [peak(zygote, layout, tmp_path / layout.shard_level.label) for layout in layouts]
    assert peaks == sorted(peaks, reverse=True)
    moments_spared = 8 * LARGE.num_parameters * 3 // 4  # two of fp32, of which each rank keeps a quarter
    assert peaks[0] - peaks[1] > moments_spared


def peak(zygote: Zygote, layout: Layout, folder: Path) -> int:
    return max(zygote.run(trial_spec(layout, model=LARGE, settings=ONE_STEP), folder).measurement.peak_bytes)
