"""Reports of questions: plans, phases, layers, predictions, explanations, exports and studies."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core import documents
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.requests import LayersRequest, PhasesRequest, PredictionRequest
from autotuner.core.run import RunState, Stop
from autotuner.core.study import OptimizerTrial, PruneReason, StudyProgress, StudyRun
from autotuner.core.trial import TrialState
from autotuner.core.units import format_bytes, format_rate, format_seconds
from autotuner.core.workload import LengthDistribution, Workload
from autotuner.door import Autotuner
from autotuner.exports.formats import export, read_with_model
from autotuner.exports.shared.target import Export, Imported
from autotuner.report.charts import Plot
from autotuner.report.drawing import draw
from autotuner.report.explanation import explanation_report, rules_report
from autotuner.report.explore import explore_report
from autotuner.report.export import export_report, import_report
from autotuner.report.html import Html
from autotuner.report.jobs import layers_report, phases_report
from autotuner.report.parts import limit_in_words
from autotuner.report.plan import front_of, plan_report
from autotuner.report.prediction import predictions_report
from autotuner.report.report import Link, Report, Table
from autotuner.report.study import candidate_line, studies_report, study_report
from autotuner.report.words import changes_in_words
from autotuner.search.explain.bandwidth import bandwidth_curve
from autotuner.search.explain.choosable import what_if
from autotuner.search.explain.explanation import Explanation, explain
from autotuner.search.explain.layers import SweepLayers
from autotuner.search.planning.outcomes import Interval
from autotuner.search.planning.plan import Candidate, PlanRun
from autotuner.search.planning.request import Goal, PlanRequest
from autotuner.search.results.pairs import MeasuredRules
from tests.api.bodies import PLAN
from tests.builders import present
from tests.studies import reached_trial, study_request, study_trial
from tests.unit.report.surfaces import surfaces

# ---------------------------------------------------------------- questions
JOB = {"model": "llama-3-8b", "cluster": "h100:8", "workload": {"seq_len": 2048, "global_batch_size": 32}}
SPACE = {"precision": ["bf16"], "compiled": [False], "recompute": ["none"], "tensor_parallel_degree": [1, 2]}


def require_same_figures(report: Report, answer: object, *figures: str) -> None:
    """Each figure is in the terminal, on the page and in Markdown; the answer can be written as JSON."""
    for shown in surfaces(report):
        assert [figure for figure in figures if figure not in " ".join(shown.split())] == []
    json.dumps(documents.write(answer))


def test_a_prediction_says_the_same_on_every_surface() -> None:
    request = documents.read(PredictionRequest, JOB | {"space": SPACE, "limit": 2})
    found = Autotuner().predict(request)
    best = found.items[0].prediction
    figures = (
        f"{100 * best.mfu:.1f}",
        f"{best.peak_bytes / 1e9:.1f} GB",
        "llama-3-8b (8.03B parameters) on h100:8",
    )
    require_same_figures(predictions_report(request, found), found, *figures)


def test_phases_say_the_same_on_every_surface() -> None:
    phases = [{"name": "main", "token_share": 0.9}, {"name": "long", "token_share": 0.1, "seq_len": 4096}]
    request = documents.read(PhasesRequest, JOB | {"num_tokens": 1e12, "phases": phases, "space": SPACE})
    plan = Autotuner().phases(request)
    days = f"{plan.best.total_s / 86_400:.3g} days"
    require_same_figures(phases_report(request, plan), plan, days, f"{plan.best.choices[0].num_steps:,.0f}")


def test_layers_say_the_same_on_every_surface() -> None:
    report = Autotuner().layers(documents.read(LayersRequest, JOB))
    found = SweepLayers(predicted=report, measured=None)
    gains = report.gains
    require_same_figures(layers_report(found), found, f"{100 * gains[-1].value:.1f} %", f"{gains[-1].num_layouts:,}")


# ---------------------------------------------------------------- plan
DAY_S = 86_400.0


@cache
def planned() -> PlanRun:
    return Autotuner().plan(documents.read(PlanRequest, PLAN))


def test_a_plan_says_the_same_on_every_surface() -> None:
    view = planned()
    assert view.result is not None
    run = view.result.candidates[0].predicted
    figures = (f"{run.time_s.median / DAY_S:.3g} days", f"{100 * run.mfu:.1f} %", view.result.candidates[0].cluster)
    require_same_figures(plan_report(view), view, *figures)


def cluster(name: str, days: float, dollars: float, *, is_on_front: bool) -> Candidate:
    answer = planned().result
    assert answer is not None
    one = answer.candidates[0]
    run = replace(one.predicted, time_s=Interval.of(days * DAY_S, 0.2), cost=Interval.of(dollars, 0.2))
    return replace(one, cluster=name, is_on_front=is_on_front, predicted=run)


FOUND = (
    cluster("fast", 10, 2e6, is_on_front=True),
    cluster("cheap", 40, 1e6, is_on_front=True),
    cluster("beaten", 45, 3e6, is_on_front=False),
)
GOAL = Goal(num_tokens=1e12, deadline_s=30 * DAY_S)


def test_all_clusters_of_a_plan_are_pencil_also_the_best() -> None:
    drawn = draw(front_of(FOUND, GOAL))
    assert "m-dot" not in drawn
    assert drawn.count("p-dot win") == 2  # for a desk and for a phone
    assert drawn.count("p-dot") == 2 * len(FOUND)


def test_the_front_is_named_and_what_it_beats_is_not() -> None:
    drawn = draw(front_of(FOUND, GOAL))
    assert ">fast</text>" in drawn
    assert ">cheap</text>" in drawn
    assert ">beaten</text>" not in drawn
    assert "beaten: 45 days, $3M" in drawn  # what a pointer is told


def test_the_deadline_is_drawn_where_there_is_one() -> None:
    assert ">deadline</text>" in draw(front_of(FOUND, GOAL))
    assert "limit" not in draw(front_of(FOUND, Goal(num_tokens=1e12)))


@pytest.mark.parametrize(("shown", "has_picture"), [(1, False), (3, True)])
def test_one_cluster_alone_is_no_picture(shown: int, has_picture: bool) -> None:
    view = planned()
    assert view.result is not None
    report = plan_report(replace(view, result=replace(view.result, candidates=FOUND[:shown])))
    assert ("front" in {section.id for section in report.sections}) is has_picture


# ---------------------------------------------------------------- explanation
ON_16 = Job(
    model=load_model("llama-3-8b"),
    cluster=load_cluster("h100:16"),
    workload=Workload(seq_len=8192, global_batch_size=128),
)
LAYOUT = Layout.parse("fsdp8 tp2 mb1 sp recompute-selective flash bf16")


def test_an_explanation_shows_the_same_parts_and_changes_on_every_surface() -> None:
    found, curve = explain(LAYOUT, ON_16), bandwidth_curve(LAYOUT, ON_16)
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
    found = explain(LAYOUT, replace(ON_16, workload=replace(ON_16.workload, lengths=lengths)))
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
        assert "ecompute: no pairs: no two measured layouts differ only in it" in shown


# ---------------------------------------------------------------- explore
def link_to(layout: Layout, words: str) -> Link:
    return Link(words, "explore", query={"layout": str(layout)})


def reported(words: str, job: Job = ON_16) -> Report:
    return explore_report(what_if(Layout.parse(words), job), job, link_to)


def test_a_legal_layout_shows_the_same_figures_and_memory_on_every_surface() -> None:
    answer = what_if(Layout.parse("fsdp8 tp2 mb1 sp flash bf16"), ON_16)
    assert answer.legal is not None
    found = answer.legal.explanation
    report = explore_report(answer, ON_16, link_to)
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


def test_a_picture_of_many_stages_shows_the_first_the_fullest_and_the_last() -> None:
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


# ---------------------------------------------------------------- export
def test_an_export_shows_its_words_its_use_and_what_they_cannot_say_on_every_surface() -> None:
    found = export(ON_16, LAYOUT, "deepspeed")
    assert found.unsupported
    assert found.left_to_trainer
    for shown in surfaces(export_report(found)):
        assert str(LAYOUT) in shown
        assert found.files[0].text.split("\n")[1].strip() in shown
        assert all(reason.message[1:] in shown for reason in found.unsupported)
        assert all(default[1:] in shown for default in found.left_to_trainer)
    assert documents.restore(Export, documents.write(found)) == found
    assert documents.write(found)["text"] == found.text


def test_an_import_shows_its_layout_its_model_and_its_notes_on_every_surface() -> None:
    flags = "--tensor-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 128 --bf16 --seq-length 4096"
    found = read_with_model(flags, "megatron-lm", 16)
    for shown in surfaces(import_report(found)):
        assert found.label in shown
        assert "16 ranks; 128 sequences of 4096 tokens" in shown
        assert all(note.detail in shown for note in found.notes)
    assert documents.restore(Imported, documents.write(found)) == found
    assert documents.write(found)["stack"] == "megatron-core"


# ---------------------------------------------------------------- study
TRIALS = (reached_trial(0, 2.0, 3.0), reached_trial(1, 8.0, 1.0), study_trial(2, 6.0, 5.9123))


def study(*trials: OptimizerTrial, **changes: Any) -> StudyRun:
    """A study that is complete."""
    value = StudyRun(
        id="os-test",
        subject="",
        created_by="",
        request=study_request(name="AdamW or LAMB"),
        state=RunState.COMPLETE,
        detail="3 candidates were tried",
        created_at=0.0,
        due_at=0.0,
        finished_at=60.0,
        progress=StudyProgress(trials=trials or TRIALS, refusals=("lamb: it shards",)),
    )
    return replace(value, **changes)


def test_a_study_has_the_same_figures_on_every_surface() -> None:
    soonest, cheapest = study().best[0].reached, study().best[-1].reached
    figures = (
        f"{present(soonest).accelerator_hours:.3g}",
        f"{present(cheapest).accelerator_hours:.3g}",
        f"{present(soonest).num_steps} steps",
        f"{study_trial(2, 6.0, 5.9123).curve.smoothed(32)[-1]:.4g}",
        "of 4 candidates at most",
        "3 candidates were tried",
        "Not tried: Lamb: it shards.",
    )
    for shown in surfaces(study_report(study())):
        for figure in figures:
            assert figure.lower() in shown.lower()
    document = documents.write(study())
    tried = document["progress"]["trials"]
    assert (document["name"], document["front"]) == ("AdamW or LAMB", [0, 1])
    assert tried[0]["reached"]["accelerator_hours"] == present(soonest).accelerator_hours
    assert (
        tried[2]["curve"]["num_steps"],
        tried[2]["curve"]["step_time_s"],
    ) == (2, 1.0)


def test_a_list_names_each_study_with_its_target_and_how_it_ended() -> None:
    for shown in surfaces(studies_report([study(progress=None)], 1)):
        for words in ("AdamW or LAMB", "os-test", "complete", "3 candidates were tried"):
            assert words.lower() in shown.lower()
    assert "autotuner optimizer tune" in surfaces(studies_report([], 0))[0]


def test_curves_are_pale_but_for_the_candidates_at_the_target_and_one_point_is_no_front() -> None:
    curves, front = (present(study_report(study())[key]).blocks[0] for key in ("curves", "front"))
    assert isinstance(curves, Plot)
    assert isinstance(front, Plot)
    assert study_report(study(reached_trial(0, 2.0, 3.0)))["front"] is None
    assert study_report(study(replace(study_trial(0, 6.0), state=TrialState.FAILED)))["curves"] is None


def test_a_study_that_runs_tells_that_it_was_asked_to_end() -> None:
    running = study(state=RunState.RUNNING, detail="", finished_at=None, wanted=Stop.CANCEL)
    assert "It is being cancelled." in surfaces(study_report(running))[0]


def test_a_candidate_that_ended_is_a_line() -> None:
    ended = study_trial(3, 6.0, 5.9)
    name = "3: adamw, learning rate 0.001, batch 16, data-parallel degree 2"
    assert candidate_line(ended) == f"{name}: complete, did not reach the target within 32 sequences"
    beaten = replace(ended, state=TrialState.PRUNED, pruned=PruneReason(time_s=4.0, beaten_by=7))
    sooner = "number 7 reached the target faster and with fewer accelerator-hours, after 4 s"
    assert candidate_line(beaten) == f"{name}: pruned, {sooner}"
    above = replace(beaten, pruned=PruneReason(time_s=12.0, loss=5.9, median=5.1))
    assert candidate_line(above).endswith(
        "its loss of 5.9 after 12 s is above 5.1, the median loss of the other candidates at that time"
    )
