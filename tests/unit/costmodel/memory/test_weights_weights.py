"""Tests of ``autotuner.costmodel.memory.weights``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.choices import GradientSync, PayloadPrecision, Recompute, ShardLevel
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.prediction import Memory
from autotuner.core.stack import Stack
from autotuner.core.workload import Workload
from autotuner.costmodel.memory.weights import Sharding
from autotuner.costmodel.predict import predict_one
from tests.builders import big_job, h100_cluster, llama_70b
from tests.unit.costmodel.memory_jobs import eight_gpus, of, on_stack, total
from tests.unit.costmodel.works import columns

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


NONE, OPTIMIZER, GRADIENTS, PARAMETERS = ShardLevel


def sharded(level: ShardLevel, *, reshard: bool = False) -> Layout:
    return Layout(
        data_parallel_shard_degree=1 if level == NONE else 8,
        data_parallel_replicate_degree=8 if level == NONE else 1,
        shard_level=level,
        reshard_after_forward=reshard,
    )


def test_each_level_of_sharding_needs_less_memory_than_the_one_before() -> None:
    peaks = [total(sharded(level, reshard=level == PARAMETERS), eight_gpus()) for level in ShardLevel]
    assert peaks == sorted(peaks, reverse=True)
    assert len(set(peaks)) == len(peaks)


def test_eight_ranks_share_the_state_they_shard() -> None:
    job = on_stack(eight_gpus(), fills_buckets=False)
    whole, split = of(sharded(NONE), job), of(sharded(PARAMETERS, reshard=True), job)
    assert float(split.optimizer_bytes[0]) == float(whole.optimizer_bytes[0]) / 8
    assert float(split.gradients_bytes[0]) == float(whole.gradients_bytes[0]) / 8


def test_without_resharding_all_gathered_parameters_stay() -> None:
    kept, dropped = (of(sharded(PARAMETERS, reshard=r), eight_gpus()) for r in (False, True))
    # beside the gradients on their way, whole layers and tables there, two layers and the tables here
    model = eight_gpus().model
    more_layers = model.num_layer_parameters * (1 - 2 / model.num_layers)
    assert float(kept.buffers_bytes[0]) - float(dropped.buffers_bytes[0]) == pytest.approx(2 * more_layers, rel=1e-3)
    assert float(kept.gradients_bytes[0]) == float(dropped.gradients_bytes[0])


@pytest.mark.parametrize(("batch", "whole"), [(16, True), (4, False)])
def test_a_sharded_pipeline_sums_whole_gradients_over_its_micro_batches(batch: int, whole: bool) -> None:
    steady = replace(sharded(PARAMETERS), data_parallel_shard_degree=4, pipeline_parallel_degree=2)
    for reshards in (False, True):
        layout = replace(steady, reshard_after_forward=reshards)
        summed, alone = (float(of(layout, eight_gpus(b)).gradients_bytes[0]) for b in (batch, 4))
        assert summed == (4 if whole else 1) * alone


def test_replicas_hold_gradients_twice_where_they_sum_up_micro_batches_outside_of_buckets() -> None:
    once, twice = (of(sharded(NONE), eight_gpus(batch)) for batch in (8, 16))
    assert float(twice.gradients_bytes[0]) == 2 * float(once.gradients_bytes[0])


def test_context_ranks_share_the_optimizer_without_data_parallel_ranks() -> None:
    job = on_stack(eight_gpus(), fills_buckets=False)
    alone, joined = (Layout(context_parallel_degree=8, shard_level=level) for level in (NONE, OPTIMIZER))
    assert float(of(joined, job).optimizer_bytes[0]) == float(of(alone, job).optimizer_bytes[0]) / 8


def test_context_ranks_join_the_shard_group() -> None:
    job = eight_gpus()
    alone = Layout(data_parallel_shard_degree=4, data_parallel_replicate_degree=2, shard_level=OPTIMIZER)
    joined = Layout(data_parallel_shard_degree=4, context_parallel_degree=2, shard_level=OPTIMIZER)
    assert float(of(joined, job).optimizer_bytes[0]) == float(of(alone, job).optimizer_bytes[0]) / 2


EXPERTS = MixtureOfExperts(num_experts=8, experts_per_token=2, expert_ffn_size=8192)


def test_splitting_experts_does_not_change_the_share_of_the_optimizer() -> None:
    # 8 ranks own everything once, whether experts are sharded over all of them or dealt out whole
    job = replace(eight_gpus(), model=llama_70b(num_layers=8, experts=EXPERTS))
    together = Layout(data_parallel_shard_degree=8, shard_level=OPTIMIZER)
    apart = replace(together, expert_parallel_degree=8)
    assert of(apart, job).optimizer_bytes[0] == pytest.approx(of(together, job).optimizer_bytes[0], rel=1e-12)


def test_gradients_summed_in_fp32_are_twice_as_wide_and_need_no_widening() -> None:
    half, whole = (of(Layout(), on_stack(eight_gpus(), sums_gradients_in_fp32=s)) for s in (False, True))
    assert float(whole.gradients_bytes[0]) == 2 * float(half.gradients_bytes[0])
    # without them, the step widens the 16-bit gradients beside nothing that is larger
    assert float(half.buffers_bytes[0]) > 0.0 == float(whole.buffers_bytes[0])


def test_more_ranks_than_experts_leave_some_without_where_whole_experts_are_shared() -> None:
    experts = MixtureOfExperts(num_experts=8, experts_per_token=2, expert_ffn_size=1024)
    layout = Layout(data_parallel_shard_degree=32, shard_level=ShardLevel.PARAMETERS)
    base = replace(big_job(), model=llama_70b(experts=experts))
    ranks = [
        float(Sharding.of(columns(layout), replace(base, stack=Stack(shards_whole_experts=flag))).expert_ranks[0])
        for flag in (True, False)
    ]
    assert ranks == [8, 32]
