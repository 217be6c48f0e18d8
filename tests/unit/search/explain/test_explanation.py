"""Explanations of a layout: its memory and rules, its curve over bandwidths, its timeline."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given

from autotuner.core.caveat import CaveatKind
from autotuner.core.choices import BatchBalance, GradientSync, P2PTransport, PipelineSchedule, Recompute, ShardLevel
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth
from autotuner.core.rules.legality import reasons
from autotuner.core.timeline import BlockKind, RankTimeline, StepTimeline
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict_one
from autotuner.costmodel.scenarios import at_bandwidth
from autotuner.report.explanation import alternative_in_words
from autotuner.report.words import changes_in_words
from autotuner.search.explain.bandwidth import BandwidthCurve, bandwidth_curve
from autotuner.search.explain.explanation import Refusal, explain
from autotuner.search.explain.timeline import PredictedTimeline, predicted_timeline
from autotuner.search.space.legal import legal_layouts
from autotuner.search.space.moves import Alternative, batch_ways
from tests.builders import big_job, h100, h100_cluster, llama_70b, present
from tests.properties.strategies import jobs
from tests.unit.test_batches import SEQ_LEN, wikipedia

# ---------------------------------------------------------------- explanation
LAYOUT = Layout.parse("zero2 tp8 pp4 1f1b mb1 sp recompute-full")


def said(change: Alternative | Refusal) -> str:
    return changes_in_words(change.changes)


def job_with_memory(memory_bytes: float) -> Job:
    job = big_job()
    return replace(job, cluster=h100_cluster(accelerator=h100(memory_bytes=int(memory_bytes))))


def test_parts_of_step_and_peak_come_largest_first_and_sum_to_it() -> None:
    explained = explain(LAYOUT, big_job())
    seconds = [part.seconds for part in explained.time]
    assert seconds == sorted(seconds, reverse=True)
    assert sum(seconds) == pytest.approx(explained.prediction.step_time.total_s)  # floating-point addition
    assert sum(part.share for part in explained.time) == pytest.approx(1.0)  # floating-point addition
    assert {part.part for part in explained.time} >= {"matrix_s", "recompute_s", "tensor_communication_s", "bubble_s"}
    assert "data_communication_s" not in {p.part for p in explain(_one_replica(), big_job()).time}
    sizes = [part.num_bytes for part in explained.memory]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(sizes) == pytest.approx(explained.prediction.memory.total_bytes)  # floating-point addition
    assert explained.margin_bytes == pytest.approx(explained.limit_bytes - sum(sizes))  # floating-point addition


def _one_replica() -> Layout:
    return replace(LAYOUT, pipeline_parallel_degree=8, data_parallel_shard_degree=1, shard_level=ShardLevel.NONE)


def test_helpful_changes_are_predicted_as_alone_fit_and_the_most_helpful_comes_first() -> None:
    explained = explain(LAYOUT, big_job())
    assert explained.helpful
    for change in (*explained.helpful, *explained.too_large):
        assert change.prediction == predict_one(change.layout, big_job())
    values = [change.prediction.expected_mfu for change in explained.helpful]
    assert values == sorted(values, reverse=True)
    assert min(values) >= 1.01 * explained.prediction.expected_mfu
    assert all(change.prediction.fits and change.excess_bytes == 0 for change in explained.helpful)


def test_a_change_is_helpful_where_it_makes_a_layout_fit_more_surely_even_when_slower() -> None:
    layout = Layout(data_parallel_shard_degree=64, shard_level=ShardLevel.PARAMETERS, recompute=Recompute.FULL)
    job = big_job()
    peak_bytes = predict_one(layout, job).memory.total_bytes
    accelerator = replace(job.cluster.accelerator, memory_bytes=int(1.01 * peak_bytes))
    tight = replace(job, cluster=replace(job.cluster, accelerator=accelerator))
    (change,) = [c for c in explain(layout, tight).helpful if said(c) == "reshard after forward off → on"]
    assert change.saved_share < 0.01
    without = replace(LAYOUT, recompute=Recompute.NONE)
    own = predict_one(without, big_job()).memory.total_bytes
    explained = explain(without, job_with_memory(own * 0.99))
    assert explained.margin_bytes < 0
    change = next(c for c in explained.helpful if c.layout.recompute == Recompute.FULL)
    assert change.saved_share < 0


def test_a_change_says_what_shrinks_with_its_error_or_by_how_much_it_would_not_fit() -> None:
    own = predict_one(LAYOUT, big_job()).memory.total_bytes
    explained = explain(LAYOUT, job_with_memory(4 * own))
    change = next(c for c in explained.helpful if said(c) == "recompute full → none")
    part = next(p for p in explained.time if p.part == "recompute_s")
    effect = alternative_in_words(change, explained.prediction)
    assert f"removes {100 * part.share:.0f} % recomputation" in effect
    assert f"± {100 * change.prediction.relative_error:.0f} %; fits, " in effect
    explained = explain(LAYOUT, job_with_memory(own * 1.01))
    change = next(c for c in explained.too_large if said(c) == "recompute full → none")
    assert change.excess_bytes == pytest.approx(change.prediction.memory.total_bytes - explained.limit_bytes)
    assert alternative_in_words(change, explained.prediction).startswith("recompute full → none would not fit by ")
    assert not [c for c in explained.helpful if c.changes == change.changes]
    excess = [c.excess_bytes for c in explained.too_large]
    assert excess == sorted(excess)


def test_an_illegal_change_is_listed_and_refused_with_its_rule() -> None:
    refused = explain(LAYOUT, big_job()).illegal
    tensor = next(r for r in refused if said(r).startswith("tensor 8 → 16"))
    assert tensor.reason.message == "8 kv heads do not split over 16 tensor ranks"
    assert tensor.reason.nearest == 8
    illegal = replace(LAYOUT, tensor_parallel_degree=16)
    with pytest.raises(InvalidInput) as caught:
        explain(illegal, big_job())
    assert caught.value.rule == reasons(illegal, big_job())[0].message
    assert caught.value.field == f"layout.{reasons(illegal, big_job())[0].field}"


@given(jobs)
def test_every_legal_layout_is_explained_and_its_changes_are_legal(job: Job) -> None:
    layouts = legal_layouts(job)
    assume(len(layouts))
    for row in (0, len(layouts) - 1):
        explained = explain(layouts.row(row), job)
        assert explained.time
        assert not [c for c in (*explained.helpful, *explained.too_large) if reasons(c.layout, job)]
        assert all(refusal.reason.message for refusal in explained.illegal)


# ---------------------------------------------------------------- ways to deal and pack batches beside the layout's own
PLAIN = replace(big_job(), workload=replace(big_job().workload, seq_len=SEQ_LEN))
JOB = replace(PLAIN, workload=replace(PLAIN.workload, lengths=wikipedia()))
SNAKE: dict[str, Any] = {"batch_balance": BatchBalance.STRATIFIED_SNAKE, "num_dealing_ranks": 4}
DEALT = Layout(data_parallel_replicate_degree=64, micro_batch_size=4, **SNAKE)


def test_every_balancing_method_is_reported_with_its_parts_and_what_is_taken_for_granted() -> None:
    ways = batch_ways(DEALT, JOB)
    assert len(ways) == 2 * len(BatchBalance)
    (own,) = (way for way in ways if way.is_own)
    assert (own.name, own.layout) == ("stratified + snake", DEALT)
    for way in batch_ways(DEALT, JOB):
        # of 8,192 sequences each length occurs as often as it should, up to one
        assert way.computed_tokens == pytest.approx(way.real_tokens * (1 + way.padding_waste), rel=1e-3)
        assert way.slowest_tokens == pytest.approx(way.computed_tokens * (1 + way.imbalance))
    explanation = explain(DEALT, JOB)
    assert explanation.batches == batch_ways(DEALT, JOB)
    assert any(one.kind is CaveatKind.DRAWN_LENGTHS for one in explanation.caveats)


def test_stages_or_equal_lengths_leave_no_other_way() -> None:
    layout = Layout(data_parallel_replicate_degree=32, pipeline_parallel_degree=2)
    (way,) = batch_ways(layout, JOB)
    assert (way.name, way.slowest_tokens) == ("as they come", SEQ_LEN)
    assert not batch_ways(Layout(data_parallel_replicate_degree=64), PLAIN)


# ---------------------------------------------------------------- bandwidth curve
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


def test_an_exchange_that_does_not_fit_or_cannot_run_never_wins() -> None:
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


# ---------------------------------------------------------------- timeline
PIPELINE = Layout.parse("zero2 tp8 pp4 1f1b mb1 sp")
ONE_STAGE = replace(PIPELINE, pipeline_parallel_degree=1, data_parallel_shard_degree=8)
SCHEDULES = (
    (PipelineSchedule.GPIPE, 1),
    (PipelineSchedule.ONE_F_ONE_B, 1),
    (PipelineSchedule.INTERLEAVED_1F1B, 2),
    (PipelineSchedule.INTERLEAVED_1F1B, 4),
    (PipelineSchedule.ZERO_BUBBLE, 1),
    (PipelineSchedule.ZERO_BUBBLE, 2),
    (PipelineSchedule.ZBV, 2),
    (PipelineSchedule.DUALPIPEV, 2),
)


def scheduled(schedule: PipelineSchedule, stages_per_rank: int) -> Layout:
    return replace(PIPELINE, pipeline_schedule=schedule, virtual_stages_per_rank=stages_per_rank)


def of_micro_batches(count: int) -> Job:
    job = big_job()
    return replace(job, workload=Workload(global_batch_size=2 * count, seq_len=job.workload.seq_len))


@pytest.mark.parametrize(("schedule", "stages_per_rank"), SCHEDULES)
def test_a_step_takes_as_long_as_predicted_in_one_action_of_a_rank_after_the_other(
    schedule: PipelineSchedule, stages_per_rank: int
) -> None:
    layout = scheduled(schedule, stages_per_rank)
    predicted = predicted_timeline(layout, big_job())
    assert predicted.predicted_s == predict_one(layout, big_job()).step_time.total_s
    # closed forms count unequal ranks as equal; DualPipeV's counts a forward and a backward beside it as one pass
    assert predicted.apart == pytest.approx(0.0, abs=3e-3 if schedule == PipelineSchedule.DUALPIPEV else 3e-4)
    assert predicted.timeline.step_s == pytest.approx((1 + predicted.apart) * predicted.predicted_s)
    timeline = predicted_timeline(scheduled(schedule, stages_per_rank), big_job()).timeline
    for rank in timeline.ranks:
        blocks = list(rank.blocks)
        assert all(before.end_s <= after.start_s + 1e-9 for before, after in pairwise(blocks))
        assert rank.seconds.total_s == pytest.approx(timeline.step_s)  # floating-point addition
        assert blocks[-1].kind is BlockKind.OPTIMIZER
        assert blocks[-1].end_s <= timeline.step_s


@pytest.mark.parametrize("level", list(ShardLevel))
def test_without_a_pipeline_a_step_takes_exactly_as_long_as_it_is_predicted_to(level: ShardLevel) -> None:
    sharded = replace(ONE_STAGE, shard_level=level)
    replicated = replace(sharded, data_parallel_shard_degree=1, data_parallel_replicate_degree=8)
    predicted = predicted_timeline(sharded if level else replicated, big_job())
    assert predicted.apart == pytest.approx(0.0, abs=1e-9)  # floating-point addition
    assert predicted.timeline.ranks[0].seconds.idle_s == pytest.approx(0.0, abs=1e-6)  # floating-point addition


@pytest.mark.parametrize(("schedule", "stages_per_rank"), SCHEDULES)
def test_a_partial_simulation_equals_the_whole_one(schedule: PipelineSchedule, stages_per_rank: int) -> None:
    layout, count = scheduled(schedule, stages_per_rank), 48
    job = of_micro_batches(count)
    in_part = predicted_timeline(layout, job, most_actions=0).timeline
    whole = predicted_timeline(layout, job, most_actions=10**6).timeline
    assert in_part.step_s == pytest.approx(whole.step_s)  # floating-point addition
    assert in_part.folds
    for shown, beside in zip(in_part.ranks, whole.ranks, strict=True):
        assert shown.seconds.forward_s == pytest.approx(beside.seconds.forward_s)
        assert shown.seconds.weight_s == pytest.approx(beside.seconds.weight_s)
        assert shown.seconds.total_s == pytest.approx(beside.seconds.total_s)
        assert last_passes(shown) == last_passes(beside)


def last_passes(rank: RankTimeline) -> list[tuple[str, float]]:
    passes = [(block.word, round(block.end_s, 6)) for block in rank.blocks if block.kind.is_pass]
    return passes[-3:]


def test_folds_lie_between_the_first_and_the_last_micro_batches_of_forwards_and_backwards() -> None:
    timeline = predicted_timeline(PIPELINE, big_job()).timeline
    (fold,) = timeline.folds
    first = timeline.ranks[0]
    assert first.actions[:4] == ("0F0", "0F1", "0F2", "0F3")
    assert timeline.num_micro_batches == 512
    assert "0B511" in first.actions
    assert fold.num_micro_batches > 490
    assert sum(len(rank.actions) for rank in timeline.ranks) < 200
    assert [rank.rank for rank in timeline.ranks] == [0, 16, 32, 48]
    timeline = predicted_timeline(scheduled(PipelineSchedule.GPIPE, 1), big_job()).timeline
    forwards, backwards = timeline.folds
    assert forwards.end_s < backwards.start_s
    timeline = predicted_timeline(PIPELINE, of_micro_batches(5)).timeline
    assert timeline.folds == ()
    for rank in timeline.ranks:
        passes = [block for block in rank.blocks if block.kind.is_pass]
        assert len(passes) == 2 * timeline.num_micro_batches == 10


def test_gathers_and_sends_that_block_are_shown_with_the_ranks_that_they_hold_up() -> None:
    timeline = predicted_timeline(replace(ONE_STAGE, shard_level=ShardLevel.PARAMETERS), big_job()).timeline
    assert timeline.ranks[0].actions[:5] == ("0F0", "0B0", "sync", "0F1", "0B1")
    assert timeline.ranks[0].actions[-1] == "optimizer"
    job = big_job()
    blocking = replace(job, stack=replace(job.stack, blocks_sends=True))
    first = predicted_timeline(PIPELINE, blocking).timeline.ranks[0]
    assert first.actions[:3] == ("0F0", "send", "0F1")
    inline = predicted_timeline(ZERO_BUBBLE, late_job(0.06)).timeline
    delegated = predicted_timeline(replace(ZERO_BUBBLE, **DELEGATED), late_job(0.06)).timeline
    blocked = [row.seconds.send_s for row in inline.ranks]
    assert min(blocked[2:]) > 24 * 0.06  # each end of the link sends once per micro-batch
    assert max(row.seconds.send_s for row in delegated.ranks) < min(blocked[2:])


@pytest.mark.parametrize("count", [7, 15, 50])
def test_a_legal_layout_whose_micro_batches_are_no_whole_rounds_has_a_timeline(count: int) -> None:
    layout = scheduled(PipelineSchedule.ZERO_BUBBLE, 2)
    predicted: PredictedTimeline = predicted_timeline(layout, of_micro_batches(count))
    timeline: StepTimeline = predicted.timeline
    assert timeline.num_micro_batches == count
    assert f"0F{count - 1}" in timeline.ranks[0].actions
    assert predicted.apart == pytest.approx(0.0, abs=0.05)  # the closed form counts whole rounds


@pytest.mark.parametrize(
    "schedule", [PipelineSchedule.ONE_F_ONE_B, PipelineSchedule.GPIPE, PipelineSchedule.ZERO_BUBBLE]
)
def test_a_picture_of_a_deep_pipeline_keeps_the_first_and_the_last_ranks(schedule: PipelineSchedule) -> None:
    deep = replace(
        PIPELINE,
        tensor_parallel_degree=2,
        pipeline_parallel_degree=32,
        data_parallel_shard_degree=1,
        shard_level=ShardLevel.NONE,
        pipeline_schedule=schedule,
    )
    job = of_micro_batches(128)
    timeline = predicted_timeline(deep, job).timeline
    assert timeline.folds
    assert (timeline.ranks[0].pipeline_rank, timeline.ranks[-1].pipeline_rank) == (0, 31)
    assert sum(len(rank.actions) for rank in timeline.ranks) <= 3000
    whole = predicted_timeline(deep, job, most_actions=10**6).timeline
    assert timeline.step_s == pytest.approx(whole.step_s, rel=5e-3)  # 1F1B's ranks are not quite in step by then


# ---------------------------------------------------------------- slow links, delegated sends and planned schedules
ZERO_BUBBLE = Layout.parse("tp8 pp4 zero_bubble mb1 sp")
ADAPTIVE = replace(ZERO_BUBBLE, pipeline_schedule=PipelineSchedule.ADAPTIVE)
DELEGATED: dict[str, Any] = {"p2p_transport": P2PTransport.DELEGATED, "num_delegates": 6}
LAYOUTS = [
    replace(ZERO_BUBBLE, pipeline_schedule=PipelineSchedule.ONE_F_ONE_B),
    replace(ZERO_BUBBLE, pipeline_schedule=PipelineSchedule.GPIPE),
    replace(ZERO_BUBBLE, pipeline_schedule=PipelineSchedule.ZBV, virtual_stages_per_rank=2),
    ZERO_BUBBLE,
    replace(ZERO_BUBBLE, **DELEGATED),
    replace(ADAPTIVE, **DELEGATED),
    ADAPTIVE,
]


def late_job(delay_s: float) -> Job:
    links = (LinkHealth(ends=(2, 3), delay_s=delay_s),)
    return Job(
        model=llama_70b(num_layers=24),
        cluster=h100_cluster(num_nodes=4, link_health=links),
        workload=Workload(seq_len=1024, global_batch_size=24),
    )


@pytest.mark.parametrize("delay_s", [0.0, 0.03, 0.06])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_the_picture_lies_by_the_prediction_on_any_link(layout: Layout, delay_s: float) -> None:
    found = predicted_timeline(layout, late_job(delay_s))
    # a plan within memory takes up to 5 % longer than the closed form; the others are the same simulation, beside
    # closed forms of unequal stages
    assert abs(found.apart) < 0.06
