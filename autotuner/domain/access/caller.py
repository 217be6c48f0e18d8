"""Caller: who a request comes from."""

from __future__ import annotations

from dataclasses import dataclass, field

from autotuner.domain.access.quota import Quota
from autotuner.domain.access.scope import Scope

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


NOBODY_ASKED = Caller(name="", scope=Scope.ADMIN)
"""Every caller of a service that has no login."""
