from __future__ import annotations

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from autotuner.core.upkeep import MfuGateOutcome
from autotuner.search.upkeep.gates.reports.badge import badge_svg
from autotuner.search.upkeep.gates.reports.junit import junit_xml
from autotuner.search.upkeep.gates.reports.markdown import markdown
from autotuner.search.upkeep.gates.reports.report import GateReport


def report(**changes: Any) -> GateReport:
    value = GateReport(
        name="tiny on cpu:2",
        group="main",
        outcome=MfuGateOutcome.FAILED,
        is_passed=False,
        detail="5.2 % slower",
        badge="38.4 %",
        facts=(("MFU", "38.4 %"),),
        changes=("torch was 2.13.0 and is 2.14.0",),
        notes=("nothing was measured",),
        elapsed_s=12.5,
    )
    return replace(value, **changes)


PASSED = {"outcome": MfuGateOutcome.PASSED, "is_passed": True}


def case(value: GateReport) -> ElementTree.Element:
    found = ElementTree.fromstring(junit_xml(value)).find("testsuite/testcase")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("outcome", "is_passed", "element"),
    [
        (MfuGateOutcome.PASSED, True, "system-out"),
        (MfuGateOutcome.FAILED, False, "failure"),
        (MfuGateOutcome.UNDECIDED, False, "error"),
        (MfuGateOutcome.NO_BASELINE, False, "error"),
        (MfuGateOutcome.NO_BASELINE, True, "system-out"),
        (MfuGateOutcome.COULD_NOT_RUN, False, "error"),
        (MfuGateOutcome.CANCELLED, False, "error"),
        (None, False, "skipped"),
    ],
)
def test_junit_has_one_case_whose_element_says_the_outcome(
    outcome: MfuGateOutcome | None, is_passed: bool, element: str
) -> None:
    assert [child.tag for child in case(report(outcome=outcome, is_passed=is_passed))] == [element]


def test_junit_counts_what_it_holds_and_says_the_numbers() -> None:
    suites = ElementTree.fromstring(junit_xml(report()))
    assert [suites.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["1", "1", "0", "0"]
    failure = case(report()).find("failure")
    assert failure is not None
    assert failure.get("message") == "5.2 % slower"
    assert "MFU: 38.4 %" in (failure.text or "")


def test_junit_is_xml_whatever_a_trial_printed() -> None:
    said = case(report(detail='\x1b[31m<oom> & "so on"\x00')).find("failure")
    assert said is not None
    assert said.get("message") == '�[31m<oom> & "so on"�'


def test_markdown_begins_with_the_outcome_and_lists_what_else_changed() -> None:
    lines = markdown(report()).splitlines()
    assert lines[0] == "### ❌ tiny on cpu:2: failed"
    assert "| MFU | 38.4 % |" in lines
    assert "- torch was 2.13.0 and is 2.14.0" in lines


def test_markdown_mentions_nobody_and_refers_to_no_issue() -> None:
    text = markdown(report(name="@ada and #12", detail="a @ b"))
    assert "@&#8203;ada and \\#&#8203;12" in text
    assert "a @ b" in text


def test_markdown_shows_marks_of_a_name_as_they_are() -> None:
    text = markdown(report(name="a|b", detail="<img src=x> [link](http://x) `code`\n# head"))
    assert "a\\|b" in text
    assert "\\<img src=x\\> \\[link\\](http://x) \\`code\\` \\# head." in text


def test_a_badge_is_svg_that_says_the_mfu_in_a_colour_of_the_outcome() -> None:
    def fill(value: GateReport) -> str | None:
        picture = ElementTree.fromstring(badge_svg(value))
        assert picture.get("aria-label") == "MFU: 38.4 %"
        return picture.findall(".//{http://www.w3.org/2000/svg}rect")[-1].get("fill")

    others = [replace(report(), outcome=outcome) for outcome in (None, MfuGateOutcome.UNDECIDED)]
    assert len({fill(one) for one in (report(), report(**PASSED), *others)}) == 4


def test_a_badge_takes_any_text() -> None:
    ElementTree.fromstring(badge_svg(report(badge='<&"')))
