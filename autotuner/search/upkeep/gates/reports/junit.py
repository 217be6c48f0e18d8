"""JUnit XML of a gate: the dialect that GitLab, Jenkins and the actions of GitHub read."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from autotuner.core.upkeep import MfuGateOutcome
from autotuner.search.upkeep.gates.reports.report import GateReport, outcome_in_words

_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 has no way to write (its production 2)."""


def junit_xml(report: GateReport) -> str:
    """One suite with one case: passed, failed because the MFU is lower, or in error because nobody can tell."""
    problem = _problem(report)
    counts = {"tests": "1", "failures": _count(problem == "failure"), "errors": _count(problem == "error")}
    counts |= {"skipped": _count(problem == "skipped"), "time": f"{report.elapsed_s:.3f}"}
    suites = ElementTree.Element("testsuites", {"name": "autotuner gate", **counts})
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "autotuner gate", **counts})
    group = {"classname": f"autotuner.gate.{_text(report.group)}", "time": f"{report.elapsed_s:.3f}"}
    case = ElementTree.SubElement(suite, "testcase", {"name": _text(report.name), **group})
    if problem is not None:
        said = {"message": _text(report.detail), "type": outcome_in_words(report.outcome)}
        ElementTree.SubElement(case, problem, said).text = _text(_lines(report))
    else:
        ElementTree.SubElement(case, "system-out").text = _text(_lines(report))
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def _problem(report: GateReport) -> str | None:
    """The element that says why the case is not passed."""
    if report.outcome is None:
        return "skipped"
    if report.is_passed:
        return None
    return "failure" if report.outcome is MfuGateOutcome.FAILED else "error"


def _lines(report: GateReport) -> str:
    rows = [f"{name}: {value}" for name, value in report.facts]
    return "\n".join([f"{report.detail}.", *rows, *(f"{line}." for line in (*report.changes, *report.notes))])


def _count(holds: bool) -> str:
    return "1" if holds else "0"


def _text(text: str) -> str:
    return _NO_XML.sub("�", text)
