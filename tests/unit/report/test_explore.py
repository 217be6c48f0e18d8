"""A layout that somebody chooses by hand says the same in a terminal, on a page, in Markdown and in JSON."""

from __future__ import annotations

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core import documents
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.units import format_bytes, format_rate, format_seconds
from autotuner.core.workload import Workload
from autotuner.report.explore import explore_report
from autotuner.report.html import Html
from autotuner.report.report import Link, Report
from autotuner.search.explain.choosable import what_if
from tests.unit.report.surfaces import surfaces

JOB = Job(
    model=load_model("llama-3-8b"),
    cluster=load_cluster("h100:16"),
    workload=Workload(seq_len=8192, global_batch_size=128),
)


def link_to(layout: Layout, words: str) -> Link:
    return Link(words, "explore", query={"layout": str(layout)})


def reported(words: str, job: Job = JOB) -> Report:
    return explore_report(what_if(Layout.parse(words), job), job, link_to)


def test_a_legal_layout_shows_the_same_figures_and_memory_on_every_surface() -> None:
    answer = what_if(Layout.parse("fsdp8 tp2 mb1 sp flash bf16"), JOB)
    assert answer.legal is not None
    found = answer.legal.explanation
    report = explore_report(answer, JOB, link_to)
    assert report.headline.startswith("predicted MFU ")
    for shown in surfaces(report):
        assert format_seconds(found.prediction.step_time_s) in shown
        assert format_rate(found.prediction.tokens_per_s, "tokens/s") in shown
        assert format_bytes(found.prediction.peak_bytes) in shown
        assert "legal, fits" in shown
        assert all(format_bytes(float(memory.parameters_bytes)) in shown for memory in found.stages)
    written = documents.write(found)["prediction"]
    assert written["step_time_s"] == found.prediction.step_time_s
    assert (written["tokens_per_s"], written["peak_bytes"]) == (
        found.prediction.tokens_per_s,
        found.prediction.peak_bytes,
    )


def test_a_layout_that_cannot_run_names_the_rule_and_leads_to_others() -> None:
    report = reported("fsdp1 tp16 mb1 flash bf16")
    assert report.headline == "cannot run: 2 rules broken"
    for shown in surfaces(report):
        assert "8 kv heads do not split over 16 tensor ranks" in shown
        assert "Nearest layout that can run" in shown
    assert 'id="nearest"' in Html().sections(report)


def test_of_many_stages_the_first_the_fullest_and_the_last_are_shown() -> None:
    job = Job(
        model=load_model("llama-3-70b"),
        cluster=load_cluster("h100:64"),
        workload=Workload(seq_len=8192, global_batch_size=64),
    )
    section = reported("tp4 pp16 mb1 1f1b sp flash bf16", job)["calculator"]
    assert section is not None
    assert "of 16 stages; the others lie between" in section.note
    shown = Html().section(section)
    assert "stage 0" in shown
    assert "stage 15" in shown
    assert "Where each part comes from" in shown
