"""A comparison says the same in a terminal, on a page, in Markdown and as JSON."""

from __future__ import annotations

from dataclasses import replace

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core import documents
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.trial import TrialState
from autotuner.core.units import format_bytes, format_rate, format_seconds
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict_one
from autotuner.report.charts import Intervals
from autotuner.report.comparison import comparison_report
from autotuner.report.report import Quantity, Report, Table
from autotuner.search.results.comparison import Contender, side_by_side
from tests.builders import failure, trial
from tests.unit.report.surfaces import surfaces

JOB = Job(
    model=load_model("llama-3-8b"),
    cluster=load_cluster("h100:16"),
    workload=Workload(seq_len=8192, global_batch_size=128),
)


FIRST, SECOND = "fsdp8 tp2 mb1 sp flash bf16", "fsdp16 mb1 recompute-full flash bf16"


def contenders(*words: str) -> list[Contender]:
    layouts = [Layout.parse(one) for one in words]
    return [
        Contender(layout=one, job=JOB, prediction=predict_one(one, JOB), of=str(one), name="a layout")
        for one in layouts
    ]


def reported(*words: str) -> Report:
    of = contenders(*words)
    return comparison_report(side_by_side(of), of)


def test_a_comparison_shows_figures_differences_and_parts_on_every_surface() -> None:
    of = contenders(FIRST, SECOND)
    found = side_by_side(of)
    report = comparison_report(found, of)
    for shown in surfaces(report):
        assert report.headline in shown
        assert all(format_seconds(part.seconds) in shown for one in found.items for part in one.parts if part.seconds)
        for one in (item.figures for item in found.items):
            assert format_rate(one.tokens_per_s, "tokens/s") in shown
            assert format_seconds(one.step_time_s) in shown
            assert format_bytes(one.peak_bytes or 0.0) in shown
        assert "recompute" in shown
    assert [section.key for section in report.sections] == ["differs", "figures", "time", "shifts", "memory"]


def test_json_carries_the_figures_of_the_report() -> None:
    of = contenders(FIRST, SECOND)
    found = side_by_side(of)
    written = documents.write(found)
    shown = comparison_report(found, of)["figures"]
    assert shown is not None
    (table,) = shown.blocks
    assert isinstance(table, Table)
    numbers = [{cell.value for cell in row if isinstance(cell, Quantity)} for row in table.rows]
    for item, row in zip(written["items"], numbers, strict=True):
        assert {item["figures"][name] for name in ("mfu", "step_time_s", "tokens_per_s", "peak_bytes")} <= row


def test_one_layout_of_one_job_differs_in_nothing() -> None:
    report = reported(FIRST, FIRST)
    for shown in surfaces(report):
        assert "Nothing: they are one layout of one job." in shown
        assert "Same in all: tp 2" in shown


def test_a_failed_trial_has_predicted_figures_and_says_why() -> None:
    of = contenders(FIRST, SECOND)
    died = replace(
        of[0], trial=trial(of[0].layout, state=TrialState.FAILED, failure=failure(message="no memory is left"))
    )
    (shown, *_) = surfaces(comparison_report(side_by_side([died, of[1]]), [died, of[1]]))
    assert "no memory is left" in shown
    assert "predicted" in shown


def test_what_shifts_begins_at_the_slowest_and_ends_at_the_fastest() -> None:
    found = side_by_side(contenders(FIRST, SECOND))
    section = reported(FIRST, SECOND)["shifts"]
    assert section is not None
    (picture,) = section.blocks
    assert isinstance(picture, Intervals)
    first, *falls, last = picture.rows
    assert first.value == found.at(found.slowest or "").step_s
    assert abs(falls[-1].value - last.value) < 1e-3 * last.value
    assert all(row.look == ("gain" if row.told.startswith("−") else "loss") for row in falls)
