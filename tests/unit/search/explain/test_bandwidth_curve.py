from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.choices import GradientSync, ShardLevel
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict_one
from autotuner.costmodel.scenarios import at_bandwidth
from autotuner.search.explain.bandwidth import BandwidthCurve, bandwidth_curve
from tests.builders import big_job, h100, h100_cluster, llama_70b, present

HSDP = Layout.parse("dp2 fsdp8 mb1 reshard")


def job(num_nodes: int = 2) -> Job:
    """Eight layers, which fit however they are shared."""
    return Job(
        model=llama_70b(num_layers=8, hidden_size=2048, num_heads=16, num_kv_heads=16, ffn_size=8192),
        cluster=h100_cluster(num_nodes),
        workload=Workload(seq_len=2048, global_batch_size=16 * num_nodes),
    )


def step_s(layout: Layout, bytes_per_s: float) -> float:
    return predict_one(layout, at_bandwidth(job(), bytes_per_s)).step_time.total_s


@pytest.fixture(scope="module")
def curve() -> BandwidthCurve:
    return bandwidth_curve(HSDP, job())


def test_points_are_predictions_on_nodes_with_that_bandwidth(curve: BandwidthCurve) -> None:
    for index in (0, 9, -1):
        for way in curve.ways:
            expected = step_s(way.layout, curve.bandwidths_bytes_per_s[index])
            assert way.step_s[index] == pytest.approx(expected, rel=1e-12)  # summed in another order
    layout = replace(HSDP, data_parallel_shard_degree=4, pipeline_parallel_degree=2)
    drawn = bandwidth_curve(layout, job())
    way = next(way for way in drawn.ways if way.name == "random")
    assert way.layout.pipeline_parallel_degree == 2
    assert way.step_s[0] == step_s(way.layout, drawn.bandwidths_bytes_per_s[0])


def test_lossy_exchanges_pay_on_a_slow_network_and_full_ones_on_a_fast(curve: BandwidthCurve) -> None:
    assert [way.name for way in curve.ways] == ["replicas", "ZeRO-1", "FSDP", "HSDP", "demo", "random", "diloco"]
    assert curve.own == "HSDP"
    assert {way.name for way in curve.ways if way.is_lossy} == {"demo", "random", "diloco"}
    lossy = {way.name for way in curve.ways if way.is_lossy}
    first, *_, last = curve.spans
    assert first.way in lossy
    assert last.way not in lossy
    ends = [(span.low_bytes_per_s, span.high_bytes_per_s) for span in curve.spans]
    assert [low for low, _ in ends[1:]] == [high for _, high in ends[:-1]]
    assert (ends[0][0], ends[-1][1]) == (curve.bandwidths_bytes_per_s[0], curve.bandwidths_bytes_per_s[-1])


@pytest.mark.parametrize("name", ["demo", "random", "diloco"])
def test_bisection_finds_where_a_lossy_way_stops_being_faster_than_all_full_ones(
    curve: BandwidthCurve, name: str
) -> None:
    way = next(way for way in curve.ways if way.name == name)
    full = [one.layout for one in curve.ways if not one.is_lossy and one.fits]
    crossing = present(way.faster_below_bytes_per_s)
    # on either side of the ends between which bisection stops
    for factor, faster in ((0.99, True), (1.01, False)):
        best_s = min(step_s(one, factor * crossing) for one in full)
        assert (step_s(way.layout, factor * crossing) < best_s) == faster


def test_a_lossy_layout_keeps_its_details_and_sharding_nodes_exchange_lossily() -> None:
    layout = replace(HSDP, gradient_sync=GradientSync.RANDOM, sync_sparsity=4, sync_sign=False)
    ways = {way.name: way.layout for way in bandwidth_curve(layout, job()).ways}
    assert ways["random"] == layout
    assert ways["demo"] == replace(HSDP, gradient_sync=GradientSync.DEMO)
    assert ways["HSDP"] == HSDP
    assert bandwidth_curve(layout, job()).own == "random"
    sharded = Layout(data_parallel_shard_degree=16, shard_level=ShardLevel.PARAMETERS, reshard_after_forward=True)
    ways = {way.name: way.layout for way in bandwidth_curve(sharded, job()).ways}
    assert ways["FSDP"] == sharded
    assert ways["demo"] == replace(HSDP, gradient_sync=GradientSync.DEMO)


def test_what_does_not_fit_or_cannot_be_exchanged_wins_nothing() -> None:
    small = replace(job(), cluster=h100_cluster(2, accelerator=h100(memory_bytes=9 * 10**9)))
    drawn = bandwidth_curve(HSDP, small)
    large = {way.name for way in drawn.ways if not way.fits}
    assert {"replicas"} <= large < {way.name for way in drawn.ways}
    assert not large & {span.way for span in drawn.spans}
    alone = bandwidth_curve(Layout(data_parallel_replicate_degree=8), job(1))
    assert alone.ways == ()
    assert alone.why_empty == "no_network"
    other = replace(job(), stack=replace(big_job().stack, name="megatron"))
    drawn = bandwidth_curve(HSDP, other)
    assert not any(way.is_lossy for way in drawn.ways)
    assert drawn.why_empty is None
