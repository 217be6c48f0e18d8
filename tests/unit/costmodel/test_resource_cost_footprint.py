from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotuner.core.choices import Recompute, ShardLevel
from autotuner.core.cluster import Tariff
from autotuner.core.columns import LayoutColumns
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.measurement import Footprint, Power
from autotuner.core.objective import Metric, Objective, Weight
from autotuner.costmodel.predict import predict, predict_one
from autotuner.costmodel.resource_cost import (
    IDLE_SHARE,
    TrafficColumns,
    footprint_of,
    predicted_footprints,
    worth_per_step,
)
from autotuner.costmodel.scenarios import predict_under, predicted_under
from tests.builders import big_job, cpu_layout, h100_cluster, measurement, tiny_job

SHARDED = Layout(data_parallel_shard_degree=64, shard_level=ShardLevel.PARAMETERS, recompute=Recompute.FULL)
SPLIT = Layout(data_parallel_shard_degree=8, shard_level=ShardLevel.PARAMETERS, tensor_parallel_degree=8)
LAYOUTS = LayoutColumns.from_layouts([SHARDED, SPLIT])

MIXED = Objective(
    profile=(Weight(metric=Metric.MFU, weight=2), Weight(metric=Metric.TOKENS_PER_DOLLAR, weight=1)),
)


def job(**tariff: float | bool) -> Job:
    cluster = h100_cluster(8, price_per_accelerator_hour=2.0, tariff=Tariff(**tariff))  # type: ignore[arg-type]
    return replace(big_job(8), cluster=cluster)


def one(of: Job, layout: Layout = SHARDED) -> Footprint:
    return footprint_of(layout, of, predict_one(layout, of))


def power(footprint: Footprint) -> Power:
    assert footprint.power is not None
    return footprint.power


def test_accelerators_draw_between_idle_and_most_by_how_busy_they_are() -> None:
    of = job()
    step = predict_one(SHARDED, of).step_time
    busy_s = step.matrix_s + step.attention_s + step.pointwise_s + step.recompute_s + step.optimizer_s
    expected_w = 64 * 700 * (IDLE_SHARE + (1 - IDLE_SHARE) * busy_s / step.total_s)
    assert power(one(of)).accelerators_w == pytest.approx(expected_w)  # the same sum in another order


def test_the_idle_draw_of_a_description_counts() -> None:
    of = job()
    accelerator = replace(of.cluster.accelerator, idle_power_w=700.0)
    always = replace(of, cluster=replace(of.cluster, accelerator=accelerator))
    assert power(one(always)).accelerators_w == pytest.approx(64 * 700)  # a float product


def test_hosts_and_the_building_draw_beside_accelerators() -> None:
    drawn = power(one(job(host_power_w=100.0, power_usage_effectiveness=1.5)))
    assert drawn.hosts_w == 6400
    assert drawn.building_w == pytest.approx(0.5 * (drawn.accelerators_w + 6400))  # a float sum
    assert drawn.total_w == pytest.approx(1.5 * (drawn.accelerators_w + 6400))


def test_energy_is_paid_beside_reserved_hours() -> None:
    found = one(job(energy_price_per_kwh=0.5))
    assert found.price_per_hour == pytest.approx(64 * 2.0 + 0.5 * power(found).total_w / 1000)  # a float sum


def test_of_spot_hours_those_that_are_lost_are_paid_too() -> None:
    found = one(job(spot_price_per_accelerator_hour=1.0, is_spot=True, interrupted_share=0.2))
    assert found.price_per_hour == pytest.approx(64 * 1.0 / 0.8)  # a float quotient


def test_energy_emits_what_its_mix_does() -> None:
    found = one(job(co2_kg_per_kwh=0.25))
    assert found.co2_kg_per_hour == pytest.approx(0.25 * power(found).total_w / 1000)  # a float product


def test_nothing_is_said_of_power_that_is_not_known() -> None:
    of = tiny_job(2)
    found = one(of, cpu_layout(data_parallel_replicate_degree=2))
    assert (found.power, found.price_per_hour, found.co2_kg_per_hour) == (None, 0.0, 0.0)


def test_measured_power_counts_before_modelled() -> None:
    of = job(energy_price_per_kwh=0.5)
    found = footprint_of(SHARDED, of, predict_one(SHARDED, of), measurement(), power_w=500.0)
    assert power(found).accelerators_w == 64 * 500
    assert power(found).is_measured
    assert found.price_per_hour == pytest.approx(64 * 2.0 + 0.5 * 32)  # a float sum


def test_robustness_is_what_a_trace_leaves_of_the_throughput() -> None:
    trace = FaultTrace.parse("5;0_1;0.06\n15;0_1;0", num_steps=20)
    layout, of = cpu_layout(data_parallel_replicate_degree=2), tiny_job(2)
    predicted = predicted_under(layout, of, trace)
    left = predicted.step_time.total_s / (predicted.robust_step_s or 0.0)
    assert 0 < left < 1
    assert footprint_of(layout, of, predicted).robustness == left


def test_columns_hold_the_footprints_of_their_rows() -> None:
    of = job(host_power_w=100.0, energy_price_per_kwh=0.1, co2_kg_per_kwh=0.3)
    columns = predicted_footprints(LAYOUTS, of, predict_under(LAYOUTS, of, None))
    for index, layout in enumerate((SHARDED, SPLIT)):
        row, alone = columns.row(index), one(of, layout)
        assert row.price_per_hour == pytest.approx(alone.price_per_hour, rel=1e-12)  # sums of as many parts
        assert row.co2_kg_per_hour == pytest.approx(alone.co2_kg_per_hour, rel=1e-12)
        assert row.complexity == alone.complexity


@pytest.mark.parametrize(
    "objective", [Objective(), *(Objective(metric=one) for one in Metric if one.is_rate), MIXED], ids=str
)
def test_the_worths_of_columns_are_those_of_their_rows(objective: Objective) -> None:
    of = job(co2_kg_per_kwh=0.3)
    footprints = predicted_footprints(LAYOUTS, of, predict(LAYOUTS, of))
    worths = worth_per_step(objective, of, footprints, len(LAYOUTS))
    rows = [objective.worth_per_step(of, footprints.row(index)) for index in range(len(LAYOUTS))]
    np.testing.assert_allclose(worths, rows, rtol=1e-12)  # the same product, by numpy's power


def test_worths_of_speed_need_no_footprint() -> None:
    of = job()
    assert worth_per_step(Objective(), of, None, 2).tolist() == [Objective().worth_per_step(of)] * 2


def test_bytes_that_leave_nodes_cost_ports_and_switches_energy() -> None:
    of = job(network_j_per_byte=2e-9)
    sent_bytes = TrafficColumns.of(LAYOUTS, of).total_bytes[0]
    step_s = predict_one(SHARDED, of).step_time.total_s
    assert power(one(of)).network_w == pytest.approx(2e-9 * sent_bytes / step_s)  # a float product
