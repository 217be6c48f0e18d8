from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotuner.core.choices import CollectiveHierarchy, GradientSync, PipelineSchedule, ShardLevel
from autotuner.core.columns import LayoutColumns
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict_one
from autotuner.costmodel.resource_cost import TrafficColumns
from autotuner.costmodel.scenarios import REPLAN_STEPS, predicted_under
from tests.builders import cpu_layout, h100_cluster, tiny_job, tiny_model

# ---------------------------------------------------------------- Tests of `autotuner.costmodel.resource_cost`
REPLICAS = Layout(data_parallel_replicate_degree=16)
SHARDS = Layout(data_parallel_shard_degree=16, shard_level=ShardLevel.PARAMETERS)
STAGES = Layout(pipeline_parallel_degree=2, data_parallel_replicate_degree=8)


def job(num_nodes: int = 2) -> Job:
    workload = Workload(seq_len=64, global_batch_size=32)
    return Job(model=tiny_model(), cluster=h100_cluster(num_nodes), workload=workload)


def traffic(layout: Layout, of: Job) -> TrafficColumns:
    return TrafficColumns.of(LayoutColumns.from_layouts([layout]), of)


@pytest.mark.parametrize("layout", [REPLICAS, STAGES, replace(SHARDS, tensor_parallel_degree=1)], ids=str)
def test_nothing_leaves_a_single_node(layout: Layout) -> None:
    halved = replace(layout, data_parallel_replicate_degree=max(1, layout.data_parallel_replicate_degree // 2))
    halved = replace(halved, data_parallel_shard_degree=max(1, layout.data_parallel_shard_degree // 2))
    assert traffic(halved, job(1)).total_bytes == 0


def test_gradients_of_replicas_leave_each_node_as_around_a_ring() -> None:
    gradients_bytes = 2 * tiny_model().num_parameters
    found = traffic(REPLICAS, job())
    assert found.data_bytes == pytest.approx(2 * 2 * 15 / 16 * gradients_bytes)  # a float product
    assert found.total_bytes == found.data_bytes


def test_two_levels_send_between_nodes_alone_what_nodes_have_summed() -> None:
    flat, two_level = (
        traffic(replace(REPLICAS, collective_hierarchy=one), job()).data_bytes for one in CollectiveHierarchy
    )
    assert two_level / flat == pytest.approx((1 / 2) / (15 / 16))  # a float quotient


def test_sharded_parameters_are_gathered_and_scattered_for_every_micro_batch() -> None:
    parameters_bytes, num_micro_batches = 2 * tiny_model().num_parameters, 2
    passes = num_micro_batches * 2  # one gather and one scatter
    expected_bytes = passes * 2 * 15 / 16 * parameters_bytes
    assert traffic(SHARDS, job()).data_bytes == pytest.approx(expected_bytes)  # a float product
    resharded = traffic(replace(SHARDS, reshard_after_forward=True), job()).data_bytes
    assert resharded == pytest.approx(1.5 * expected_bytes)  # gathered once more


def test_stages_on_two_nodes_send_hidden_states_and_their_gradients_over_one_hop() -> None:
    found, num_micro_batches = traffic(STAGES, job()), 4
    hidden_bytes = 2 * 64 * tiny_model().hidden_size
    assert found.pipeline_bytes == pytest.approx(8 * 2 * num_micro_batches * hidden_bytes)  # a float product
    assert found.data_bytes == 0  # replicas of a stage share a node


def test_what_is_sparse_leaves_as_little_as_is_sent() -> None:
    full, sparse = (
        traffic(replace(REPLICAS, gradient_sync=one, sync_sparsity=16), job()).data_bytes
        for one in (GradientSync.FULL, GradientSync.RANDOM)
    )
    assert sparse / full == pytest.approx(2 / 16)  # one element of 16, in fp32 where gradients are in bf16


def test_rows_of_a_table_are_those_of_its_layouts() -> None:
    table = TrafficColumns.of(LayoutColumns.from_layouts([REPLICAS, SHARDS, STAGES]), job())
    alone = [traffic(layout, job()).total_bytes[0] for layout in (REPLICAS, SHARDS, STAGES)]
    np.testing.assert_array_equal(table.total_bytes, alone)


# ---------------------------------------------------------------- scenarios
TRACE = FaultTrace.parse("5;2_3;0.06\n15;2_3;0", num_steps=20)


def pp4(schedule: PipelineSchedule) -> Layout:
    return cpu_layout(pipeline_parallel_degree=4, micro_batch_size=1, pipeline_schedule=schedule)


def while_slow(job: Job) -> Job:
    (slow,) = (stretch.links for stretch in TRACE.stretches() if stretch.links)
    return replace(job, cluster=replace(job.cluster, link_health=slow))


def test_without_a_trace_nothing_is_said_of_one() -> None:
    predicted = predicted_under(pp4(PipelineSchedule.ONE_F_ONE_B), tiny_job(4), None)
    assert (predicted.robust_step_s, predicted.robust_mfu) == (None, None)


def test_a_trace_takes_what_its_stretches_take_each_on_its_own_links() -> None:
    job, layout = tiny_job(4), pp4(PipelineSchedule.ZERO_BUBBLE)
    healthy, slow = (predict_one(layout, one).step_time.total_s for one in (job, while_slow(job)))
    predicted = predicted_under(layout, job, TRACE)
    assert predicted.robust_step_s == pytest.approx((10 * healthy + 10 * slow) / 20)  # a float sum
    assert predicted.robust_mfu == pytest.approx(predicted.mfu * healthy / (predicted.robust_step_s or 0.0))


def test_an_adaptive_layout_follows_its_old_plan_for_two_steps_of_each_change_for_the_worse() -> None:
    job = tiny_job(4)
    adaptive, fixed = (pp4(one) for one in (PipelineSchedule.ADAPTIVE, PipelineSchedule.ZERO_BUBBLE))
    healthy, slow = (predict_one(adaptive, one).step_time.total_s for one in (job, while_slow(job)))
    late = max(slow, predict_one(fixed, while_slow(job)).step_time.total_s)
    total_s = 10 * healthy + (10 - REPLAN_STEPS) * slow + REPLAN_STEPS * late
    assert predicted_under(adaptive, job, TRACE).robust_step_s == pytest.approx(total_s / 20)  # a float sum
