"""Reports of sweeps: their answer, their front, their charts, lists, previews and trials."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from autotuner.api.dashboard.pages.home import Asked
from autotuner.core import documents
from autotuner.core.choices import Recompute
from autotuner.core.comment import Comment
from autotuner.core.health import Incident, IncidentKind
from autotuner.core.layout import Layout
from autotuner.core.measurement import RobustMeasurement
from autotuner.core.objective import Metric, Objective
from autotuner.core.run import RunState
from autotuner.core.sweep import SweepOverview, SweepRequest
from autotuner.core.sweep_requests import SweepCreate
from autotuner.core.trial import FailureKind, Trial, TrialState
from autotuner.core.units import format_bytes
from autotuner.door import Autotuner
from autotuner.report.charts import Dots, Failures
from autotuner.report.comments import comments_report, comments_section
from autotuner.report.html import Html
from autotuner.report.layouts import in_short
from autotuner.report.report import Report
from autotuner.report.sweep import charts_report
from autotuner.report.sweep_answer import answer_report, front_report
from autotuner.report.sweep_charts import agreement, best_so_far, memory_front, on_front, rises, trial_points
from autotuner.report.sweep_list import short_moment, sweep_list_report
from autotuner.report.sweep_preview import sweep_preview_report
from autotuner.report.sweep_trials import ended
from autotuner.search.preview import preview
from autotuner.search.results.axis import Value
from autotuner.search.results.failures import failures
from autotuner.search.results.sensitivity import choices
from autotuner.search.results.sweep_answer import Role, accuracy, answer
from autotuner.search.results.sweep_front import sweep_front
from autotuner.store.options import SweepColumn, SweepFilter, SweepOrder
from tests.builders import (
    big_job,
    cpu_layout,
    estimate,
    failure,
    measurement,
    memory,
    prediction,
    present,
    proxy_trial,
    sweep_request,
)
from tests.unit.core.test_sweep import ENDED
from tests.unit.report.surfaces import surfaces
from tests.unit.search.results.test_layout_comparison import FAST, FRUGAL, MIDDLE, WORSE, of
from tests.unit.search.results.trials import BASE, died, ran

# ---------------------------------------------------------------- sweep charts
_LIMIT_BYTES = 80e9


def trial(number: int = 0, state: TrialState = TrialState.COMPLETE, **changes: Any) -> Trial:
    given = {"layout": cpu_layout(micro_batch_size=number + 1), "prediction": prediction(), **changes}
    if state is TrialState.COMPLETE:
        given.setdefault("measurement", measurement())
    return Trial(id=f"tr-{number}", sweep_id="sw-1", number=number, state=state, **given)


def test_a_trial_is_a_point_with_what_it_reached_and_where_its_page_is() -> None:
    (point,) = trial_points(
        [trial(measurement=measurement(mfu=0.4, step_time_s=2.0, step_time_interval_s=0.1))], root="/at"
    )
    assert point.reached is not None
    assert (point.reached.low, point.reached.high) == pytest.approx((0.38, 0.42))
    assert point.href == "/at/trials/tr-0"
    assert point.failure == ""


def test_under_a_fault_trace_a_point_is_what_was_reached_under_it() -> None:
    robust = RobustMeasurement(step_time_s=2.5, mfu=0.3, tokens_per_s=1e3, num_steps=1, stretches=())
    ran = trial(measurement=measurement(mfu=0.4, robust=robust), prediction=prediction(mfu=0.5, robust_mfu=0.35))
    (healthy,), (under,) = trial_points([ran]), trial_points([ran], objective=Objective(under_faults=True))
    assert (healthy.mfu, under.mfu) == (0.4, 0.3)
    assert (healthy.predicted.value, under.predicted.value) == (0.5, 0.35)


def test_running_trials_and_repeats_are_left_out() -> None:
    shown = trial_points([trial(0), trial(1, TrialState.RUNNING), trial(2, repeats=0), trial(3, TrialState.QUEUED)])
    assert [point.number for point in shown] == [0]


def test_a_failure_says_its_cause_and_what_was_ended_on_purpose_is_none() -> None:
    dead, stopped = trial_points([trial(0, TrialState.FAILED, failure=failure()), trial(1, TrialState.PRUNED)])
    assert (dead.failure, dead.is_out_of_memory, dead.mfu) == ("out of memory", True, None)
    assert (stopped.failure, stopped.mfu) == ("", None)


def test_a_trial_on_fewer_ranks_counts_with_what_is_estimated_of_the_layout() -> None:
    (point,) = trial_points([trial(proxy=proxy_trial(measurement=measurement()), estimate=estimate(mfu=0.1875))])
    assert point.mfu == 0.1875
    assert point.peak_bytes == estimate().full_size.peak_bytes


def test_a_layout_in_short_has_its_degrees() -> None:
    assert in_short(Layout.parse("dp2 fsdp4 tp8 pp2 1f1b mb4")) == "tp8 pp2 dp8 mb4"


def test_a_sweep_without_a_result_has_no_charts() -> None:
    points = trial_points([trial(0, TrialState.FAILED, failure=failure())])
    assert (best_so_far(points), memory_front(points, _LIMIT_BYTES), agreement(points)) == (None, None, None)


def test_charts_and_the_tables_beside_them_show_the_same_trials() -> None:
    points = trial_points(
        [trial(0), trial(1, TrialState.FAILED, failure=failure()), trial(2, measurement=measurement(mfu=0.5))]
    )
    chart = best_so_far(points)
    assert chart is not None
    assert [point.number for _, point, _ in rises(points)] == [0, 2]
    assert [point.number for point in on_front(points)] == [2]
    best = [dot.key for mark in chart.marks if isinstance(mark, Dots) for dot in mark.dots if dot.look == "best"]
    failed = [dot.key for mark in chart.marks if isinstance(mark, Failures) for dot in mark.dots]
    assert (best, failed) == ([2], [1])


@pytest.mark.parametrize("is_simulated", [False, True])
def test_every_chart_marks_simulated_trials(is_simulated: bool) -> None:
    points = trial_points([trial(0), trial(1)], is_simulated=is_simulated)
    charts = [best_so_far(points), memory_front(points, _LIMIT_BYTES), agreement(points)]
    dots = [dot for chart in charts if chart for mark in chart.marks if isinstance(mark, Dots) for dot in mark.dots]
    assert {dot.is_simulated for dot in dots} == {is_simulated}


def test_findings_from_trials_have_the_same_figures_on_every_surface() -> None:
    request, trials = sweep_request(), [trial(0, measurement=measurement(mfu=0.4)), trial(1)]
    found = charts_report(
        request,
        trials,
        source="measured",
        choices=choices(request, trials),
        accuracy=accuracy(request, trials),
    )
    assert [one.key for one in found.sections] == ["history", "front", "parallel", "mattered", "calibration"]
    for text in surfaces(found):
        assert "40.0 %" in text
        assert "1 trial improved the best result" in text
        assert "1 layout; no layout is faster with the same memory or less" in text


def test_errors_of_predictions_are_said_with_their_medians_and_the_intervals_that_held() -> None:
    total_s = prediction(relative_error=0.1).step_time.total_s
    steps = [measurement(step_time_s=factor * total_s) for factor in (1.0, 1.09, 0.92, 1.2)]
    trials = [trial(n, measurement=one, prediction=prediction(relative_error=0.1)) for n, one in enumerate(steps)]
    request = sweep_request()
    right = accuracy(request, trials)
    found = charts_report(request, trials, source="measured", choices=choices(request, trials), accuracy=right)
    note = present(found["calibration"]).note
    assert note.startswith(
        "3 of 4 step times lie within the 80 % interval of their prediction. Half of the step times are off by less "
        "than 9 %; in the median they are 4.5 % longer than predicted."
    )


def test_trials_without_a_result_show_nothing() -> None:
    request, trials = sweep_request(), [trial(0, TrialState.FAILED, failure=failure())]
    found = charts_report(
        request, trials, source="measured", choices=choices(request, trials), accuracy=accuracy(request, trials)
    )
    assert found.sections == ()


# ---------------------------------------------------------------- sweep answer
def trials(*mfus: float) -> list[Trial]:
    return [
        Trial(
            id=f"sw-1-000{number}",
            sweep_id="sw-1",
            number=number,
            state=TrialState.COMPLETE,
            layout=cpu_layout(micro_batch_size=number + 1),
            prediction=prediction(),
            measurement=measurement(mfu=mfu, tokens_per_s=1e5 * mfu, step_time_s=1 / mfu),
        )
        for number, mfu in enumerate(mfus)
    ]


def texts_of(report: Report) -> dict[str, str]:
    """Return what each surface shows, on one line."""
    return dict(zip(("terminal", "page", "markdown"), (" ".join(one.split()) for one in surfaces(report)), strict=True))


@pytest.fixture
def request_() -> SweepRequest:
    return sweep_request()


def test_an_answer_carries_the_same_figures_on_every_surface(request_: SweepRequest) -> None:
    found = answer(request_, trials(0.4, 0.3))
    assert found is not None
    for name, text in texts_of(answer_report(found, request_, sweep_id="sw-1")).items():
        assert "40.0" in text, name
        assert "+33.3 %" in text, name
        assert "rank 2" in text, name
    written = documents.write(found)
    assert written["best"]["mfu"] == 0.4
    assert written["rivals"][0]["gain"] == pytest.approx(1 / 3)


def test_an_answer_names_its_ties_and_of_many_choices_the_first(request_: SweepRequest) -> None:
    def said(*layouts: Layout, step: float = 0.001) -> str:
        run = [replace(one, layout=layout) for one, layout in zip(trials(0.4, 0.3, 0.2, 0.1), layouts, strict=False)]
        run = [
            replace(one, measurement=measurement(mfu=0.4 - step * place, step_time_s=2.5 * (1 + step * place)))
            for place, one in enumerate(run)
        ]
        found = present(answer(request_, run))
        return texts_of(answer_report(found, request_, sweep_id="sw-1"))["terminal"]

    plain, full = cpu_layout(), cpu_layout(recompute=Recompute.FULL)
    far = cpu_layout(tensor_parallel_degree=2, micro_batch_size=2, recompute=Recompute.FULL, compiled=True)
    assert "token/s; tied with rank 2 " in (told := said(plain, full))
    assert "It is tied with rank 2 (recompute none → full; its chance is " in told
    assert "It is tied with rank 2 (4 choices differ; its chance is " in said(plain, far)
    assert "It is tied with ranks 2–3; the closest is rank 2 (recompute none → full; " in said(plain, full, far)


def test_the_best_without_many_choices_is_named_by_the_first_of_them(request_: SweepRequest) -> None:
    found = present(answer(request_, trials(0.4, 0.3)))
    lacks: dict[str, Value] = {"tp": 4, "pp": 2, "mb": 1, "recompute": "none"}
    for few, said in ((2, "tp or pp"), (3, "tp or pp or mb"), (4, "tp, pp or 2 other choices")):
        without = replace(found.rivals[0], role=Role.WITHOUT, lacks=dict([*lacks.items()][:few]))
        report = answer_report(replace(found, rivals=(without,)), request_, sweep_id="sw-1")
        assert f"rank 2, the best with another value of {said}" in report.headline


def test_a_report_says_whether_the_layout_may_be_trained_with(request_: SweepRequest) -> None:
    found = answer(request_, trials(0.4))
    assert found is not None
    advice = [
        answer_report(found, request_, sweep_id="sw-1", is_finished=is_finished)["answer"]
        for is_finished in (True, False)
    ]
    assert [one.title for one in advice if one] == ["Train with this layout", "Best layout so far"]
    simulated = replace(found, best=replace(found.best, source="simulated"))
    section = answer_report(simulated, request_, sweep_id="sw-1")["answer"]
    assert section is not None
    assert section.title == "Best found; measure it, before you train with it"


def test_a_front_carries_the_same_figures_on_every_surface(request_: SweepRequest) -> None:
    asked = replace(request_, objective=Objective(front=(Metric.MFU, Metric.TOKENS_PER_S)))
    found = sweep_front(asked, trials(0.4, 0.3))
    for name, text in texts_of(front_report(found, "measured", sweep_id="sw-1")).items():
        assert "40.0 %" in text, name
        assert "40 ktokens/s" in text, name
        assert "trial 1 is behind trial 0" in text.lower(), name
    assert documents.write(found)["points"][0]["values"] == [0.4, 4e4]


def test_a_point_of_a_front_says_what_it_is_the_best_in_and_what_more_costs() -> None:
    for text in texts_of(front_report(of(FAST, MIDDLE, FRUGAL, WORSE), sweep_id="sw-1")).values():
        assert "The best of 4 in MFU; trial 1 has +29.9 % tokens per joule for −9.1 % MFU" in text
        assert "1 other is not better in any metric." in text


def test_a_front_without_a_point_says_so(request_: SweepRequest) -> None:
    asked = replace(request_, objective=Objective(front=(Metric.MFU, Metric.TOKENS_PER_S)))
    for text in texts_of(front_report(sweep_front(asked, []), sweep_id="sw-1")).values():
        assert "No trial has a value of MFU and token rate yet." in text


# ---------------------------------------------------------------- sweep list
NOW = 1_764_000_000.0
FOUND = replace(
    ENDED,
    name="nightly",
    best_mfu=0.412,
    best_relative_error=0.01,
    best_tokens_per_s=55_400.0,
    progress=replace(ENDED.progress, accelerator_hours=19.5),
    finished_at=NOW - 3600,
)


def reported(*found: SweepOverview, asked: Asked | None = None, incidents: tuple[Incident, ...] = ()) -> Report:
    listed = (asked or Asked(where=SweepFilter())).listed(found, len(found))
    return sweep_list_report(listed, incidents, NOW)


def test_a_list_shows_the_figures_of_its_sweeps_on_every_surface() -> None:
    for shown in surfaces(reported(FOUND)):
        for said in ("nightly", FOUND.model, "complete", "41.2", "55.4 ktokens/s", "19.5", "1–1 of 1 sweep"):
            assert said in shown
    written = documents.write(FOUND)
    assert (written["name"], written["state"], written["best_mfu"]) == ("nightly", "complete", 0.412)
    assert (written["best_tokens_per_s"], written["progress"]["accelerator_hours"]) == (55_400.0, 19.5)


def test_a_list_shows_the_tags_of_a_sweep_which_lead_to_the_sweeps_that_have_them() -> None:
    found = replace(FOUND, tags=("a&b", "paper"))
    for shown in surfaces(reported(found)):
        assert "paper" in shown
    assert '<a href="/?tag=a%26b">#a&amp;b</a>' in Html().sections(reported(found))


def test_an_estimate_is_called_so_and_has_no_interval() -> None:
    for shown in surfaces(reported(replace(FOUND, trial_cluster="small"))):
        assert "41.2 % estimated" in shown
        assert "tried on small" in shown


def test_a_head_leads_to_its_order_and_the_sorted_one_to_the_other_way_round() -> None:
    order = SweepOrder(column=SweepColumn.MFU, is_descending=True)
    page = Html().sections(reported(FOUND, asked=Asked(where=SweepFilter(text="llama"), order=order)))
    assert 'href="/?q=llama&amp;sort=mfu&amp;order=ascending"' in page
    assert 'aria-sort="descending"' in page
    assert 'href="/?q=llama&amp;sort=name&amp;order=ascending"' in page
    assert 'href="/?q=llama"' in page  # the newest first, which is said by nothing


def test_an_empty_list_leads_to_the_list_without_each_filter() -> None:
    asked = Asked(where=SweepFilter(text="llama", state=RunState.FAILED))
    page = Html().sections(reported(asked=asked))
    assert 'href="/?state=failed"' in page
    assert 'href="/?q=llama"' in page
    assert "This page is after the last sweep." in Html().sections(reported(asked=Asked(where=SweepFilter(), number=9)))


def test_incidents_stand_first_and_link_to_their_pages() -> None:
    dead = Incident(kind=IncidentKind.DELIVERIES_DEAD, subject="chat", name="chat", detail="no answer", at=NOW, count=3)
    report = reported(FOUND, incidents=(dead,))
    assert [section.key for section in report.sections] == ["attention", "all-sweeps"]
    for shown in surfaces(report):
        assert "3 deliveries were given up: no answer" in shown
    assert 'href="/webhooks?state=dead"' in Html().sections(report)


def test_a_time_is_as_short_as_it_can_be_told_from_now() -> None:
    assert short_moment(NOW - 60, NOW) == "15:59"
    assert short_moment(NOW - 86_400, NOW) == "23 Nov 16:00"
    assert short_moment(NOW - 400 * 86_400, NOW) == "20 Oct 2024"


# ---------------------------------------------------------------- sweep preview
JOB: dict[str, Any] = {
    "model": "llama-3-8b",
    "cluster": "h100:8",
    "workload": {"seq_len": 2048, "global_batch_size": 32},
}
SPACE = {"precision": ["bf16"], "compiled": [False], "tensor_parallel_degree": [1, 16]}


def test_a_preview_says_the_same_on_every_surface() -> None:
    request = Autotuner().sweep(documents.read(SweepCreate, JOB | {"space": SPACE}))
    found = preview(request)
    assert found.sieved is not None
    best = found.predicted.items[0].prediction
    figures = (
        f"{100 * best.mfu:.1f}",
        f"{best.peak_bytes / 1e9:.1f} GB",
        f"{found.sieved.num_candidates:,}",
        f"{found.predicted.num_legal:,}",
        f"{found.sieved.falls[0].num_layouts:,}",
    )
    for text in surfaces(sweep_preview_report(request, found)):
        assert [figure for figure in figures if figure not in text] == []
    assert json.loads(json.dumps(documents.write(found)))["predicted"]["num_legal"] == found.predicted.num_legal


def test_a_preview_without_fitting_layouts_names_remedies_once_they_are_known() -> None:
    request = Autotuner().sweep(documents.read(SweepCreate, JOB | {"model": "llama-3-70b", "space": SPACE}))
    at_once, later = (
        surfaces(sweep_preview_report(request, preview(request, with_remedies=known), looks_on=not known))[0]
        for known in (False, True)
    )
    assert "No layout is predicted to fit: the smallest needs" in at_once
    assert ("Looking for changes that would help" in at_once, "Looking for changes that would help" in later) == (
        True,
        False,
    )


# ---------------------------------------------------------------- sweep trials
REQUEST = sweep_request(job=big_job())


def shown(*trials: Trial) -> tuple[str, ...]:
    section = present(ended(failures(REQUEST, trials), trials, "sw-test"))
    return surfaces(Report(headline="", sections=(section,)))


def test_deaths_have_the_same_figures_on_every_surface() -> None:
    need = prediction(memory=memory(activations_bytes=100e9), fits=False)
    large = [replace(died(n, replace(BASE, micro_batch_size=8)), prediction=need) for n in range(4)]
    trials = [*large, *(ran(10 + n, BASE, 1.0) for n in range(6))]
    (group,) = failures(REQUEST, trials)
    written = documents.write(group)
    peak, limit = (format_bytes(written["decisive"][name]) for name in ("most", "limit"))
    assert written["way_out"]["trial"] == 10
    for text in shown(*trials):
        assert "out of memory" in text
        assert f"Predicted to need {peak} of {limit}." in text
        assert "4 of the 4 failed trials have mb 8, and 0 of the 6 trials that ran have it." in text
        assert "Trial 10 ran with micro-batch 8 → 1, in 10 MB." in text


def test_deaths_of_machines_say_how_often_their_trials_were_started() -> None:
    lost = [replace(died(n, BASE, FailureKind.INFRASTRUCTURE), attempts=n + 1) for n in range(3)]
    for text in shown(*lost):
        assert "Started up to 3 times." in text
        assert "Run them again when the machines are back" in text


# ---------------------------------------------------------------- comments
def test_comments_say_text_tags_writer_and_trial_on_every_surface_and_are_escaped() -> None:
    common: dict[str, Any] = {"sweep_id": "sw-test", "created_at": 1e9}
    found = [
        Comment(id="cm-b", text="<b>bad</b>\nlink", tags=("paper",), trial_number=3, created_by="ada", **common),
        Comment(id="cm-a", text="", tags=("baseline",), created_by="", **common),
    ]
    for text in surfaces(comments_report(found, "sw-test")):
        for said in ("<b>bad</b>", "link", "trial 3", "by ada", "2001-09-09", "baseline"):
            assert said in text.replace("&#8203;", ""), said
    page = Html().section(comments_section(found, 102, may_remove=lambda one: one.id == "cm-a"))
    assert "<b>" not in page
    assert "The newest 2 of 102 comments" in page
    assert 'action="/sweeps/sw-test/comments/cm-a/delete"' in page
    assert "cm-b" not in page
    assert 'href="/?tag=paper"' in page
