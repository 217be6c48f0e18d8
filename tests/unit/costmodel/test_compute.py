"""Time of passes: products, attention, memory traffic, the host, and the collectives between."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotuner.catalog.load import accelerators, load_cluster
from autotuner.costmodel.columns import Floats, LayoutColumns
from autotuner.costmodel.compute import (
    KERNELS_PER_LAYER,
    KERNELS_PER_ROUTING,
    LAUNCHES_PER_COLLECTIVE,
    input_work,
    layer_work,
    optimizer_s,
    output_work,
    tokens_per_pass,
)
from autotuner.costmodel.work import Work
from autotuner.domain.choice import AttentionKernel, Precision, Recompute
from autotuner.domain.layout import Layout
from autotuner.domain.legality import Job
from autotuner.domain.model import MixtureOfExperts
from autotuner.domain.stack import Stack
from autotuner.domain.workload import Workload
from tests.builders import big_job, cpu_layout, h100, h100_cluster, llama_70b, tiny_job, tiny_model

TENSOR = Layout(tensor_parallel_degree=8)


def columns(*layouts: Layout) -> LayoutColumns:
    return LayoutColumns.from_layouts(layouts)


def layer(layout: Layout, job: Job | None = None, **where: bool) -> Work:
    return layer_work(columns(layout), job or big_job(), **{"sparse": False, **where})


def output(layout: Layout, job: Job | None = None) -> Work:
    return output_work(columns(layout), job or big_job())


def first(values: Floats) -> float:
    return float(values[0])


PLAIN = Stack(kernel_launch_s=0.0, matrix_slowdown=1.0, pointwise_traffic=1.0, step_overhead_s=0.0)
"""Launches at once and is as fast as benchmarks of kernels."""


def with_stack(job: Job | None = None, **fields: Any) -> Job:
    return replace(job or big_job(), stack=replace(PLAIN, **fields))


# ---------------------------------------------------------------- computation
def test_a_large_layer_runs_near_the_rate_of_its_products() -> None:
    job, work = big_job(), layer(Layout())
    model_flop = 3 * (2 * 8192 * (job.model.attention_matrix_parameters + job.model.mlp_matrix_parameters))
    at_peak_s = model_flop / 989.4e12
    # products reach 70 to 80 % of the peak on an H100 that keeps 85 % or more of its clock
    assert at_peak_s / 0.8 < first(work.matrix_s) < at_peak_s / 0.55
    assert first(work.compute_s) < at_peak_s / 0.4  # with attention and norms


@pytest.mark.parametrize("kernel", list(AttentionKernel))
def test_recomputation_takes_time_in_the_order_of_what_it_repeats(kernel: AttentionKernel) -> None:
    none, selective, full = (layer(Layout(attention_kernel=kernel, recompute=r)) for r in Recompute)
    assert first(none.recompute_s) == 0.0 < first(selective.recompute_s) < first(full.recompute_s)
    assert first(none.compute_s) == first(selective.compute_s) == first(full.compute_s)
    # a third, less where flash attention multiplies 2.5 times as much backward, more where unfused kernels pass over
    # their scores as often forward as backward
    assert 0.30 < first(full.recompute_s) / first(full.compute_s) < 0.42


def test_only_attention_depends_on_its_kernel_and_newer_ones_are_faster() -> None:
    order = (
        AttentionKernel.FLASH_3,
        AttentionKernel.FLASH,
        AttentionKernel.EFFICIENT,
        AttentionKernel.FUSED_SOFTMAX,
        AttentionKernel.MATH,
    )
    works = [layer(Layout(attention_kernel=kernel)) for kernel in order]
    seconds = [first(work.attention_s) for work in works]
    assert seconds == sorted(seconds)
    assert len({first(work.matrix_s + work.pointwise_s) for work in works}) == 1


def test_fewer_bits_multiply_faster() -> None:
    fp32, bf16, fp8 = (
        first(layer(Layout(precision=p, attention_kernel=AttentionKernel.MATH)).matrix_s) for p in Precision
    )
    assert fp32 > bf16 > fp8


def test_the_output_projection_stays_in_bf16_where_layers_multiply_in_fp8() -> None:
    bf16, fp8 = (output(Layout(precision=p)) for p in (Precision.BF16, Precision.FP8))
    assert first(bf16.matrix_s) == first(fp8.matrix_s)


def test_products_slow_down_with_the_sustained_clock_and_memory_does_not() -> None:
    cold, warm = (
        layer(Layout(), replace(big_job(), cluster=h100_cluster(accelerator=h100(sustained_share=share))))
        for share in (1.0, 0.5)
    )
    assert first(warm.matrix_s) == pytest.approx(2 * first(cold.matrix_s), rel=1e-12)  # rounding
    assert first(warm.attention_s) == pytest.approx(2 * first(cold.attention_s), rel=1e-12)
    assert first(warm.pointwise_s) == first(cold.pointwise_s)


def test_an_output_projection_takes_longer_than_a_lookup() -> None:
    x, job = columns(Layout()), big_job()
    assert first(output_work(x, job).compute_s) > 10 * first(input_work(x, job).compute_s)


def test_the_forward_and_the_weight_gradients_are_shares_of_the_work() -> None:
    for recompute in Recompute:
        work = layer(replace(TENSOR, recompute=recompute))
        assert 0 < first(work.weight_gradient_s) < first(work.matrix_s)
        assert 0 < first(work.forward_s) < first(work.total_s)
        assert 0 < first(work.backward_s) <= first(work.compute_s + work.recompute_s)


@pytest.mark.parametrize("name", [name for name in accelerators() if name not in {"v100", "mi300x"}])
def test_every_device_of_the_catalog_times_a_layer_in_bf16(name: str) -> None:
    layout = Layout(attention_kernel=AttentionKernel.MATH)
    work = layer(layout, replace(big_job(), cluster=load_cluster(f"{name}:1")))
    assert np.isfinite(work.seconds).all()
    assert first(work.matrix_s) > 0 < first(work.attention_s)


def test_norms_of_elementary_operations_take_longer_than_fused_ones_and_nothing_else_does() -> None:
    fused, plain = (layer(Layout(fused_norm=f)) for f in (True, False))
    assert first(plain.pointwise_s) > first(fused.pointwise_s)
    assert first(plain.matrix_s + plain.attention_s) == first(fused.matrix_s + fused.attention_s)
    halves = [layer(Layout(fused_norm=f), with_stack(unfused_norm_traffic=0.0)) for f in (True, False)]
    assert first(halves[0].pointwise_s) == first(halves[1].pointwise_s)


# ---------------------------------------------------------------- what the stack adds
def test_a_stack_slows_products_and_their_neighbours_by_its_own_factors() -> None:
    plain, slow = layer(Layout(), with_stack()), layer(Layout(), with_stack(matrix_slowdown=1.5, pointwise_traffic=2.0))
    assert first(slow.matrix_s) == pytest.approx(1.5 * first(plain.matrix_s), rel=1e-12)  # rounding
    assert first(slow.pointwise_s) == pytest.approx(2.0 * first(plain.pointwise_s), rel=1e-12)
    assert first(slow.attention_s) == first(plain.attention_s)


def small_job(**stack: Any) -> Job:
    """One sequence of one token: the device has next to nothing to do."""
    job = Job(model=tiny_model(), cluster=h100_cluster(), workload=Workload(seq_len=1, global_batch_size=1))
    return with_stack(job, **stack)


def test_the_host_is_waited_for_only_where_kernels_are_shorter_than_their_launches() -> None:
    long = layer(Layout(), with_stack(kernel_launch_s=5e-6))
    assert first(long.host_s) < 1e-6 * first(long.compute_s)  # which is a hundred times as long as the launches
    short = layer(Layout(), small_job(kernel_launch_s=1.0))
    # as long forward as backward; the device's own microseconds are hidden under that
    assert first(short.compute_s) == pytest.approx(2 * KERNELS_PER_LAYER, rel=1e-12)  # rounding
    assert first(short.host_s) == pytest.approx(2 * KERNELS_PER_LAYER, rel=1e-3)


def test_where_launches_cost_nothing_the_device_never_waits_for_the_host() -> None:
    assert first(layer(TENSOR, with_stack(kernel_launch_s=0.0)).host_s) == pytest.approx(0.0, abs=1e-15)  # rounding


def test_collectives_and_routing_are_launched_too() -> None:
    job = replace(
        small_job(kernel_launch_s=1.0),
        model=tiny_model(experts=MixtureOfExperts(num_experts=8, experts_per_token=2, expert_ffn_size=64)),
    )
    plain, split, sharded, sparse = (
        first(layer(layout, job, sparse=layout == Layout(expert_parallel_degree=8)).host_s)
        for layout in (Layout(), TENSOR, replace(TENSOR, sequence_parallel=True), Layout(expert_parallel_degree=8))
    )
    # 1e-3: the device's own microseconds
    assert split - plain == pytest.approx(2 * 2 * LAUNCHES_PER_COLLECTIVE, rel=1e-3)
    assert sharded - plain == pytest.approx(2 * 4 * LAUNCHES_PER_COLLECTIVE, rel=1e-3)
    assert sparse - plain == pytest.approx(2 * KERNELS_PER_ROUTING, rel=1e-3)


def test_a_tensor_group_waits_for_the_network_only_while_pipeline_sends_cross_nodes() -> None:
    job = small_job(tensor_wait_s=1.0)
    apart, within = (first(layer(TENSOR, job, sends_cross=c).host_s) for c in (True, False))
    # two all-reduces of 2 x 7 steps, forward and backward; 1e-3: the device's own microseconds
    assert apart == pytest.approx(2 * 2 * 2 * 7, rel=1e-3)
    lone = first(layer(Layout(), job, sends_cross=True).host_s)
    assert [within, lone] == pytest.approx([0.0, 0.0], abs=1e-15)  # rounding


def test_on_a_cpu_launches_always_take_time_since_the_core_that_launches_computes() -> None:
    job = tiny_job(1, workload=Workload(seq_len=2048, global_batch_size=8))
    work = layer(cpu_layout(), job)
    launch_s = job.cluster.accelerator.kernel_launch_s
    assert first(work.host_s) == pytest.approx(2 * KERNELS_PER_LAYER * launch_s, rel=1e-12)  # rounding
    assert first(work.matrix_s) > 10 * first(work.host_s)


def test_gathered_logits_cost_a_collective_and_the_whole_loss_on_every_tensor_rank() -> None:
    split, whole = (output(TENSOR, with_stack(gathers_logits=g)) for g in (False, True))
    assert first(whole.tensor_s) > first(split.tensor_s)
    assert first(whole.pointwise_s) == pytest.approx(8 * first(split.pointwise_s), rel=1e-12)  # rounding
    assert first(whole.matrix_s) == first(split.matrix_s)
    lone = [output(Layout(), with_stack(gathers_logits=g)) for g in (False, True)]
    assert lone[0].seconds.tolist() == lone[1].seconds.tolist()


def test_a_fused_loss_moves_less_memory() -> None:
    steps, fused = (output(Layout(), with_stack(fuses_loss=f)) for f in (False, True))
    assert first(fused.pointwise_s) < first(steps.pointwise_s) / 2
    assert first(fused.matrix_s) == first(steps.matrix_s)


# ---------------------------------------------------------------- collectives
def test_tensor_ranks_split_the_computation_and_add_communication() -> None:
    alone, split = layer(Layout()), layer(TENSOR)
    assert first(alone.tensor_s) == 0.0 < first(split.tensor_s)
    assert first(alone.compute_s) / 8 < first(split.compute_s) < first(alone.compute_s) / 5


def test_sequence_parallelism_splits_the_norms_and_computes_the_same_products() -> None:
    plain, split = (layer(replace(TENSOR, sequence_parallel=s)) for s in (False, True))
    assert first(split.pointwise_s) < first(plain.pointwise_s)
    assert first(split.matrix_s) == first(plain.matrix_s)


def test_full_recomputation_repeats_the_collectives_of_the_forward() -> None:
    once, again = layer(TENSOR), layer(replace(TENSOR, recompute=Recompute.FULL))
    assert first(again.tensor_s) == pytest.approx(1.5 * first(once.tensor_s), rel=1e-12)  # rounding only


def test_context_ranks_split_the_tokens_and_exchange_keys() -> None:
    layout = Layout(context_parallel_degree=4)
    assert tokens_per_pass(columns(layout), big_job()).tolist() == [2048.0]
    assert first(layer(layout).context_s) > 0.0 == first(layer(Layout()).context_s)


def sparse_job() -> Job:
    experts = MixtureOfExperts(num_experts=8, experts_per_token=2, expert_ffn_size=14336)
    return replace(big_job(), model=llama_70b(experts=experts))


def test_expert_ranks_pay_for_the_dispatch_and_lone_experts_do_not() -> None:
    lone, apart = (layer(Layout(expert_parallel_degree=e), sparse_job(), sparse=True) for e in (1, 8))
    assert first(lone.expert_s) == 0.0 < first(apart.expert_s)


def test_expert_ranks_multiply_as_much_as_ranks_that_hold_every_expert() -> None:
    lone, apart = (layer(Layout(expert_parallel_degree=e), sparse_job(), sparse=True) for e in (1, 8))
    # the same tokens in fewer, larger products: a little faster
    assert 0.8 * first(lone.matrix_s) < first(apart.matrix_s) <= first(lone.matrix_s)


# ---------------------------------------------------------------- optimizer
def test_the_optimizer_moves_its_state_once() -> None:
    x = columns(cpu_layout())
    job = with_stack(tiny_job(1))
    # in fp32: read and write weight and two moments, read the gradient: 28 bytes at 85 % of 10 GB/s; rounding only
    assert first(optimizer_s(x, job, np.array([1e9]))) == pytest.approx(28 / (0.85 * 10), rel=1e-12)


def test_what_a_stack_does_once_a_step_is_added_to_the_optimizer() -> None:
    x, nothing = columns(Layout()), np.zeros(1)
    seconds = (first(optimizer_s(x, with_stack(step_overhead_s=s), nothing)) for s in (0.0, 0.5))
    assert list(seconds) == [0.0, 0.5]
