"""AuditEntry: who did what, and when."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["AuditEntry"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One request that changed something, or was refused for who asked.

    Attributes:
        at: Epoch seconds.
        caller: Name of who asked; empty where nobody was asked or could be told.
        token_id: Of the token that was shown.
        action: Operation of the REST API, such as ``cancel_sweep``; the method, of what was refused before.
        subject: What it was done to: a path below the service, such as ``/api/v1/sweeps/sw-k3v7q2mxn5/cancel``.
        status: HTTP status of the answer.
        request_id: As in the log and in the answer's ``X-Request-ID``.
        address: Where the request came from.
    """

    at: float
    caller: str
    token_id: str | None
    action: str
    subject: str
    status: int
    request_id: str
    address: str
