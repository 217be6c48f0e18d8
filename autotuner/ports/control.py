"""ControlStore: sweeps as people change them after they asked for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from autotuner.core.access import NOBODY_ASKED, Caller
from autotuner.core.sweep import Sweep


class ControlStore(Protocol):
    """Pauses, budgets that change, and trials that run again; every method is one transaction, as in ``Store``.

    Each may be asked again without harm. A sweep that compares runs, for a retune or an MFU gate, raises ``Conflict``:
    but for ``resume`` nothing here may change it. A worker that holds the sweep hears of each when it renews its lease.
    """

    def pause(self, sweep_id: str, *, now: float) -> Sweep:
        """Have nobody work on it: at once where no worker holds it, else when its worker has given it back.

        A trial that runs is ended in good order and queued again. Where an engine still runs jobs of a sweep that
        nobody holds, the next worker to claim it ends these, and gives it back. Writes ``sweep.paused``. A finished
        sweep raises ``Conflict``.
        """
        ...

    def resume(self, sweep_id: str, *, now: float) -> Sweep:
        """Queue it again, under its old place; one that was not paused yet goes on. Writes ``sweep.queued``.

        The time that it was paused counts for no budget. A finished sweep raises ``Conflict``.
        """
        ...

    def change_budget(
        self, sweep_id: str, limits: Mapping[str, Any], *, now: float, caller: Caller = NOBODY_ASKED
    ) -> Sweep:
        """Put these limits in the place of what they were, others stay; a finished sweep is queued to search on.

        What its end had cut short is then queued again, too. Writes ``sweep.changed``, and ``sweep.queued`` of a sweep
        that was finished. The idempotency key goes on to match what was asked first.

        Where the caller owns the sweep, what it takes more is held to the caller's quota, as of a new sweep.

        Raises:
            InvalidInput: A limit is not legal, or the finished sweep would end by it at once.
            Conflict: The sweep ended for a reason that no budget changes.
            QuotaExceeded: The caller's quota has not so much left.
        """
        ...

    def rerun(self, trial_id: str, *, now: float, caller: Caller = NOBODY_ASKED) -> Sweep:
        """Have a trial run again, by itself, once what runs has ended; a finished sweep is queued to do that alone.

        The new trial repeats the first of its layout that was measured, and has no rank of its own; where none was, it
        is the first, and ranked. While one waits or runs, nothing changes. Writes ``sweep.changed``, and
        ``sweep.queued`` of a sweep that was finished.

        Raises:
            Conflict: The trial has not ended, or the sweep's time or accelerator-hours are spent.
            QuotaExceeded: The caller's quota has not so much left.
        """
        ...
