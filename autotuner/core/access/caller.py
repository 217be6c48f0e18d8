"""Caller: who a request comes from."""

from __future__ import annotations

from dataclasses import dataclass, field

from autotuner.core.access.quota import Quota
from autotuner.core.access.scope import Scope
from autotuner.errors import NotYours

__all__ = ["NOBODY_ASKED", "Caller"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who a request comes from, as far as it was asked.

    Attributes:
        name: Owns what the caller makes; empty where the service asks nobody.
        token_id: Of the token that it showed; None: it showed none.
    """

    name: str
    scope: Scope
    quota: Quota = field(default_factory=Quota)
    token_id: str | None = None

    def may_change(self, created_by: str) -> bool:
        """Whether what the caller of that name made is theirs to change: by its maker, and by an admin."""
        return self.scope.covers(Scope.ADMIN) or (
            self.scope.covers(Scope.RUN) and bool(self.name) and self.name == created_by
        )

    def require_own(self, kind: str, key: str, created_by: str) -> None:
        """Return if the caller may change it.

        Args:
            kind: What it is, for people: sweep, cluster.
            key: Its id or name.
            created_by: Name of the caller who made it.

        Raises:
            NotYours: Somebody else made it, and the caller is no admin.
        """
        if not self.may_change(created_by):
            raise NotYours(kind, key, created_by)


NOBODY_ASKED = Caller(name="", scope=Scope.ADMIN)
"""Every caller of a service that has no login."""
