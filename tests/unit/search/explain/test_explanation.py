from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given

from autotuner.core.caveat import CaveatKind
from autotuner.core.choices import BatchBalance, Recompute, ShardLevel
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.rules.legality import reasons
from autotuner.costmodel.predict import predict_one
from autotuner.report.explanation import alternative_in_words
from autotuner.report.words import changes_in_words
from autotuner.search.explain.explanation import Alternative, Refusal, explain
from autotuner.search.space.legal import legal_layouts
from autotuner.search.space.moves import batch_ways
from tests.builders import big_job, h100, h100_cluster
from tests.properties.strategies import jobs
from tests.unit.batches.samsung import SEQ_LEN, wikipedia

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


def test_what_breaks_a_rule_is_listed_as_a_change_and_refused_as_a_layout_with_that_rule() -> None:
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


def test_every_way_to_deal_is_told_with_its_parts_and_what_is_taken_for_granted() -> None:
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
