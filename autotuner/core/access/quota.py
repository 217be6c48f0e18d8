"""Quota: how much one caller may take, and how much was taken."""

from __future__ import annotations

from dataclasses import dataclass

from autotuner.core import check

__all__ = ["Quota", "Usage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """How much one caller may take; None: as much as there is.

    Attributes:
        unfinished_sweeps: Sweeps of the caller that wait, run or are paused, at once.
        accelerator_hours_per_day: Of all sweeps of the caller over the last 24 hours, with what unfinished ones may yet
            take.
        requests_per_minute: To one process of the service.
    """

    unfinished_sweeps: int | None = None
    accelerator_hours_per_day: float | None = None
    requests_per_minute: int | None = None

    def __post_init__(self) -> None:
        for name in ("unfinished_sweeps", "accelerator_hours_per_day", "requests_per_minute"):
            if getattr(self, name) is not None:
                check.positive(self, name)

    @property
    def is_limiting_sweeps(self) -> bool:
        """Whether a new sweep has to be held to it."""
        return self.unfinished_sweeps is not None or self.accelerator_hours_per_day is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a caller takes now.

    Attributes:
        unfinished_sweeps: That wait, run or are paused.
        accelerator_hours: Of trials and loss gates over the last 24 hours, those that still run included.
        promised_hours: That unfinished sweeps may yet take by their budgets; None where one has no such budget.
    """

    unfinished_sweeps: int
    accelerator_hours: float
    promised_hours: float | None
