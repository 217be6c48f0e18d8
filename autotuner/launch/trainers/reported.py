"""What a trainer says of itself while it runs, whichever way it says it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedStep:
    """One optimizer step, as one rank saw it.

    Attributes:
        step: As the trainer counts, 0 or 1 first.
        rank: Which rank said so; None where a line does not tell.
        step_time_s: None where it does not say: the time between two of its lines is taken.
        num_steps: Steps that the figures are means over, up to and including this one.
        loss: None on ranks that do not know it.
        tokens: Of the whole job in this step, where it says so; the workload's else.
        peak_bytes: Highest bytes of that rank so far, where it says so.
    """

    step: int
    rank: int | None = None
    step_time_s: float | None = None
    num_steps: int = 1
    loss: float | None = None
    tokens: int | None = None
    peak_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedMemory:
    """The highest bytes of a rank so far, from a line of its own."""

    rank: int
    peak_bytes: int


Reported = ReportedStep | ReportedMemory


class LogReader(Protocol):
    """Finds what the lines that a trainer prints say of its steps; one reader per run, since a step may take two."""

    def read(self, line: str) -> Reported | None:
        """What a line says, without its end; None where it says nothing of a step."""
        ...
