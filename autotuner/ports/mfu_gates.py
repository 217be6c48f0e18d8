"""MfuGateStore: MFU gates of changes, and the baselines that they are held to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from autotuner.core.access import NOBODY_ASKED, Caller
from autotuner.core.announcement import Announcement
from autotuner.core.sweep import Sweep, SweepRequest
from autotuner.core.upkeep import Baseline, MfuGate, MfuGateRequest, MfuGateResult
from autotuner.ports.page import Page


class MfuGateStore(Protocol):
    """MFU gates and baselines; every method is one transaction, as in ``Store``."""

    def create(
        self,
        request: MfuGateRequest,
        *,
        key: str,
        content: str,
        baseline: Baseline | None,
        sweep: SweepRequest | None,
        now: float,
        caller: Caller = NOBODY_ASKED,
    ) -> MfuGate:
        """Store a gate, and with it the queued sweep that measures for it.

        Args:
            request: What was asked.
            key: Content key of the job and what runs it.
            content: Content key of the same with layout and software.
            baseline: What it is held to, as the caller read it; None: there is none.
            sweep: What is measured; None: an earlier gate's runs are taken, and the gate is concluded at once.
            now: Of the request.
            caller: Who asks, to whose quota the sweep is held as by ``Store.create_sweep``.
        """
        ...

    def get(self, gate_id: str) -> MfuGate:
        """As it stands now."""
        ...

    def list(self, *, baseline: str | None = None, page: Page = Page()) -> tuple[Sequence[MfuGate], int]:
        """Newest first, those held to the baseline of that name or all, and how many there are in all."""
        ...

    def find_reusable(self, content: str) -> MfuGate | None:
        """The newest gate of that content that measured something itself and came to a decision."""
        ...

    def concludable(self) -> Sequence[tuple[MfuGate, Sweep | None]]:
        """Unfinished ones whose sweep is finished, with it, or that have none; the oldest first."""
        ...

    def conclude(
        self,
        gate_id: str,
        result: MfuGateResult,
        *,
        now: float,
        baseline: Baseline | None = None,
        announcement: Announcement | None = None,
    ) -> MfuGate | None:
        """Finish the gate, and tell of it; all at once. None, and nothing is changed, if it was finished.

        Args:
            gate_id: The gate's.
            result: What it found.
            now: Of its end.
            baseline: Stored in the place of the one of that name and key; None: none is.
            announcement: Who hears of it; None: nobody.

        Raises:
            NotYours: Another caller set the baseline of that name and key after the gate was asked for.
        """
        ...

    # ------------------------------------------------------------------ baselines
    def get_baseline(self, name: str, key: str) -> Baseline | None:
        """What is stored under that name for the job with that key; None without it."""
        ...

    def list_baselines(self) -> Sequence[Baseline]:
        """By name, then newest first."""
        ...

    def remove_baseline(self, name: str, key: str) -> None:
        """Forget it; ``NotFound`` without it."""
        ...
