"""Files that a CI system reads of a gate, and the exit code that it acts on."""

from __future__ import annotations

from pathlib import Path

from autotuner.core.errors import InvalidInput
from autotuner.core.upkeep import MfuGateOutcome
from autotuner.report.ci import GateCase, badge_svg, junit_xml
from autotuner.report.markdown import markdown

_EXIT_CODES = {
    MfuGateOutcome.PASSED: 0,
    MfuGateOutcome.COULD_NOT_RUN: 6,
    MfuGateOutcome.CANCELLED: 6,
    MfuGateOutcome.FAILED: 8,
    MfuGateOutcome.UNDECIDED: 9,
    MfuGateOutcome.NO_BASELINE: 10,
}


def exit_code_of(case: GateCase) -> int:
    """What the command ends with: 0 where the change may be merged."""
    assert case.outcome is not None, "a command waits for the end"
    return 0 if case.is_passed else _EXIT_CODES[case.outcome]


def write_reports(case: GateCase, *, junit: Path | None, summary: Path | None, badge: Path | None) -> None:
    """Write what paths are given for.

    Raises:
        InvalidInput: One cannot be written.
    """
    _write("--junit", junit, junit_xml(case))
    _write("--summary", summary, markdown(case.report))
    _write("--badge", badge, badge_svg(case))


def _write(option: str, path: Path | None, text: str) -> None:
    """The text into the file, where one is given; a folder that is missing is made."""
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(option, str(path), f"cannot be written: {error.strerror}") from error
