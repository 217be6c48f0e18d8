"""AccountStore: what callers take, and the audit log of what they did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from autotuner.core.access import AuditEntry, Usage
from autotuner.ports.page import Page


class AccountStore(Protocol):
    """What callers take and did; every method is one transaction, as in ``Store``."""

    def usage(self, caller: str, *, now: float) -> Usage:
        """What sweeps of the caller of that name take, by queries that read no trial."""
        ...

    def record(self, entry: AuditEntry) -> None:
        """Append to the audit log; nothing changes or removes an entry but its age."""
        ...

    def audit(self, *, caller: str | None = None, page: Page = Page()) -> tuple[Sequence[AuditEntry], int]:
        """Newest first, of one caller or all, and how many there are in all."""
        ...
