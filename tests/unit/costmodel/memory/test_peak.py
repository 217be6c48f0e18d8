"""Weights and peak memory: of which rank, when in the step, and what it is made of."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.choices import (
    AttentionKernel,
    GradientSync,
    OptimizerKernel,
    PayloadPrecision,
    PipelineSchedule,
    Precision,
    Recompute,
    ShardLevel,
)
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.prediction import Memory
from autotuner.core.stack import Stack
from autotuner.core.units import GIB
from autotuner.core.workload import Workload
from autotuner.costmodel.memory.weights import Sharding
from autotuner.costmodel.predict import predict_one
from tests.builders import big_job, cpu_cluster, cpu_layout, h100_cluster, llama_70b, tiny_model
from tests.unit.costmodel.works import (
    GPIPE,
    ONE_F_ONE_B,
    columns,
    demo,
    eight_gpus,
    gpt_22b,
    of,
    on_stack,
    one_core,
    total,
)


@pytest.mark.parametrize(
    ("precision", "moments", "weight_bytes", "optimizer_bytes"),
    [
        (Precision.FP32, "fp32", 4, 8),
        (Precision.BF16, "fp32", 2, 4 + 8),  # the fp32 master weight is the optimizer's
        (Precision.BF16, "bf16", 2, 4 + 4),
    ],
)
def test_a_lone_rank_holds_the_textbook_bytes_per_parameter(
    precision: Precision, moments: str, weight_bytes: int, optimizer_bytes: int
) -> None:
    job, layout = one_core(precision, optimizer_state_precision=moments)
    # the final norm's 64 elements are nobody's layer and left out
    num_elements = job.model.num_parameters - job.model.hidden_size
    sizes = of(layout, job)
    assert float(sizes.parameters_bytes[0]) == weight_bytes * num_elements
    assert float(sizes.gradients_bytes[0]) == weight_bytes * num_elements
    assert float(sizes.optimizer_bytes[0]) == optimizer_bytes * num_elements


INTERLEAVED = replace(ONE_F_ONE_B, pipeline_schedule=PipelineSchedule.INTERLEAVED_1F1B, virtual_stages_per_rank=2)
HIDDEN_BYTES = 4 * 128 * 256


@pytest.mark.parametrize(
    ("layout", "num_micro_batches", "stage", "measured_mb"),
    [
        (ONE_F_ONE_B, 4, 0, 44.5),
        (ONE_F_ONE_B, 64, 0, 52.5),
        (GPIPE, 4, 1, 57.8),
        (GPIPE, 16, 1, 150.9),
        (GPIPE, 64, 1, 523.5),
    ],
)
def test_the_peaks_of_real_pipelines_are_met(
    layout: Layout, num_micro_batches: int, stage: int, measured_mb: float
) -> None:
    # measured with torch 2.13 on CPU cores. 10 %: a layer saves about a tenth more than is counted, and works with less
    sizes = of(layout, demo(layout, num_micro_batches))
    assert float(sizes.total_bytes[0]) == pytest.approx(measured_mb * 1e6, rel=0.1)
    assert int(sizes.worst_rank[0]) == stage


@pytest.mark.parametrize(("layout", "num_links"), [(ONE_F_ONE_B, 1), (GPIPE, 1), (INTERLEAVED, 3)])
def test_a_pipeline_has_a_receive_buffer_per_micro_batch_and_link(layout: Layout, num_links: int) -> None:
    assert float(of(layout, demo(layout, 8)).buffers_bytes[0]) == 8 * num_links * HIDDEN_BYTES


def test_receive_buffers_can_make_the_second_rank_the_fullest_and_are_split_and_freed() -> None:
    layout = replace(ONE_F_ONE_B, pipeline_parallel_degree=4)
    sizes = [of(layout, demo(layout, m)) for m in (16, 512)]
    assert [int(size.worst_rank[0]) for size in sizes] == [0, 1]
    assert float(sizes[1].buffers_bytes[0]) == 2 * 512 * HIDDEN_BYTES
    layout = replace(ONE_F_ONE_B, tensor_parallel_degree=2, sequence_parallel=True)
    few, many = (float(of(layout, demo(layout, m)).buffers_bytes[0]) for m in (8, 16))
    assert many - few == 8 * HIDDEN_BYTES / 2
    kept, freed = (of(ONE_F_ONE_B, on_stack(demo(ONE_F_ONE_B, 8), keeps_receive_buffers=k)) for k in (True, False))
    assert float(kept.buffers_bytes[0]) == 8 * HIDDEN_BYTES > 0.0 == float(freed.buffers_bytes[0])


@pytest.mark.parametrize(
    ("changes", "bytes_per_parameter", "measured_mb"),
    [
        ({"precision": Precision.BF16}, 2 + 12 + 4, 73.0),
        # the bucket keeps the 16-bit gradients
        ({"precision": Precision.BF16, "data_parallel_replicate_degree": 2}, 2 + 12 + 2 + 4, 80.0),
    ],
)
def test_a_step_on_few_tokens_is_fullest_when_the_optimizer_widens_its_gradients(
    changes: dict[str, Any], bytes_per_parameter: int, measured_mb: float
) -> None:
    layout = cpu_layout(**changes)
    job = replace(demo(layout, 1), workload=Workload(seq_len=16, global_batch_size=2))
    num_elements = job.model.num_parameters - job.model.hidden_size  # the final norm is left out
    assert total(layout, job) == bytes_per_parameter * num_elements
    # 2 %: the last tensor to be widened, the output table, is there in both formats
    assert total(layout, job) == pytest.approx(measured_mb * 1e6, rel=0.02)


def test_the_optimizer_step_widens_what_it_steps_and_costs_nothing_else() -> None:
    half, whole = (cpu_layout(precision=p) for p in (Precision.BF16, Precision.FP32))
    long, short = demo(half, 64), replace(demo(whole, 1), workload=Workload(seq_len=16, global_batch_size=1))
    long = replace(long, workload=Workload(seq_len=2048, global_batch_size=1))
    assert float(of(half, long).buffers_bytes[0]) == float(of(whole, short).buffers_bytes[0]) == 0.0
    layout = cpu_layout(precision=Precision.BF16)
    job = replace(demo(layout, 1), workload=Workload(seq_len=16, global_batch_size=2))
    fused, foreach = (total(replace(layout, optimizer_kernel=kernel), job) for kernel in OptimizerKernel)
    # the step is the fullest moment then, not the backward: at most 4 bytes an element more
    assert fused < foreach <= fused + 4 * job.model.num_parameters


def test_optimizer_states_on_the_host_are_not_on_the_device() -> None:
    whole, half = (of(Layout(optimizer_offload_percent=percent), big_job()) for percent in (0, 50))
    assert float(half.optimizer_bytes[0]) == float(whole.optimizer_bytes[0]) / 2
    assert float(half.gradients_bytes[0]) == float(whole.gradients_bytes[0])


def test_the_last_stage_is_the_fullest_with_a_long_vocabulary_or_logits_that_layout_or_stack_gather() -> None:
    job = Job(
        model=tiny_model(vocab_size=1_000_000, tied_embeddings=True),
        cluster=cpu_cluster(2),
        workload=Workload(seq_len=64, global_batch_size=8),
    )
    layout = Layout(pipeline_parallel_degree=2, precision=Precision.FP32, attention_kernel=AttentionKernel.MATH)
    assert int(of(layout, job).worst_rank[0]) == 1
    assert int(of(layout, replace(job, model=tiny_model())).worst_rank[0]) == 0
    layout = Layout(tensor_parallel_degree=4, pipeline_parallel_degree=2, recompute=Recompute.FULL)
    job = replace(eight_gpus(), workload=Workload(seq_len=2048, global_batch_size=16))
    assert [int(of(layout, on_stack(job, gathers_logits=g)).worst_rank[0]) for g in (False, True)] == [0, 1]


def test_the_peak_is_the_sum_of_its_parts_and_of_the_allowance_of_a_stack() -> None:
    sizes = of(ONE_F_ONE_B, demo(ONE_F_ONE_B, 8))
    parts = [float(getattr(sizes, f.name)[0]) for f in fields(sizes) if f.name != "worst_rank"]
    assert len(parts) == 7
    assert float(sizes.total_bytes[0]) == pytest.approx(sum(parts), rel=1e-12)  # order of a sum
    job, layout = one_core()
    assert float(of(layout, job).allowance_bytes[0]) == 0.0
    assert float(of(Layout(), gpt_22b()).allowance_bytes[0]) > GIB
    sizes = of(Layout(), on_stack(eight_gpus(), activation_overhead=0.25, allowance_bytes=10**9))
    assert float(sizes.allowance_bytes[0]) == 1e9 + 0.25 * float(sizes.activations_bytes[0])


@pytest.mark.parametrize(
    ("ends", "fullest"),
    [
        ({"first_stage_less_layers": 1}, {3}),  # as many layers as those between, and the norm behind them
        ({"last_stage_less_layers": 1}, {0, 1}),
    ],
)
def test_a_rank_with_more_layers_than_an_end_is_the_fullest(ends: dict[str, int], fullest: set[int]) -> None:
    layout = replace(GPIPE, pipeline_parallel_degree=4, **ends)  # type: ignore[arg-type]  # names of integer fields
    job = replace(demo(layout, 16), model=tiny_model(num_layers=15, vocab_size=16))
    assert int(of(layout, job).worst_rank[0]) in fullest


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
def test_an_optimizer_remembers_moments_a_momentum_or_an_anchor(
    sync: GradientSync, sign: bool, remembered: int
) -> None:
    assert memory(sync, sync_sign=sign).optimizer_bytes == remembered * num_elements()


NONE, OPTIMIZER, GRADIENTS, PARAMETERS = ShardLevel


def sharded(level: ShardLevel, *, reshard: bool = False) -> Layout:
    return Layout(
        data_parallel_shard_degree=1 if level == NONE else 8,
        data_parallel_replicate_degree=8 if level == NONE else 1,
        shard_level=level,
        reshard_after_forward=reshard,
    )


def test_each_level_of_sharding_needs_less_and_ranks_share_the_state_that_they_shard() -> None:
    peaks = [total(sharded(level, reshard=level == PARAMETERS), eight_gpus()) for level in ShardLevel]
    assert peaks == sorted(peaks, reverse=True)
    assert len(set(peaks)) == len(peaks)
    job = on_stack(eight_gpus(), fills_buckets=False)
    whole, split = of(sharded(NONE), job), of(sharded(PARAMETERS, reshard=True), job)
    assert float(split.optimizer_bytes[0]) == float(whole.optimizer_bytes[0]) / 8
    assert float(split.gradients_bytes[0]) == float(whole.gradients_bytes[0]) / 8
    kept, dropped = (of(sharded(PARAMETERS, reshard=r), eight_gpus()) for r in (False, True))
    # beside the gradients that are being sent, whole layers and tables there, two layers and the tables here
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


def test_gradients_are_held_twice_outside_of_buckets_and_twice_as_wide_in_fp32() -> None:
    once, twice = (of(sharded(NONE), eight_gpus(batch)) for batch in (8, 16))
    assert float(twice.gradients_bytes[0]) == 2 * float(once.gradients_bytes[0])
    half, whole = (of(Layout(), on_stack(eight_gpus(), sums_gradients_in_fp32=s)) for s in (False, True))
    assert float(whole.gradients_bytes[0]) == 2 * float(half.gradients_bytes[0])
    # without them, the step widens the 16-bit gradients beside nothing that is larger
    assert float(half.buffers_bytes[0]) > 0.0 == float(whole.buffers_bytes[0])


def test_context_ranks_share_the_optimizer_and_lossy_exchanges_keep_chunks() -> None:
    job = on_stack(eight_gpus(), fills_buckets=False)
    alone, joined = (Layout(context_parallel_degree=8, shard_level=level) for level in (NONE, OPTIMIZER))
    assert float(of(joined, job).optimizer_bytes[0]) == float(of(alone, job).optimizer_bytes[0]) / 8
    job = eight_gpus()
    alone = Layout(data_parallel_shard_degree=4, data_parallel_replicate_degree=2, shard_level=OPTIMIZER)
    joined = Layout(data_parallel_shard_degree=4, context_parallel_degree=2, shard_level=OPTIMIZER)
    assert float(of(joined, job).optimizer_bytes[0]) == float(of(alone, job).optimizer_bytes[0]) / 2
    demo, random, full = (memory(sync) for sync in (GradientSync.DEMO, GradientSync.RANDOM, GradientSync.FULL))
    assert demo.buffers_bytes > random.buffers_bytes > full.buffers_bytes
    # Eight of them, a component of sixteen each.
    wide, narrow = (memory(GradientSync.DEMO, payload_precision=one) for one in PayloadPrecision)
    gathered = 8 / 16 * num_elements()
    # the step of the optimizer is the fullest moment of both, so nothing else hides the difference
    assert wide.buffers_bytes - narrow.buffers_bytes == pytest.approx(2 * gathered, rel=1e-9)


EXPERTS = MixtureOfExperts(num_experts=8, experts_per_token=2, expert_ffn_size=8192)


def test_experts_share_the_optimizer_by_their_ranks_and_leave_some_without_where_ranks_are_more() -> None:
    # 8 ranks own everything once, whether experts are sharded over all of them or dealt out whole
    job = replace(eight_gpus(), model=llama_70b(num_layers=8, experts=EXPERTS))
    together = Layout(data_parallel_shard_degree=8, shard_level=OPTIMIZER)
    apart = replace(together, expert_parallel_degree=8)
    assert of(apart, job).optimizer_bytes[0] == pytest.approx(of(together, job).optimizer_bytes[0], rel=1e-12)
    experts = MixtureOfExperts(num_experts=8, experts_per_token=2, expert_ffn_size=1024)
    layout = Layout(data_parallel_shard_degree=32, shard_level=ShardLevel.PARAMETERS)
    base = replace(big_job(), model=llama_70b(experts=experts))
    ranks = [
        float(Sharding.of(columns(layout), replace(base, stack=Stack(shards_whole_experts=flag))).expert_ranks[0])
        for flag in (True, False)
    ]
    assert ranks == [8, 32]
