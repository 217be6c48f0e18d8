"""Waiting for the host."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.workload import Workload
from autotuner.costmodel.kernels.launch_overhead import (
    COMPILED_KERNELS_PER_LAYER,
    KERNELS_PER_EXPERT,
    KERNELS_PER_LAYER,
    KERNELS_PER_ROUTING,
    LAUNCHES_PER_COLLECTIVE,
    LAUNCHES_PER_DISPATCH_WAIT,
)
from tests.builders import cpu_layout, h100_cluster, tiny_job, tiny_model
from tests.unit.costmodel.works import TENSOR, first, layer, with_stack


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
    dispatch = 2 * 2 * LAUNCHES_PER_COLLECTIVE + LAUNCHES_PER_DISPATCH_WAIT  # it waits in the forward pass alone
    assert sparse - plain == pytest.approx(2 * KERNELS_PER_ROUTING + dispatch, rel=1e-3)


def test_experts_that_multiply_one_by_one_are_launched_one_by_one() -> None:
    experts = MixtureOfExperts(num_experts=8, experts_per_token=2, expert_ffn_size=64)
    alone, grouped = (
        first(layer(Layout(), replace(job, model=tiny_model(experts=experts)), sparse=True).host_s)
        for job in (small_job(kernel_launch_s=1.0, groups_experts=flag) for flag in (False, True))
    )
    assert alone - grouped == pytest.approx(2 * 7 * KERNELS_PER_EXPERT, rel=1e-3)  # both passes


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


def test_a_compiled_layer_launches_fewer_kernels() -> None:
    eager, compiled = (
        first(layer(Layout(compiled=c), small_job(kernel_launch_s=1.0)).compute_s) for c in (False, True)
    )
    # 1e-3: the device's own microseconds
    assert eager - compiled == pytest.approx(2 * (KERNELS_PER_LAYER - COMPILED_KERNELS_PER_LAYER), rel=1e-3)


def test_steps_of_a_tensor_group_that_cross_nodes_hold_the_host_up() -> None:
    job = small_job(kernel_launch_s=0.0, tensor_wait_s=1.0)
    waits = [first(layer(replace(TENSOR, tensor_parallel_degree=tensor), job).host_s) for tensor in (8, 16, 32)]
    # forward and backward, two all-reduces each, twice around a ring of 1, 2 and 4 nodes; 1e-3: the device's own time
    assert waits == pytest.approx([0.0, 2 * 4 * 1, 2 * 4 * 3], rel=1e-3, abs=1e-6)
