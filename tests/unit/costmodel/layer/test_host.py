from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotuner.core.accelerator import CoreTimes, PassTimes, ShardTimes, SplitTimes
from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.choices import Recompute
from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.workload import Workload
from autotuner.costmodel.layer.host import (
    COMPILED_KERNELS_PER_LAYER,
    KERNELS_PER_EXPERT,
    KERNELS_PER_LAYER,
    KERNELS_PER_ROUTING,
    LAUNCHES_PER_COLLECTIVE,
    LAUNCHES_PER_DISPATCH_WAIT,
    ends_host_s,
    layer_host_s,
    recompute_host_s,
    shard_host_s,
)
from autotuner.costmodel.predict import predict_one
from tests.builders import cpu_layout, h100_cluster, tiny_job, tiny_model
from tests.unit.costmodel.works import TENSOR, first, layer, with_stack


def small_job(**stack: Any) -> Job:
    """One sequence of one token: the device has next to nothing to do."""
    job = Job(model=tiny_model(), cluster=h100_cluster(), workload=Workload(seq_len=1, global_batch_size=1))
    return with_stack(job, **stack)


def test_the_host_is_waited_for_where_kernels_are_short_and_always_on_a_cpu() -> None:
    long = layer(Layout(), with_stack(kernel_launch_s=5e-6))
    assert first(long.host_s) < 1e-6 * first(long.compute_s)  # which is a hundred times as long as the launches
    short = layer(Layout(), small_job(kernel_launch_s=1.0))
    # as long forward as backward; the device's own microseconds are hidden under that
    assert first(short.compute_s) == pytest.approx(2 * KERNELS_PER_LAYER, rel=1e-12)  # rounding
    assert first(short.host_s) == pytest.approx(2 * KERNELS_PER_LAYER, rel=1e-3)
    job = tiny_job(1, workload=Workload(seq_len=2048, global_batch_size=8))
    work = layer(cpu_layout(), job)
    launch_s = job.cluster.accelerator.kernel_launch_s
    assert first(work.host_s) == pytest.approx(2 * KERNELS_PER_LAYER * launch_s, rel=1e-12)  # rounding
    assert first(work.matrix_s) > 10 * first(work.host_s)


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
    dispatch = 2 * 2 * LAUNCHES_PER_COLLECTIVE + LAUNCHES_PER_DISPATCH_WAIT  # it waits in the forward pass alone
    assert sparse - plain == pytest.approx(2 * KERNELS_PER_ROUTING + dispatch, rel=1e-3)


def test_experts_that_multiply_one_by_one_and_layers_that_are_not_compiled_launch_more_kernels() -> None:
    experts = MixtureOfExperts(num_experts=8, experts_per_token=2, expert_ffn_size=64)
    alone, grouped = (
        first(layer(Layout(), replace(job, model=tiny_model(experts=experts)), sparse=True).host_s)
        for job in (small_job(kernel_launch_s=1.0, groups_experts=flag) for flag in (False, True))
    )
    assert alone - grouped == pytest.approx(2 * 7 * KERNELS_PER_EXPERT, rel=1e-3)  # both passes
    eager, compiled = (
        first(layer(Layout(compiled=c), small_job(kernel_launch_s=1.0)).compute_s) for c in (False, True)
    )
    # 1e-3: the device's own microseconds
    assert eager - compiled == pytest.approx(2 * (KERNELS_PER_LAYER - COMPILED_KERNELS_PER_LAYER), rel=1e-3)


def test_steps_of_tensor_groups_and_sends_that_cross_nodes_hold_the_host_up() -> None:
    job = small_job(tensor_wait_s=1.0)
    apart, within = (first(layer(TENSOR, job, sends_cross=c).host_s) for c in (True, False))
    # two all-reduces of 2 x 7 steps, forward and backward; 1e-3: the device's own microseconds
    assert apart == pytest.approx(2 * 2 * 2 * 7, rel=1e-3)
    lone = first(layer(Layout(), job, sends_cross=True).host_s)
    assert [within, lone] == pytest.approx([0.0, 0.0], abs=1e-15)  # rounding
    job = small_job(kernel_launch_s=0.0, tensor_wait_s=1.0)
    waits = [first(layer(replace(TENSOR, tensor_parallel_degree=tensor), job).host_s) for tensor in (8, 16, 32)]
    # forward and backward, two all-reduces each, twice around a ring of 1, 2 and 4 nodes; 1e-3: the device's own time
    assert waits == pytest.approx([0.0, 2 * 4 * 1, 2 * 4 * 3], rel=1e-3, abs=1e-6)


def both(forward_s: float, backward_s: float) -> PassTimes:
    return PassTimes(forward_s=forward_s, backward_s=backward_s)


CORE = CoreTimes(
    layer=both(1.0, 2.0),
    ends=both(3.0, 4.0),
    selective=both(0.5, 0.25),
    full=both(0.125, 0.0625),
    sharded=ShardTimes(num_ranks=4, gather_s=30.0, reduce_s=60.0),
    split=(
        SplitTimes(num_ranks=2, sequence_parallel=False, layer=both(10.0, 20.0), ends=both(30.0, 40.0)),
        SplitTimes(num_ranks=4, sequence_parallel=False, layer=both(20.0, 30.0), ends=both(50.0, 60.0)),
        SplitTimes(num_ranks=2, sequence_parallel=True, layer=both(100.0, 200.0), ends=both(0.0, 0.0)),
    ),
    pointwise_bytes_per_s=1e9,
)


def columns(layout: Layout) -> LayoutColumns:
    return LayoutColumns.from_layouts([layout])


@pytest.mark.parametrize(
    ("layout", "seconds"),
    [
        (Layout(), (1.0, 2.0)),
        (Layout(tensor_parallel_degree=2), (11.0, 22.0)),
        (Layout(tensor_parallel_degree=2, sequence_parallel=True), (101.0, 202.0)),
        (Layout(tensor_parallel_degree=3), (16.0, 27.0)),  # half way between 2 and 4
        (Layout(tensor_parallel_degree=8), (21.0, 32.0)),  # as 4, the most that were measured
    ],
    ids=str,
)
def test_tensor_ranks_add_what_was_measured_of_as_many(layout: Layout, seconds: tuple[float, float]) -> None:
    forward_s, backward_s = layer_host_s(columns(layout), CORE)
    assert (forward_s[0], backward_s[0]) == pytest.approx(seconds)


def test_ends_shards_and_layers_take_the_seconds_that_a_core_was_measured_with() -> None:
    forward_s, backward_s = ends_host_s(columns(Layout(tensor_parallel_degree=2)), CORE)
    assert (forward_s[0], backward_s[0]) == (33.0, 44.0)
    gather_s, reduce_s = shard_host_s(np.array([1, 2, 4]), CORE)
    assert gather_s.tolist() == [0.0, 10.0, 30.0]
    assert reduce_s.tolist() == [0.0, 20.0, 60.0]
    job = tiny_job()
    core = replace(job.cluster.accelerator, core=CORE)
    measured = replace(job, cluster=replace(job.cluster, accelerator=core))
    layout = cpu_layout()
    num_micro_batches = job.workload.num_micro_batches(layout)
    host_s = num_micro_batches * (job.model.num_layers * (1.0 + 2.0) + 3.0 + 4.0)
    assert predict_one(layout, measured).step_time.host_s == pytest.approx(host_s)


def test_selective_recomputation_calls_every_operation_again_with_its_dispatch_and_no_waiting() -> None:
    def recomputed(recompute: Recompute) -> tuple[float, float]:
        forward_s, backward_s = recompute_host_s(columns(Layout(recompute=recompute)), CORE)
        return float(forward_s[0]), float(backward_s[0])

    assert recomputed(Recompute.NONE) == (0.0, 0.0)
    assert recomputed(Recompute.SELECTIVE) == (0.5, 0.25 + 1.0)
    assert recomputed(Recompute.FULL) == (0.125, 0.0625)
    split = SplitTimes(
        num_ranks=2, sequence_parallel=False, layer=both(10.0, 20.0), ends=both(0.0, 0.0), dispatch_s=7.0
    )
    layout = Layout(tensor_parallel_degree=2, recompute=Recompute.SELECTIVE)
    _, backward_s = recompute_host_s(columns(layout), replace(CORE, split=(split,)))
    assert backward_s[0] == 0.25 + 1.0 + 7.0
