"""The answer of a sweep and its front: terminal, page, Markdown and JSON carry the same figures."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from rich.console import Console

from autotuner.core import documents
from autotuner.core.choices import Recompute
from autotuner.core.layout import Layout
from autotuner.core.objective import Metric, Objective
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import Trial, TrialState
from autotuner.report.html import Html
from autotuner.report.markdown import markdown
from autotuner.report.report import Report
from autotuner.report.sweep_answer import answer_report, front_report
from autotuner.report.terminal import render
from autotuner.search.results.axis import Value
from autotuner.search.results.sweep_answer import Role, answer
from autotuner.search.results.sweep_front import sweep_front
from tests.builders import cpu_layout, measurement, prediction, present, sweep_request
from tests.unit.search.results.test_sweep_front import FAST, FRUGAL, MIDDLE, WORSE, of


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


def surfaces(report: Report) -> dict[str, str]:
    console = Console(width=400)
    with console.capture() as printed:
        console.print(render(report))
    page = re.sub(r"<[^>]+>", " ", str(Html().sections(report)))
    texts = {"terminal": printed.get(), "page": page, "markdown": markdown(report).replace("\\", "")}
    return {name: " ".join(text.split()) for name, text in texts.items()}


@pytest.fixture
def request_() -> SweepRequest:
    return sweep_request()


def test_an_answer_carries_the_same_figures_on_every_surface(request_: SweepRequest) -> None:
    found = answer(request_, trials(0.4, 0.3))
    assert found is not None
    for name, text in surfaces(answer_report(found, request_, sweep_id="sw-1")).items():
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
        return surfaces(answer_report(found, request_, sweep_id="sw-1"))["terminal"]

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
        assert f"rank 2, the best with a different {said}" in report.headline


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
    for name, text in surfaces(front_report(found, "measured", sweep_id="sw-1")).items():
        assert "40.0 %" in text, name
        assert "40 ktokens/s" in text, name
        assert "trial 1 is behind trial 0" in text.lower(), name
    assert documents.write(found)["points"][0]["values"] == [0.4, 4e4]


def test_a_point_of_a_front_says_what_it_is_the_best_in_and_what_more_costs() -> None:
    for text in surfaces(front_report(of(FAST, MIDDLE, FRUGAL, WORSE), sweep_id="sw-1")).values():
        assert "The best of 4 in MFU; trial 1 has +29.9 % tokens per joule for −9.1 % MFU" in text
        assert "1 other is better in nothing." in text


def test_a_front_without_a_point_says_so(request_: SweepRequest) -> None:
    asked = replace(request_, objective=Objective(front=(Metric.MFU, Metric.TOKENS_PER_S)))
    for text in surfaces(front_report(sweep_front(asked, []), sweep_id="sw-1")).values():
        assert "No trial has a result that tells MFU and token rate yet." in text
