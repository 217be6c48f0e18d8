"""Files that a CI system reads of a gate, and the exit code that it acts on."""

from __future__ import annotations

from pathlib import Path

from autotuner.domain.upkeep.mfu_gate import MfuGateOutcome
from autotuner.errors import InvalidInput

__all__ = ["exit_code_of", "write_file"]

_EXIT_CODES = {
    MfuGateOutcome.PASSED: 0,
    MfuGateOutcome.COULD_NOT_RUN: 6,
    MfuGateOutcome.CANCELLED: 6,
    MfuGateOutcome.FAILED: 8,
    MfuGateOutcome.UNDECIDED: 9,
    MfuGateOutcome.NO_BASELINE: 10,
}


def exit_code_of(outcome: MfuGateOutcome, *, is_passed: bool) -> int:
    """What the command ends with: 0 where the change may be merged."""
    return 0 if is_passed else _EXIT_CODES[outcome]


def write_file(option: str, path: Path | None, text: str) -> None:
    """Write the text, where a path is given; a folder that is missing is made.

    Raises:
        InvalidInput: It cannot be written.
    """
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(option, str(path), f"cannot be written: {error.strerror}") from error
