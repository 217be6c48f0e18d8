"""RetuneStore: retunes and their runs, so that of many services one starts a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from autotuner.core.access import NOBODY_ASKED, Caller
from autotuner.core.comparison import RunGroup
from autotuner.core.layout import Layout
from autotuner.core.sweep import SweepRequest
from autotuner.core.upkeep import Retune, RetuneRequest, RetuneRun, Trigger
from autotuner.ports.page import Page


class RetuneStore(Protocol):
    """Retunes and their runs; every method is one transaction, as in ``Store``.

    ``start_run`` does all of its step or nothing, and of many that try the same step one does it. A run is durable: it
    awaits its sweep, and the worker that takes it then stores how it ends.
    """

    # ------------------------------------------------------------------ retunes
    def save(self, request: RetuneRequest, *, now: float, next_due_at: float | None, created_by: str = "") -> Retune:
        """Store a new retune; a name that is taken raises ``Conflict``."""
        ...

    def get(self, name: str) -> Retune:
        """As it stands now; ``NotFound`` names the nearest."""
        ...

    def list(self) -> Sequence[Retune]:
        """By name; without those that another release wrote and this one cannot read."""
        ...

    def set_paused(self, name: str, paused: bool, *, next_due_at: float | None) -> Retune:
        """Pause it, which forgets when it was due, or go on at ``next_due_at``."""
        ...

    def set_incumbent(self, name: str, layout: Layout, baseline: Sequence[RunGroup]) -> Retune:
        """Another layout is in use now, which reached ``baseline``."""
        ...

    def remove(self, name: str) -> None:
        """Forget it with its runs; their sweeps stay. A run that is not finished raises ``Conflict``."""
        ...

    # ------------------------------------------------------------------ runs
    def due(self, now: float) -> Sequence[Retune]:
        """Those whose due time has come, the one due first in front."""
        ...

    def start_run(
        self,
        name: str,
        *,
        expected_due_at: float | None,
        due_at: float,
        next_due_at: float | None,
        trigger: Trigger,
        now: float,
        sweep: SweepRequest | None = None,
        num_missed: int = 0,
        skipped: bool = False,
        caller: Caller = NOBODY_ASKED,
    ) -> RetuneRun | None:
        """Store a run with its queued sweep, and the retune's next due time; all at once.

        None, and nothing is changed, where somebody else was first or things are not as the caller saw them: the retune
        is gone or due at another time than ``expected_due_at``, a run of ``due_at`` is stored, or another run is
        unfinished and this one is not skipped; or the other way round.

        Args:
            name: Whose run it is.
            expected_due_at: The retune's ``next_due_at`` as the caller saw it.
            due_at: When the run was due; now, of a run out of turn.
            next_due_at: What the retune's becomes; as it was, of a run out of turn.
            trigger: Why it begins.
            now: Of its start.
            sweep: What it measures; None of one that is skipped, or that cannot start and ends at once.
            num_missed: Due times that it stands for, beside its own.
            skipped: It was due while another was unfinished, and is over.
            caller: Whose sweep it is, held to their quota as by ``Store.create_sweep``.
        """
        ...

    def unfinished_run(self, name: str) -> RetuneRun | None:
        """The one that is running; there is one at most."""
        ...

    def get_run(self, run_id: str) -> RetuneRun:
        """As it stands now."""
        ...

    def runs(self, name: str, *, page: Page = Page()) -> tuple[Sequence[RetuneRun], int]:
        """Those of a retune, newest due time first, and how many there are in all."""
        ...
