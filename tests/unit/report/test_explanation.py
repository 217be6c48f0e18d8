"""An explanation says the same in a terminal, on a page, in Markdown and as JSON."""

from __future__ import annotations

from dataclasses import replace

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core import documents
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.units import format_bytes, format_seconds
from autotuner.core.workload import LengthDistribution, Workload
from autotuner.report.explanation import explanation_report, rules_report
from autotuner.report.parts import limit_in_words
from autotuner.report.report import Link, Table
from autotuner.report.words import changes_in_words
from autotuner.search.explain.bandwidth import bandwidth_curve
from autotuner.search.explain.explanation import Explanation, explain
from autotuner.search.results.pairs import MeasuredRules
from tests.unit.report.surfaces import surfaces

JOB = Job(
    model=load_model("llama-3-8b"),
    cluster=load_cluster("h100:16"),
    workload=Workload(seq_len=8192, global_batch_size=128),
)
LAYOUT = Layout.parse("fsdp8 tp2 mb1 sp recompute-selective flash bf16")


def test_an_explanation_shows_the_same_parts_and_changes_on_every_surface() -> None:
    found, curve = explain(LAYOUT, JOB), bandwidth_curve(LAYOUT, JOB)
    assert found.helpful
    for shown in surfaces(explanation_report(found, curve)):
        assert str(LAYOUT) in shown
        assert all(format_seconds(part.seconds) in shown for part in found.time)
        assert all(limit_in_words(part.limit, LAYOUT) in shown for part in found.time)
        assert all(format_bytes(part.num_bytes) in shown for part in found.memory)
        assert all(changes_in_words(one.changes) in shown for one in (*found.helpful, *found.too_large))
        assert all(format_seconds(way.step_s[0]) in shown for way in curve.ways if way.fits)
    written = documents.write(found)
    assert written["prediction"]["step_time_s"] == found.prediction.step_time.total_s
    assert written["helpful"][0]["label"] == str(found.helpful[0].layout)
    assert documents.restore(Explanation, written) == found


def test_ways_to_deal_batches_and_links_to_other_layouts_stand_on_a_page() -> None:
    lengths = LengthDistribution(lengths=(512, 4096, 8192), weights=(6.0, 2.0, 1.0))
    found = explain(LAYOUT, replace(JOB, workload=replace(JOB.workload, lengths=lengths)))

    def link_to(layout: Layout, words: str) -> Link:
        return Link(words, "explore", query={"layout": str(layout)})

    report = explanation_report(found, lengths=lengths, link_to=link_to)
    for shown in surfaces(report):
        assert all(format_seconds(way.step_time_s) in shown for way in found.batches)
    help_ = report["help"]
    assert help_ is not None
    (table,) = help_.blocks
    assert isinstance(table, Table)
    assert table.rows[0][0] == link_to(found.helpful[0].layout, changes_in_words(found.helpful[0].changes))


def test_rules_of_no_measured_layout_say_so() -> None:
    rules = MeasuredRules.of(())
    assert documents.write(rules)["num_measured"] == 0
    for shown in surfaces(rules_report(rules)):
        assert "From 0 measured trials" in shown
        assert "ecompute: no pairs; no two measured layouts differ in it alone" in shown
