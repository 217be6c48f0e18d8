"""MfuGateStore: MFU gates of changes, and the baselines that they are held to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from autotuner.core.access import NOBODY_ASKED, Caller
from autotuner.core.sweep import SweepRequest
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
        by: SweepRequest | MfuGateResult,
        now: float,
        caller: Caller = NOBODY_ASKED,
    ) -> MfuGate:
        """Store a gate that awaits the sweep that measures for it, or that is finished at once.

        Args:
            request: What was asked.
            key: Content key of the job and what runs it.
            content: Content key of the same with layout and software.
            baseline: What it is held to, as the caller read it; None: there is none.
            by: The sweep to queue, whose end frees the gate; or what an earlier gate's runs say of this one.
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
        """The last gate of that content that measured something itself and came to a decision."""
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
