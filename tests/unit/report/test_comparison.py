"""A comparison says the same in a terminal, on a page and in Markdown."""

from __future__ import annotations

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.units import format_seconds
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict_one
from autotuner.report.charts import Intervals
from autotuner.report.comparison import comparison_report
from autotuner.search.results.comparison import Contender, SideBySide, side_by_side
from tests.unit.report.surfaces import surfaces

JOB = Job(
    model=load_model("llama-3-8b"),
    cluster=load_cluster("h100:16"),
    workload=Workload(seq_len=8192, global_batch_size=128),
)


def compared(*words: str) -> SideBySide:
    layouts = [Layout.parse(one) for one in words]
    return side_by_side([Contender(layout=one, job=JOB, prediction=predict_one(one, JOB)) for one in layouts])


def test_a_comparison_shows_the_parts_of_each_step_and_what_shifts_on_every_surface() -> None:
    found = compared("fsdp8 tp2 mb1 sp flash bf16", "fsdp16 mb1 recompute-full flash bf16")
    report = comparison_report(found)
    for shown in surfaces(report):
        assert found.heading in shown
        assert all(format_seconds(part.seconds) in shown for parts in found.parts for part in parts if part.seconds)
    assert [section.key for section in report.sections] == ["time", "shifts", "memory"]


def test_what_shifts_begins_at_the_slowest_and_ends_at_the_fastest() -> None:
    found = compared("fsdp8 tp2 mb1 sp flash bf16", "fsdp16 mb1 recompute-full flash bf16")
    section = comparison_report(found)["shifts"]
    assert section is not None
    (picture,) = section.blocks
    assert isinstance(picture, Intervals)
    first, *falls, last = picture.rows
    assert first.value == found.steps_s[found.slowest or 0]
    assert abs(falls[-1].value - last.value) < 1e-3 * last.value
    assert all(row.look == ("gain" if row.told.startswith("−") else "loss") for row in falls)
