"""What is said of plans, phases, layers and predictions: the same figures on every surface."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from io import StringIO

import pytest
from rich.console import Console

from autotuner.core import documents
from autotuner.core.requests import LayersRequest, PhasesRequest, PredictionRequest
from autotuner.door import Autotuner
from autotuner.report.drawing import draw
from autotuner.report.html import Html
from autotuner.report.jobs import layers_report, phases_report
from autotuner.report.markdown import markdown
from autotuner.report.plan import front_of, plan_report
from autotuner.report.prediction import predictions_report
from autotuner.report.report import Report
from autotuner.report.terminal import render
from autotuner.search.explain.layers import SweepLayers
from autotuner.search.planning.layouts import Interval
from autotuner.search.planning.plan import Candidate, PlanRun
from autotuner.search.planning.request import Goal, PlanRequest
from tests.api.bodies import PLAN

JOB = {"model": "llama-3-8b", "cluster": "h100:8", "workload": {"seq_len": 2048, "global_batch_size": 32}}
SPACE = {"precision": ["bf16"], "compiled": [False], "recompute": ["none"], "tensor_parallel_degree": [1, 2]}


def require_same_figures(report: Report, answer: object, *figures: str) -> None:
    """Each figure is in the terminal, on the page and in Markdown; the answer can be written as JSON."""
    terminal = Console(width=10_000, file=StringIO())
    terminal.print(render(report))
    page = re.sub(r"<[^>]+>", " ", f"{report.headline} {Html().sections(report)}")
    said = {"terminal": terminal.file.getvalue(), "page": page, "markdown": markdown(report).replace("\\", "")}  # type: ignore[attr-defined]  # a StringIO
    for figure in figures:
        for surface, text in said.items():
            assert figure in " ".join(text.split()), (surface, figure)
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
    run = view.result.contenders[0].predicted
    figures = (f"{run.time_s.median / DAY_S:.3g} days", f"{100 * run.mfu:.1f} %", view.result.contenders[0].cluster)
    require_same_figures(plan_report(view), view, *figures)


def cluster(name: str, days: float, dollars: float, *, is_on_front: bool) -> Candidate:
    answer = planned().result
    assert answer is not None
    one = answer.contenders[0]
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
    report = plan_report(replace(view, result=replace(view.result, contenders=FOUND[:shown])))
    assert ("front" in {section.id for section in report.sections}) is has_picture
