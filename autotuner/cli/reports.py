"""Files that a CI system reads of a gate, and the exit code that it acts on."""

from __future__ import annotations

from pathlib import Path

from autotuner.core.errors import InvalidInput
from autotuner.core.upkeep import MfuGateOutcome
from autotuner.search.upkeep.gate_reports import GateReport, badge_svg, junit_xml, markdown

_EXIT_CODES = {
    MfuGateOutcome.PASSED: 0,
    MfuGateOutcome.COULD_NOT_RUN: 6,
    MfuGateOutcome.CANCELLED: 6,
    MfuGateOutcome.FAILED: 8,
    MfuGateOutcome.UNDECIDED: 9,
    MfuGateOutcome.NO_BASELINE: 10,
}


def exit_code_of(report: GateReport) -> int:
    """What the command ends with: 0 where the change may be merged."""
    assert report.outcome is not None, "a command waits for the end"
    return 0 if report.is_passed else _EXIT_CODES[report.outcome]


def write_reports(report: GateReport, *, junit: Path | None, summary: Path | None, badge: Path | None) -> None:
    """Write what paths are given for.

    Raises:
        InvalidInput: One cannot be written.
    """
    _write("--junit", junit, junit_xml(report))
    _write("--summary", summary, markdown(report))
    _write("--badge", badge, badge_svg(report))


def _write(option: str, path: Path | None, text: str) -> None:
    """The text into the file, where one is given; a folder that is missing is made."""
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(option, str(path), f"cannot be written: {error.strerror}") from error
