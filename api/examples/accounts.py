"""Examples of the audit log."""

from __future__ import annotations

from api.schemas import AuditPage
from autotuner.core.access import AuditEntry


def audit_page() -> AuditPage:
    """A sweep that was cancelled, and somebody who tried to cancel another's."""
    refused = AuditEntry(
        at=1767225660.0,
        caller="bob",
        token_id="m2q7xk4r",
        action="cancel_sweep",
        subject="/api/v1/sweeps/sw-k3v7q2mxn5/cancel",
        status=403,
        request_id="9f1c2d3e4b5a49788c6d5e4f3a2b1c0d",
        address="10.0.0.7",
    )
    done = AuditEntry(
        at=1767225600.0,
        caller="ada",
        token_id="k3v7q2mx",
        action="create_sweep",
        subject="/api/v1/sweeps",
        status=201,
        request_id="1b2c3d4e5f60718293a4b5c6d7e8f901",
        address="10.0.0.3",
    )
    return AuditPage(items=(refused, done), total=2, limit=50, offset=0)
