"""LeaseWatch: which leases of others have lapsed, as one worker saw it on its own monotonic clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autotuner.core.run import RENEWALS_PER_LEASE, Lease
from autotuner.runs.clock import Clock


class LeaseWatch:
    """The leases of others, and for how long each was seen to stand still.

    No two clocks are compared: a lease lapses once this worker has watched it for its length without a sign of life.
    The time between two looks counts for no more than a quarter of the lease, within which a holder that lives has
    renewed it. So a look after an hour of other work takes nothing from anybody, nor does the first one after an
    outage of the store, in which nobody could renew.

    Args:
        owner: The worker who looks, where it looks only while it works on nothing: a lease of its own has lapsed at
            once, since it lost sight of that work when the store was away.
    """

    def __init__(self, clock: Clock, *, owner: str | None = None) -> None:
        self._clock = clock
        self._owner = owner
        self._heard_at = clock.monotonic()
        self._silent_s: dict[Lease, float] = {}

    def lapsed(self, ask: Callable[[], Sequence[Lease]]) -> Sequence[Lease]:
        """Look once more, and tell which leases may be taken over.

        Args:
            ask: The leases that are held now.
        """
        passed_s = self._clock.monotonic() - self._heard_at  # asking may take long, and an answer be old when it comes
        held = ask()
        self._heard_at = self._clock.monotonic()
        self._silent_s = {lease: self._silence_s(lease, passed_s) for lease in held}
        return [lease for lease in held if lease.owner == self._owner or self._silent_s[lease] >= lease.lease_s]

    def refused(self) -> None:
        """Count anew: a store that takes no writes, though it answers, has taken none from any holder either."""
        self._silent_s = {}

    def _silence_s(self, lease: Lease, passed_s: float) -> float:
        if lease not in self._silent_s:
            return 0.0
        return self._silent_s[lease] + min(passed_s, lease.lease_s / RENEWALS_PER_LEASE)
