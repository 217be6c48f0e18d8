"""Markdown of a gate, as the summary of a CI job or a comment on a pull request shows it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from autotuner.core.upkeep import MfuGateOutcome
from autotuner.search.upkeep.gates.reports.report import GateReport, outcome_in_words

_SIGNS = {
    MfuGateOutcome.PASSED: "✅",
    MfuGateOutcome.FAILED: "❌",
    MfuGateOutcome.UNDECIDED: "⚠️",
    MfuGateOutcome.NO_BASELINE: "⚠️",
    MfuGateOutcome.COULD_NOT_RUN: "⛔",
    MfuGateOutcome.CANCELLED: "⛔",
}

_MARKS = re.compile(r"([\\`*_{}\[\]<>#|~&!])")
"""Characters that Markdown or the HTML in it would read as more than themselves."""


_REFERENCES = re.compile(r"([@#])(?=\w)")
"""``@name`` and ``#1``, which GitHub and GitLab link after Markdown was read, and so behind a backslash, too."""


def markdown(report: GateReport) -> str:
    """A heading, the outcome as a sentence, a table of numbers, and what else differs."""
    sign = "⏳" if report.outcome is None else "✅" if report.is_passed else _SIGNS[report.outcome]
    parts = [f"### {sign} {_escaped(report.name)}: {outcome_in_words(report.outcome)}", f"{_escaped(report.detail)}."]
    if report.facts:
        rows = [f"| {_escaped(name)} | {_escaped(value)} |" for name, value in report.facts]
        parts.append("\n".join(["| | |", "| --- | --- |", *rows]))
    if report.changes:
        parts.append("What runs it is not what it was:\n\n" + _listed(report.changes))
    if report.notes:
        parts.append(_listed(report.notes))
    return "\n\n".join(parts) + "\n"


def _listed(lines: Iterable[str]) -> str:
    return "\n".join(f"- {_escaped(line)}" for line in lines)


def _escaped(text: str) -> str:
    marked = _MARKS.sub(r"\\\1", " ".join(text.split()))
    return _REFERENCES.sub(r"\1&#8203;", marked)  # a space without width: nobody is mentioned
