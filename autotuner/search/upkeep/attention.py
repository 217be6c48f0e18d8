"""What needs somebody now: everything that went wrong and stands unmended, and where to go on with it."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from autotuner.core.announcement import Trouble, TroubleKind
from autotuner.core.run import RunState
from autotuner.ports import Store

KEPT_S = 7 * 86_400.0
"""A sweep, gate or delivery that went wrong is shown for so long: what nobody mended in a week is no news."""


def attention(store: Store, *, now: float) -> Sequence[Trouble]:
    """All of it, the worst kind first and the newest of each."""
    return [*_unattended(store, now), *store.troubles.read(since=now - KEPT_S)]


def _unattended(store: Store, now: float) -> list[Trouble]:
    """Sweeps that wait while no worker lives; which one lives, workers themselves have told."""
    if any(worker.is_alive(now) for worker in store.workers.list()):
        return []
    found = store.gauges.read(now=now)
    waiting = found.num_sweeps.get(RunState.QUEUED, 0)
    if not waiting or found.oldest_queued_at is None:
        return []
    sweeps = "1 sweep waits" if waiting == 1 else f"{waiting:,} sweeps wait"
    kind, detail = TroubleKind.NO_WORKER, f"{sweeps}, and no worker has told within a minute that it lives"
    return [Trouble(kind=kind, subject="", name="", detail=detail, at=found.oldest_queued_at, count=waiting)]


def place_of(trouble: Trouble) -> str:
    """Path of the page where somebody goes on with it, below the service's address."""
    subject = quote(trouble.subject, safe="")
    match trouble.kind:
        case TroubleKind.NO_WORKER:
            return "/?state=queued"
        case TroubleKind.REGRESSION | TroubleKind.RETUNE_COULD_NOT_RUN:
            return f"/retunes/{subject}"
        case TroubleKind.GATE_FAILED | TroubleKind.GATE_COULD_NOT_RUN | TroubleKind.GATE_UNDECIDED:
            return f"/gates/{subject}"
        case TroubleKind.SWEEP_FAILED:
            return f"/sweeps/{subject}"
        case TroubleKind.CHECK_FAILED:
            return f"/clusters/{subject}"
        case TroubleKind.DELIVERIES_DEAD:
            return "/webhooks?state=dead"
