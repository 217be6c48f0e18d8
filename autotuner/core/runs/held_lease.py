"""HeldLease: a worker's lease as it is stored, which changes with every sign of life."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RENEWALS_PER_LEASE", "HeldLease"]

RENEWALS_PER_LEASE = 4
"""A lease survives three renewals that fail or come late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLease:
    """A worker's hold on a sweep, a check or a delivery; two equal ones have had no sign of life between them.

    Attributes:
        id: What is held.
        owner: The worker that holds it.
        renewals: How often a worker has said that it works on it.
        lease_until: What the holder's wall clock promised: other clocks cannot be held to it, but a worker of an older
            release counts no renewals, and is seen to live by this.
        lease_s: How long the holder may be silent; None: a worker of an older release did not say.
    """

    id: str
    owner: str
    renewals: int
    lease_until: float | None = None
    lease_s: float | None = None
