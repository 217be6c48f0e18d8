"""The audit log, as it travels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from autotuner.core.access import AuditEntry
from autotuner.ports import AccountStore, Page


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage:
    """Entries of the audit log, newest first.

    Attributes:
        total: How many there are in all.
    """

    items: tuple[AuditEntry, ...]
    total: int
    limit: int
    offset: int

    @classmethod
    def of(cls, store: AccountStore, caller: str | None, page: Page) -> Self:
        """Those of one page, of one caller or all."""
        items, total = store.audit(caller=caller, page=page)
        return cls(items=tuple(items), total=total, limit=page.limit, offset=page.offset)
