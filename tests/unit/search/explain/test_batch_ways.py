"""An explanation sets ways to deal and pack batches beside the layout's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotuner.core.choices import BatchBalance
from autotuner.core.layout import Layout
from autotuner.search.explain.explanation import explain
from autotuner.search.space.moves import batch_ways
from tests.builders import big_job
from tests.unit.batches.samsung import SEQ_LEN, wikipedia

PLAIN = replace(big_job(), workload=replace(big_job().workload, seq_len=SEQ_LEN))
JOB = replace(PLAIN, workload=replace(PLAIN.workload, lengths=wikipedia()))
SNAKE: dict[str, Any] = {"batch_balance": BatchBalance.STRATIFIED_SNAKE, "num_dealing_ranks": 4}
LAYOUT = Layout(data_parallel_replicate_degree=64, micro_batch_size=4, **SNAKE)


def test_every_way_is_told_and_the_layouts_own_is_marked() -> None:
    ways = batch_ways(LAYOUT, JOB)
    assert len(ways) == 2 * len(BatchBalance)
    (own,) = (way for way in ways if way.is_own)
    assert (own.name, own.layout) == ("stratified + snake", LAYOUT)
    assert own.sentence.startswith("stratified + snake: the slowest rank computes ")


def test_parts_of_a_way_make_up_what_its_slowest_rank_computes() -> None:
    for way in batch_ways(LAYOUT, JOB):
        # of 8,192 sequences each length occurs as often as it should, up to one
        assert way.computed_tokens == pytest.approx(way.real_tokens * (1 + way.padding_waste), rel=1e-3)
        assert way.slowest_tokens == pytest.approx(way.computed_tokens * (1 + way.imbalance))


def test_stages_leave_no_way_but_one() -> None:
    layout = Layout(data_parallel_replicate_degree=32, pipeline_parallel_degree=2)
    (way,) = batch_ways(layout, JOB)
    assert (way.name, way.slowest_tokens) == ("as they come", SEQ_LEN)


def test_sequences_that_are_alike_leave_nothing_to_tell() -> None:
    assert not batch_ways(Layout(data_parallel_replicate_degree=64), PLAIN)


def test_an_explanation_says_what_is_taken_for_granted_of_lengths() -> None:
    explanation = explain(LAYOUT, JOB)
    assert explanation.batches == batch_ways(LAYOUT, JOB)
    assert any("drawn independently" in caveat for caveat in explanation.caveats)
