"""What a gate found, as CI systems and people read it: JUnit XML, Markdown, a badge."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.sax.saxutils import escape, quoteattr

from autotuner.core.comparison import RunGroup
from autotuner.core.units import format_rate
from autotuner.core.upkeep import MfuGate, MfuGateOutcome
from autotuner.search.upkeep.gate import is_passed


@dataclass(frozen=True, slots=True, kw_only=True)
class GateReport:
    """A gate that was measured or predicted, in words."""

    name: str
    """What was gated, one line."""
    group: str
    """What such gates share, such as the name of their baseline."""
    outcome: MfuGateOutcome | None
    """None while it runs."""
    is_passed: bool
    """Whether the change may be merged."""
    detail: str
    """The outcome with its numbers, as a sentence without a full stop."""
    badge: str
    """A few words for a badge."""
    facts: tuple[tuple[str, str], ...] = ()
    """Rows of a table: what, and how much."""
    changes: tuple[str, ...] = ()
    """What differs in the environment, a sentence for each."""
    notes: tuple[str, ...] = ()
    """What a reader should know beside that, a sentence for each."""
    elapsed_s: float = 0.0
    """What it took."""


def outcome_in_words(outcome: MfuGateOutcome | None) -> str:
    """The outcome as people say it; of one that runs, that."""
    return "running" if outcome is None else outcome.value.replace("_", " ")


def report_of(gate: MfuGate, *, now: float) -> GateReport:
    """What the gate found, or that it runs."""
    job, result = gate.request.sweep.job, gate.result
    runs = result.findings.runs if result and result.findings else None
    return GateReport(
        name=f"MFU of {job.model.name} on {job.cluster.name}",
        group=gate.request.baseline,
        outcome=None if result is None else result.outcome,
        is_passed=is_passed(gate),
        detail=f"sweep {gate.sweep_id} measures" if result is None else result.detail,
        badge=_badge(gate, runs),
        facts=tuple(_facts(gate, runs)),
        changes=() if result is None else tuple(map(str, result.changes)),
        notes=tuple(_notes(gate, runs)),
        elapsed_s=(gate.finished_at or now) - gate.created_at,
    )


def _badge(gate: MfuGate, runs: RunGroup | None) -> str:
    if gate.result is None:
        return "running"
    return f"{100 * runs.mfu:.1f} %" if runs else gate.result.outcome.value.replace("_", " ")


def _facts(gate: MfuGate, runs: RunGroup | None) -> Iterator[tuple[str, str]]:
    result, sequences = gate.result, gate.request.sweep.job.workload
    yield "job", f"{sequences.global_batch_size} sequences of {sequences.seq_len}"
    measured = result.findings.measured if result and result.findings else gate.request.layout
    yield "layout", "the best that a sweep finds" if measured is None else str(measured)
    if runs is not None:
        yield "now", _reached((runs,))
    if gate.baseline is not None:
        yield f"baseline {gate.baseline.name}", _reached(gate.baseline.runs)
        if measured is not None and gate.baseline.layout != measured:
            yield "the baseline's layout", str(gate.baseline.layout)
    against = result.findings.against_baseline if result and result.findings else None
    if against is not None:
        low, high = 100 * against.low, 100 * against.high
        yield "change of the rate", f"{100 * against.change:+.1f} % (95 % interval {low:+.1f} to {high:+.1f} %)"
        yield "noise from run to run", f"{100 * against.noise:.1f} %"
        yield "tolerated loss", f"{100 * gate.request.test.tolerance:g} %"
    if gate.request.software:
        yield "software", gate.request.software


def _reached(groups: tuple[RunGroup, ...]) -> str:
    """Mean over all runs, and how many they are."""
    rates = [rate for group in groups for rate in group.rates]
    mfu = sum(group.mfu * len(group.rates) for group in groups) / len(rates)
    runs = "1 run" if len(rates) == 1 else f"{len(rates)} runs"
    sittings = f" in {len(groups)} sittings" if len(groups) > 1 else ""
    rate = format_rate(sum(rates) / len(rates), "token/s")
    return f"{100 * mfu:.1f} % MFU, {rate}, {runs}{sittings}"


def _notes(gate: MfuGate, runs: RunGroup | None) -> Iterator[str]:
    if runs is not None and "simulated" in runs.environment:
        yield f"simulated: {runs.environment['simulated'].removeprefix('simulated: ')}"
    if gate.result is not None and gate.result.reused_from is not None:
        yield f"nothing was measured again: {gate.result.reused_from} measured the same layout with the same software"
    yield f"gate {gate.id}" + (f", sweep {gate.sweep_id}" if gate.sweep_id else "")


_HEIGHT, _PAD, _CHARACTER = 20, 6, 6.6
"""Pixels; a character is as wide as the mean of Verdana's at 11 px, and the text is stretched to what was reckoned."""

_GREY, _GREEN, _RED, _AMBER = "#555", "#2e7d32", "#c62828", "#9a6700"
"""White text on each of them has a contrast of 4.5 at least (WCAG 2.2, 1.4.3)."""


def badge_svg(report: GateReport) -> str:
    """The MFU, coloured by the outcome."""
    return _svg("MFU", report.badge, _colour(report))


def _colour(report: GateReport) -> str:
    match report.outcome:
        case None:
            return _GREY
        case MfuGateOutcome.FAILED:
            return _RED
        case _ if report.is_passed:
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


_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 has no way to write (its production 2)."""


def junit_xml(report: GateReport) -> str:
    """One suite with one case: passed, failed because the MFU is lower, or in error because nobody can tell."""
    problem = _problem(report)
    names = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    counts = {"tests": "1"} | {name: str(int(problem == one)) for name, one in names.items()}
    counts["time"] = f"{report.elapsed_s:.3f}"
    suites = ElementTree.Element("testsuites", {"name": "autotuner gate", **counts})
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "autotuner gate", **counts})
    group = {"classname": f"autotuner.gate.{_xml_text(report.group)}", "time": f"{report.elapsed_s:.3f}"}
    case = ElementTree.SubElement(suite, "testcase", {"name": _xml_text(report.name), **group})
    if problem is not None:
        said = {"message": _xml_text(report.detail), "type": outcome_in_words(report.outcome)}
        ElementTree.SubElement(case, problem, said).text = _xml_text(_lines(report))
    else:
        ElementTree.SubElement(case, "system-out").text = _xml_text(_lines(report))
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


def _xml_text(text: str) -> str:
    return _NO_XML.sub("�", text)


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
