"""What a step sends, draws, costs and bears of faults."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotuner.core.choices import CollectiveHierarchy, GradientSync, PipelineSchedule, Recompute, ShardLevel
from autotuner.core.cluster import Tariff
from autotuner.core.columns import LayoutColumns
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.measurement import Power, ResourceCost
from autotuner.core.objective import Metric, Objective, Weight
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict, predict_one
from autotuner.costmodel.resource_cost import (
    IDLE_SHARE,
    TrafficColumns,
    predicted_resource_costs,
    resource_cost_of,
    value_per_step,
)
from autotuner.costmodel.scenarios import REPLAN_STEPS, predict_under, predicted_under
from tests.builders import big_job, cpu_layout, h100_cluster, measurement, present, tiny_job, tiny_model

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


def test_bytes_that_leave_nodes_are_those_of_gradients_parameters_and_hidden_states() -> None:
    gradients_bytes = 2 * tiny_model().num_parameters
    found = traffic(REPLICAS, job())
    assert found.data_bytes == pytest.approx(2 * 2 * 15 / 16 * gradients_bytes)  # a float product
    assert found.total_bytes == found.data_bytes
    parameters_bytes, num_micro_batches = 2 * tiny_model().num_parameters, 2
    passes = num_micro_batches * 2  # one gather and one scatter
    expected_bytes = passes * 2 * 15 / 16 * parameters_bytes
    assert traffic(SHARDS, job()).data_bytes == pytest.approx(expected_bytes)  # a float product
    resharded = traffic(replace(SHARDS, reshard_after_forward=True), job()).data_bytes
    assert resharded == pytest.approx(1.5 * expected_bytes)  # gathered once more
    found, num_micro_batches = traffic(STAGES, job()), 4
    hidden_bytes = 2 * 64 * tiny_model().hidden_size
    assert found.pipeline_bytes == pytest.approx(8 * 2 * num_micro_batches * hidden_bytes)  # a float product
    assert found.data_bytes == 0  # replicas of a stage share a node


def test_hierarchical_and_sparse_sums_leave_a_node_with_only_the_bytes_that_are_sent() -> None:
    flat, two_level = (
        traffic(replace(REPLICAS, collective_hierarchy=one), job()).data_bytes for one in CollectiveHierarchy
    )
    assert two_level / flat == pytest.approx((1 / 2) / (15 / 16))  # a float quotient
    full, sparse = (
        traffic(replace(REPLICAS, gradient_sync=one, sync_sparsity=16), job()).data_bytes
        for one in (GradientSync.FULL, GradientSync.RANDOM)
    )
    assert sparse / full == pytest.approx(2 / 16)  # one element of 16, in fp32 where gradients are in bf16


def test_rows_and_columns_of_resource_costs_and_bytes_are_those_of_their_layouts() -> None:
    table = TrafficColumns.of(LayoutColumns.from_layouts([REPLICAS, SHARDS, STAGES]), job())
    alone = [traffic(layout, job()).total_bytes[0] for layout in (REPLICAS, SHARDS, STAGES)]
    np.testing.assert_array_equal(table.total_bytes, alone)
    of = priced(host_power_w=100.0, energy_price_per_kwh=0.1, co2_kg_per_kwh=0.3)
    columns = predicted_resource_costs(LAYOUTS, of, predict_under(LAYOUTS, of, None))
    for index, layout in enumerate((SHARDED, SPLIT)):
        row, by_itself = columns.row(index), one(of, layout)
        assert row.price_per_hour == pytest.approx(by_itself.price_per_hour, rel=1e-12)  # sums of as many parts
        assert row.co2_kg_per_hour == pytest.approx(by_itself.co2_kg_per_hour, rel=1e-12)
        assert row.complexity == by_itself.complexity


# ---------------------------------------------------------------- scenarios
TRACE = FaultTrace.parse("5;2_3;0.06\n15;2_3;0", num_steps=20)


def pp4(schedule: PipelineSchedule) -> Layout:
    return cpu_layout(pipeline_parallel_degree=4, micro_batch_size=1, pipeline_schedule=schedule)


def while_slow(job: Job) -> Job:
    (slow,) = (stretch.links for stretch in TRACE.stretches() if stretch.links)
    return replace(job, cluster=replace(job.cluster, link_health=slow))


def test_a_trace_takes_what_its_stretches_take_and_leaves_that_of_the_throughput() -> None:
    predicted = predicted_under(pp4(PipelineSchedule.ONE_F_ONE_B), tiny_job(4), None)
    assert (predicted.robust_step_s, predicted.robust_mfu) == (None, None)
    job, layout = tiny_job(4), pp4(PipelineSchedule.ZERO_BUBBLE)
    healthy, slow = (predict_one(layout, one).step_time.total_s for one in (job, while_slow(job)))
    predicted = predicted_under(layout, job, TRACE)
    assert predicted.robust_step_s == pytest.approx((10 * healthy + 10 * slow) / 20)  # a float sum
    assert predicted.robust_mfu == pytest.approx(predicted.mfu * healthy / (predicted.robust_step_s or 0.0))
    trace = FaultTrace.parse("5;0_1;0.06\n15;0_1;0", num_steps=20)
    layout, of = cpu_layout(data_parallel_replicate_degree=2), tiny_job(2)
    predicted = predicted_under(layout, of, trace)
    left = predicted.step_time.total_s / (predicted.robust_step_s or 0.0)
    assert 0 < left < 1
    assert resource_cost_of(layout, of, predicted).robustness == left


def test_an_adaptive_layout_follows_its_old_plan_and_values_of_speed_need_no_resource_cost() -> None:
    job = tiny_job(4)
    adaptive, fixed = (pp4(one) for one in (PipelineSchedule.ADAPTIVE, PipelineSchedule.ZERO_BUBBLE))
    healthy, slow = (predict_one(adaptive, one).step_time.total_s for one in (job, while_slow(job)))
    late = max(slow, predict_one(fixed, while_slow(job)).step_time.total_s)
    total_s = 10 * healthy + (10 - REPLAN_STEPS) * slow + REPLAN_STEPS * late
    assert predicted_under(adaptive, job, TRACE).robust_step_s == pytest.approx(total_s / 20)  # a float sum
    of = priced()
    assert value_per_step(Objective(), of, None, 2).tolist() == [Objective().value_per_step(of)] * 2


SHARDED = Layout(data_parallel_shard_degree=64, shard_level=ShardLevel.PARAMETERS, recompute=Recompute.FULL)
SPLIT = Layout(data_parallel_shard_degree=8, shard_level=ShardLevel.PARAMETERS, tensor_parallel_degree=8)
LAYOUTS = LayoutColumns.from_layouts([SHARDED, SPLIT])

MIXED = Objective(profile=(Weight(metric=Metric.MFU, weight=2), Weight(metric=Metric.TOKENS_PER_DOLLAR, weight=1)))


def priced(**tariff: float | bool) -> Job:
    cluster = h100_cluster(8, price_per_accelerator_hour=2.0, tariff=Tariff(**tariff))  # type: ignore[arg-type]
    return replace(big_job(8), cluster=cluster)


def one(of: Job, layout: Layout = SHARDED) -> ResourceCost:
    return resource_cost_of(layout, of, predict_one(layout, of))


def power(resource_cost: ResourceCost) -> Power:
    return present(resource_cost.power)


def test_power_is_drawn_by_busy_accelerators_hosts_and_the_building_and_paid() -> None:
    of = priced()
    step = predict_one(SHARDED, of).step_time
    busy_s = step.matrix_s + step.attention_s + step.pointwise_s + step.recompute_s + step.optimizer_s
    expected_w = 64 * 700 * (IDLE_SHARE + (1 - IDLE_SHARE) * busy_s / step.total_s)
    assert power(one(of)).accelerators_w == pytest.approx(expected_w)  # the same sum in another order
    accelerator = replace(of.cluster.accelerator, idle_power_w=700.0)
    always = replace(of, cluster=replace(of.cluster, accelerator=accelerator))
    assert power(one(always)).accelerators_w == pytest.approx(64 * 700)  # a float product
    drawn = power(one(priced(host_power_w=100.0, power_usage_effectiveness=1.5)))
    assert drawn.hosts_w == 6400
    assert drawn.building_w == pytest.approx(0.5 * (drawn.accelerators_w + 6400))  # a float sum
    assert drawn.total_w == pytest.approx(1.5 * (drawn.accelerators_w + 6400))
    found = one(priced(energy_price_per_kwh=0.5))
    assert found.price_per_hour == pytest.approx(64 * 2.0 + 0.5 * power(found).total_w / 1000)  # a float sum
    found = one(priced(spot_price_per_accelerator_hour=1.0, is_spot=True, interrupted_share=0.2))
    assert found.price_per_hour == pytest.approx(64 * 1.0 / 0.8)  # a float quotient
    found = one(priced(co2_kg_per_kwh=0.25))
    assert found.co2_kg_per_hour == pytest.approx(0.25 * power(found).total_w / 1000)  # a float product
    of = priced(network_j_per_byte=2e-9)
    sent_bytes = TrafficColumns.of(LAYOUTS, of).total_bytes[0]
    step_s = predict_one(SHARDED, of).step_time.total_s
    assert power(one(of)).network_w == pytest.approx(2e-9 * sent_bytes / step_s)  # a float product


def test_measured_power_counts_before_modelled_and_what_is_not_known_says_nothing() -> None:
    of = tiny_job(2)
    found = one(of, cpu_layout(data_parallel_replicate_degree=2))
    assert (found.power, found.price_per_hour, found.co2_kg_per_hour) == (None, 0.0, 0.0)
    of = priced(energy_price_per_kwh=0.5)
    found = resource_cost_of(SHARDED, of, predict_one(SHARDED, of), measurement(), power_w=500.0)
    assert power(found).accelerators_w == 64 * 500
    assert power(found).is_measured
    assert found.price_per_hour == pytest.approx(64 * 2.0 + 0.5 * 32)  # a float sum


@pytest.mark.parametrize(
    "objective", [Objective(), *(Objective(metric=one) for one in Metric if one.is_rate), MIXED], ids=str
)
def test_the_values_per_step_of_columns_are_those_of_their_rows(objective: Objective) -> None:
    of = priced(co2_kg_per_kwh=0.3)
    resource_costs = predicted_resource_costs(LAYOUTS, of, predict(LAYOUTS, of))
    values = value_per_step(objective, of, resource_costs, len(LAYOUTS))
    rows = [objective.value_per_step(of, resource_costs.row(index)) for index in range(len(LAYOUTS))]
    np.testing.assert_allclose(values, rows, rtol=1e-12)  # the same product, by numpy's power
