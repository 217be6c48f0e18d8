"""HistoryStore: what the trials of all sweeps measured, as evidence about the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from autotuner.core.trial import PastTrial


class HistoryStore(Protocol):
    """Trials that ran or ran out of memory, of all sweeps; simulated ones are left out.

    Newest first: by their sweep's age, then by their number. ``before`` leaves out what finished then or later.
    """

    def measured(
        self, accelerator: str, stack: str | None = None, *, before: float, after: float = 0.0, limit: int = 1000
    ) -> Sequence[PastTrial]:
        """Those on accelerators of that name, under the stack of that name or any; later than ``after``, and newest."""
        ...

    def of_job(self, job_key: str, *, before: float, limit: int = 1000) -> Sequence[PastTrial]:
        """Those of sweeps for that very job (``core.sweep.job_key``), whatever their space and budget."""
        ...

    def accelerators(self) -> Sequence[str]:
        """Names of those that sweeps were for and a trial has ended on, but for simulated ones, by name."""
        ...

    def newest_at(self) -> float | None:
        """When the last trial of all finished; what was asked before ``newest_at`` changed is still so."""
        ...
