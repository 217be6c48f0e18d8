"""Predictions follow what is drawn, dealt and padded; without lengths they are what they were."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotuner.core.choices import BatchBalance, Recompute, ShardLevel
from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.workload import LengthDistribution
from autotuner.costmodel.predict import predict, predict_one, predict_totals
from tests.builders import big_job
from tests.unit.batches.samsung import SEQ_LEN, wikipedia

LAYOUTS = [
    Layout(data_parallel_replicate_degree=64),
    Layout(data_parallel_replicate_degree=32, tensor_parallel_degree=2, sequence_parallel=True, micro_batch_size=4),
    Layout(data_parallel_shard_degree=64, shard_level=ShardLevel.PARAMETERS, recompute=Recompute.FULL),
    Layout(data_parallel_shard_degree=32, context_parallel_degree=2, shard_level=ShardLevel.OPTIMIZER),
    Layout(data_parallel_replicate_degree=16, pipeline_parallel_degree=4, micro_batch_size=2, recompute_every=2),
]


def job(lengths: LengthDistribution | None) -> Job:
    one = big_job()
    workload = replace(one.workload, seq_len=SEQ_LEN, global_batch_size=1024, lengths=lengths)
    return replace(one, workload=workload)


def step_s(lengths: LengthDistribution | None = None, **choices: Any) -> float:
    layout = Layout(data_parallel_replicate_degree=64, micro_batch_size=4, **choices)
    return predict_one(layout, job(lengths or wikipedia())).step_time.total_s


def test_sequences_that_are_all_longest_take_what_they_take_without_lengths() -> None:
    x = LayoutColumns.from_layouts(LAYOUTS)
    plain, drawn = predict(x, job(None)), predict(x, job(LengthDistribution.of([SEQ_LEN])))
    for name in ("mfu", "hfu", "tokens_per_s", "fit_probability"):
        assert getattr(drawn, name).tolist() == getattr(plain, name).tolist()
    assert drawn.step_time.total_s.tolist() == plain.step_time.total_s.tolist()
    assert plain.imbalance is None
    assert drawn.imbalance is not None
    assert not drawn.imbalance.any()


def test_dealing_and_packing_shorten_the_step_as_they_cut_what_the_slowest_rank_computes() -> None:
    by_chance, snake = step_s(), step_s(batch_balance=BatchBalance.STRATIFIED_SNAKE)
    packed = step_s(batch_balance=BatchBalance.STRATIFIED_SNAKE, sequence_packing=True)
    assert packed < snake < by_chance


def test_memory_is_that_of_micro_batches_of_the_longest_sequences() -> None:
    for layout in LAYOUTS:
        assert predict_one(layout, job(wikipedia())).memory == predict_one(layout, job(None)).memory


def test_mfu_counts_real_tokens_and_the_squares_of_real_lengths() -> None:
    one = job(LengthDistribution(lengths=(128, 512), weights=(1.0, 1.0)))
    model_flop = 512 * (128 * one.model.model_flop_per_token(128) + 512 * one.model.model_flop_per_token(512))
    predicted = predict_one(LAYOUTS[0], one)
    peak = one.cluster.accelerator.reference_flop_per_s * one.cluster.world_size
    assert predicted.mfu == pytest.approx(model_flop / peak / predicted.step_time.total_s, rel=1e-12)  # rounding
    assert predicted.tokens_per_s == pytest.approx(512 * 640 / predicted.step_time.total_s, rel=1e-12)


def test_a_table_says_of_each_layout_what_it_says_of_it_alone() -> None:
    x = LayoutColumns.from_layouts(LAYOUTS)
    table = predict(x, job(wikipedia()))
    for row, layout in enumerate(LAYOUTS):
        assert table.row(row) == predict_one(layout, job(wikipedia()))
    assert np.array_equal(predict_totals(x, job(wikipedia())).mfu, table.mfu)


def test_a_prediction_says_how_unequal_ranks_are_and_what_is_padding() -> None:
    prediction = predict_one(LAYOUTS[1], job(wikipedia()))
    # of one shuffled corpus, which knows means to 1 %
    assert prediction.imbalance == pytest.approx(0.146, abs=0.01)
    assert prediction.padding_waste == pytest.approx(0.77, abs=0.01)
