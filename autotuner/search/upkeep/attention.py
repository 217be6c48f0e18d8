"""Where somebody goes on with what needs them."""

from __future__ import annotations

from urllib.parse import quote

from autotuner.core.announcement import Trouble, TroubleKind


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
