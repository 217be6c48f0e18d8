"""The results of gates for CI systems: JUnit XML and a badge. The Markdown for CI comes from the gate's report."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.sax.saxutils import escape, quoteattr

from autotuner.core.job import Job
from autotuner.core.upkeep import GateRun, RegressionGateOutcome
from autotuner.report.gate import gate_report, predicted_gate_report
from autotuner.report.report import Cells, Figure, Lines, Report, Table
from autotuner.report.terminal import beside, line_of, statement
from autotuner.report.verdicts import predicted_verdict
from autotuner.report.words import plain
from autotuner.search.upkeep.gate_prediction import PredictedGate


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCase:
    """A performance regression gate, measured or predicted, as one test case of a CI system."""

    report: Report
    """Report of the gate; its headline names the case."""
    group: str
    """Name that gates of one group share, such as the name of their baseline."""
    outcome: RegressionGateOutcome | None
    """Outcome of the gate; None while it runs."""
    is_passed: bool
    """True if the change may be merged."""
    detail: str
    """The outcome with its numbers, as a sentence without a full stop."""
    badge: str
    """A few words for a badge."""
    elapsed_s: float = 0.0
    """Duration of the gate in seconds."""


def measured_case(gate: GateRun, *, now: float, server: str = "") -> GateCase:
    """Return a measured performance regression gate as a test case of a CI system.

    Args:
        gate: The gate, as it is stored.
        now: Present time in epoch seconds, for the duration of a gate that still runs.
        server: Address of the service, for a link to the gate's page; empty: no link.
    """
    runs = gate.result.findings.runs if gate.result and gate.result.findings else None
    return GateCase(
        report=gate_report(gate, server),
        group=gate.subject,
        outcome=gate.outcome,
        is_passed=gate.is_passed,
        detail=gate.detail if gate.result else f"sweep {gate.child_id} measures",
        badge=f"{100 * runs.mfu:.1f} %" if runs else plain(gate.word),
        elapsed_s=(gate.finished_at or now) - gate.created_at,
    )


def predicted_case(gate: PredictedGate, job: Job) -> GateCase:
    """Return a performance regression gate that predicts, and measures nothing, as a test case of a CI system.

    Args:
        gate: The gate's findings.
        job: The job that the predicted layouts train.
    """
    return GateCase(
        report=predicted_gate_report(gate, job),
        group="predicted",
        outcome=gate.outcome,
        is_passed=gate.is_passed,
        detail=predicted_verdict(gate, job),
        badge="cannot run" if gate.predicted is None else f"{100 * gate.predicted.mfu:.1f} % predicted",
    )


# ------------------------------------------------------------------ badge
_HEIGHT, _PAD, _CHARACTER = 20, 6, 6.6
"""Sizes of the badge in pixels. A character is as wide as the mean character of Verdana at 11 px; the text is stretched
to the computed width."""

_GREY, _GREEN, _RED, _AMBER = "#555", "#2e7d32", "#c62828", "#9a6700"
"""Colours of the badge. White text on each of them has a contrast of at least 4.5 (WCAG 2.2, 1.4.3)."""


def badge_svg(case: GateCase) -> str:
    """Return an SVG badge with the MFU of a performance regression gate, in a colour that shows the outcome."""
    return _svg("MFU", case.badge, _colour(case))


def _colour(case: GateCase) -> str:
    match case.outcome:
        case None:
            return _GREY
        case RegressionGateOutcome.FAILED:
            return _RED
        case _ if case.is_passed:
            return _GREEN
    return _AMBER


def _svg(left: str, right: str, colour: str) -> str:
    widths = [round(_CHARACTER * len(text)) + 2 * _PAD for text in (left, right)]
    whole = sum(widths)
    texts = _svg_text(left, 0, widths[0]) + _svg_text(right, widths[0], widths[1])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole}" height="{_HEIGHT}" role="img" '
        f"aria-label={quoteattr(f'{left}: {right}')}><title>{escape(f'{left}: {right}')}</title>"
        f'<clipPath id="r"><rect width="{whole}" height="{_HEIGHT}" rx="3"/></clipPath><g clip-path="url(#r)">'
        f'<rect width="{widths[0]}" height="{_HEIGHT}" fill="{_GREY}"/>'
        f'<rect x="{widths[0]}" width="{widths[1]}" height="{_HEIGHT}" fill="{colour}"/></g>'
        f'<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">{texts}</g></svg>\n'
    )


def _svg_text(text: str, x: int, width: int) -> str:
    length = f'textLength="{width - 2 * _PAD}" lengthAdjust="spacingAndGlyphs"'
    return f'<text x="{x + _PAD}" y="14" {length}>{escape(text)}</text>'


# ------------------------------------------------------------------ JUnit
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot contain (its production 2)."""


def junit_xml(case: GateCase) -> str:
    """Return JUnit XML: one test suite with one test case.

    The case is marked as skipped while the gate runs. It passes if the gate passes, and it is a failure if the change
    is slower. It is an error if the gate is undecided or could not run.
    """
    problem = _problem(case)
    names = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    counts = {"tests": "1"} | {name: str(int(problem == one)) for name, one in names.items()}
    counts["time"] = f"{case.elapsed_s:.3f}"
    suites = ElementTree.Element("testsuites", {"name": "autotuner gate", **counts})
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "autotuner gate", **counts})
    group = {"classname": f"autotuner.gate.{_xml_text(case.group)}", "time": f"{case.elapsed_s:.3f}"}
    element = ElementTree.SubElement(suite, "testcase", {"name": _xml_text(case.report.headline), **group})
    text = _xml_text("\n".join(_lines(case.report)))
    if problem is not None:
        said = {"message": _xml_text(case.detail), "type": plain(case.outcome or "running")}
        ElementTree.SubElement(element, problem, said).text = text
    else:
        ElementTree.SubElement(element, "system-out").text = text
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def _problem(case: GateCase) -> str | None:
    """Return the XML element that says why the gate did not pass; None if it passed."""
    if case.outcome is None:
        return "skipped"
    if case.is_passed:
        return None
    return "failure" if case.outcome is RegressionGateOutcome.FAILED else "error"


def _lines(report: Report) -> Iterator[str]:
    """Yield the whole report as plain text, one line for each figure and for each row of a table."""
    yield from [line_of(report.facts)] if report.facts else []
    for block in (block for section in report.sections for block in section.blocks):
        match block:
            case Lines():
                yield from map(statement, block.items)
            case [Figure(), *_]:
                yield from (f"{one.name}: {beside(one.value)}" for one in block if isinstance(one, Figure))
            case Table():
                heads = [column.name for column in block.columns[1:]]
                for name, *cells in block.rows:
                    yield f"{beside(name)}: {', '.join(map(_named, heads, cells))}"


def _named(head: str, cells: Cells) -> str:
    return f"{head} {beside(cells)}"


def _xml_text(text: str) -> str:
    return _NO_XML.sub("�", text)
