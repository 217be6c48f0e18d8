"""What the bench of published recipes says of a run, and of what would have been proposed in its place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.catalog.load import load_cluster, load_model
from autotuner.costmodel.predict import predict_one
from autotuner.domain.jobs.job import Job
from autotuner.domain.jobs.workload import Workload
from autotuner.domain.layouts.choice import Precision, ShardLevel
from autotuner.domain.layouts.layout import Layout
from bench.recipes import Recipe, page, recipes

FOUND = tuple(recipes(("torchtitan",)))


def test_of_each_format_the_fastest_run_stands_beside_its_prediction_and_our_first_choice() -> None:
    assert {one.layout.precision for one in FOUND} == {Precision.BF16, Precision.FP8}
    for one in FOUND:
        assert one.ours is not None
        assert one.ours.layout.precision == one.layout.precision
        assert one.ours.prediction == predict_one(one.ours.layout, one.job)
        assert one.theirs == predict_one(one.layout, one.job)
        assert one.gain == pytest.approx(one.theirs.step_time.total_s / one.ours.prediction.step_time.total_s - 1)
        assert one.error == pytest.approx(one.measured_s / one.theirs.step_time.total_s - 1)


def test_the_page_has_a_line_for_each_recipe_with_both_layouts() -> None:
    lines = [line for line in page(FOUND).splitlines() if "| torchtitan |" in line]
    assert len(lines) == len(FOUND)
    for one in FOUND:
        assert one.ours is not None
        assert any(f"`{one.layout}`" in line and f"`{one.ours.layout}`" in line for line in lines)


def test_where_nothing_fits_there_is_no_proposal() -> None:
    job = Job(
        model=load_model("llama-3-70b"),
        cluster=load_cluster("h100:8"),
        workload=Workload(seq_len=4096, global_batch_size=8),
    )
    layout = Layout(data_parallel_shard_degree=8, shard_level=ShardLevel.PARAMETERS)
    theirs = predict_one(layout, job)
    one = Recipe(source="", job=job, layout=layout, measured_s=1.0, theirs=theirs, ours=None)
    assert one.gain is None
    assert "| nothing fits | - | - | - |" in page([replace(FOUND[0]), one])
