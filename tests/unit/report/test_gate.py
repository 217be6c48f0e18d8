"""Reports of gates: every surface shows the same figures, and CI's files say how a gate ended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from autotuner.core import documents
from autotuner.core.layout import Layout
from autotuner.core.upkeep import GateRun, RegressionGateOutcome
from autotuner.report.ci import GateCase, badge_svg, junit_xml, measured_case, predicted_case
from autotuner.report.gate import baselines_report, gate_report, gates_report
from autotuner.report.html import Html
from autotuner.report.markdown import markdown
from autotuner.report.report import Lines, Report, Section
from autotuner.search.upkeep.gate_prediction import predicted_gate
from tests.builders import big_job, present
from tests.unit.report.surfaces import surfaces
from tests.unit.search.upkeep.builders import SLOWER, baseline, gate, measured, runs

FAILED = measured(RegressionGateOutcome.FAILED, findings=SLOWER)


def held_to(**changes: Any) -> GateRun:
    """A gate that failed beside a baseline of two sessions."""
    before = baseline(runs=(runs(1000.0), runs(1100.0)), model="tiny", cluster="cpu:2")
    return gate(result=FAILED, baseline=before, finished_at=1060.0, **changes)


def test_a_gate_has_the_same_figures_on_every_surface() -> None:
    figures = ("−7.0 %", "−8.0 % to −6.0 %", "0.4 %", "930 tokens/s", "25.0 %", "1.05 ktokens/s", "2.0 %")
    for shown in surfaces(gate_report(held_to())):
        for figure in (*figures, "4 runs in 2 sessions"):
            assert figure in shown
    document = documents.write(held_to())
    found = document["result"]["findings"]
    assert (found["against_baseline"]["change"], found["runs"]["rates"]) == (-0.07, [930.0, 930.0])
    assert (document["request"]["baseline"]["tokens_per_s"], document["request"]["baseline"]["num_runs"]) == (1050.0, 4)
    assert (document["outcome"], document["is_passed"]) == ("failed", False)


def test_lists_of_gates_and_baselines_have_the_same_figures_on_every_surface() -> None:
    held = present(held_to().request.baseline)
    for shown in surfaces(gates_report([held_to()], 1, [held])):
        for figure in ("−7.0 %", "1,050 tokens/s", "4 runs in 2 sessions"):
            assert figure in shown
    for shown in surfaces(baselines_report([held])):
        assert shown.count("1,050 tokens/s") == 1


def test_a_gate_says_where_its_runs_came_from_and_that_nothing_ran() -> None:
    again = gate(result=replace(FAILED, reused_from="ga-0"), child_id=None)
    assert "Nothing was measured again: ga-0" in markdown(gate_report(again))
    simulated = runs(environment={"simulated": "nothing ran"})
    pretended = replace(FAILED, findings=replace(SLOWER, runs=simulated))
    assert "Simulated: nothing ran." in markdown(gate_report(gate(result=pretended)))
    assert " simulated" in surfaces(baselines_report([baseline(runs=(simulated,))]))[0]


# ---------------------------------------------------------------- test cases
def test_a_case_has_the_outcome_in_a_few_words_and_the_time_that_it_took() -> None:
    running = measured_case(gate(), now=1010.0)
    assert (running.outcome, running.badge, running.elapsed_s) == (None, "running", 10.0)
    assert "sw-1" in running.detail
    nothing = measured(RegressionGateOutcome.COULD_NOT_RUN, findings=None)
    assert measured_case(gate(result=nothing), now=1010.0).badge == "could not run"
    ended = measured_case(held_to(), now=5000.0)
    assert (ended.badge, ended.elapsed_s, ended.is_passed) == ("25.0 %", 60.0, False)


def test_a_prediction_is_a_case_with_its_peak_and_its_probability() -> None:
    job, layout = big_job(64), Layout.parse("fsdp16 tp8 pp4 1f1b mb1 sp")
    case = predicted_case(predicted_gate(job, layout, layout, tolerance=0.02), job)
    text = markdown(case.report)
    assert case.badge.endswith("% predicted")
    names = ("predicted MFU", "predicted change of the rate", "peak memory of the rank that needs most")
    for name in (*names, "probability to fit"):
        assert f"**{name}**" in text
    assert "Nothing was measured." in text


# ---------------------------------------------------------------- formats
def case(**changes: Any) -> GateCase:
    name, detail = changes.pop("name", "tiny on cpu:2"), changes.get("detail", "5.2 % slower")
    value = GateCase(
        report=Report(headline=name, sections=(Section(blocks=(Lines(items=(f"{detail}.", "MFU 38.4 %")),)),)),
        group="main",
        outcome=RegressionGateOutcome.FAILED,
        is_passed=False,
        detail="5.2 % slower",
        badge="38.4 %",
        elapsed_s=12.5,
    )
    return replace(value, **changes)


PASSED = {"outcome": RegressionGateOutcome.PASSED, "is_passed": True}


def element_of(value: GateCase) -> ElementTree.Element:
    return present(ElementTree.fromstring(junit_xml(value)).find("testsuite/testcase"))


@pytest.mark.parametrize(
    ("outcome", "is_passed", "element"),
    [
        (RegressionGateOutcome.PASSED, True, "system-out"),
        (RegressionGateOutcome.FAILED, False, "failure"),
        (RegressionGateOutcome.UNDECIDED, False, "error"),
        (RegressionGateOutcome.NO_BASELINE, False, "error"),
        (RegressionGateOutcome.NO_BASELINE, True, "system-out"),
        (RegressionGateOutcome.COULD_NOT_RUN, False, "error"),
        (RegressionGateOutcome.CANCELLED, False, "error"),
        (None, False, "skipped"),
    ],
)
def test_junit_has_one_case_that_says_the_outcome(
    outcome: RegressionGateOutcome | None, is_passed: bool, element: str
) -> None:
    assert [child.tag for child in element_of(case(outcome=outcome, is_passed=is_passed))] == [element]


def test_junit_counts_what_it_holds_and_is_xml_whatever_a_trial_printed() -> None:
    suites = ElementTree.fromstring(junit_xml(case()))
    assert [suites.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["1", "1", "0", "0"]
    failure = present(element_of(case()).find("failure"))
    assert failure.get("message") == "5.2 % slower"
    assert "MFU 38.4 %" in (failure.text or "")
    said = present(element_of(case(detail='\x1b[31m<oom> & "so on"\x00')).find("failure"))
    assert said.get("message") == '�[31m<oom> & "so on"�'
    figures = present(element_of(measured_case(held_to(), now=0.0)).find("failure")).text or ""
    assert "change of the rate: −7.0 %, −8.0 % to −6.0 %" in figures
    assert "this change: measurements 2, mean 930 tokens/s" in figures


@pytest.mark.parametrize(
    ("sets_baseline", "outcome", "headline"),
    [
        (False, RegressionGateOutcome.FAILED, "## ❌ MFU of tiny on cpu:2: failed"),
        (False, RegressionGateOutcome.NO_BASELINE, "## ⚠️ MFU of tiny on cpu:2: no baseline"),
        (True, RegressionGateOutcome.NO_BASELINE, "## ✅ MFU of tiny on cpu:2: baseline set"),
    ],
)
def test_markdown_tells_the_outcome_at_a_glance(
    sets_baseline: bool, outcome: RegressionGateOutcome, headline: str
) -> None:
    ended = gate(result=measured(outcome), sets_baseline=sets_baseline)
    assert markdown(gate_report(ended)).splitlines()[0] == headline


def test_markdown_mentions_nobody_and_shows_names_as_they_are() -> None:
    text = markdown(case(name="@ada and #12", detail="a @ b").report)
    assert "@&#8203;ada and \\#&#8203;12" in text
    assert "A @ b." in text
    text = markdown(case(name="a|b", detail="<img src=x> [link](http://x) `code`\n# head").report)
    assert "a\\|b" in text
    assert "\\<img src=x\\> \\[link\\](http://x) \\`code\\` \\# head." in text


def test_a_badge_is_svg_of_any_text_in_a_colour_of_the_outcome() -> None:
    def fill(value: GateCase) -> str | None:
        picture = ElementTree.fromstring(badge_svg(value))
        assert picture.get("aria-label") == "MFU: 38.4 %"
        return picture.findall(".//{http://www.w3.org/2000/svg}rect")[-1].get("fill")

    others = [case(outcome=outcome) for outcome in (None, RegressionGateOutcome.UNDECIDED)]
    assert len({fill(one) for one in (case(), case(**PASSED), *others)}) == 4
    ElementTree.fromstring(badge_svg(case(badge='<&"')))


def test_a_page_links_each_gate_of_a_list() -> None:
    assert '<a href="/root/gates/ga-1" id="link-ga-1">' in Html("/root").sections(gates_report([held_to()], 1))
