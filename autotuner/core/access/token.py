"""Token: what a person or a program shows to be let in; only its digest is kept."""

from __future__ import annotations

from dataclasses import dataclass, field

from autotuner.core.access.quota import Quota
from autotuner.core.access.scope import Scope

__all__ = ["Session", "Token"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token as it is stored and shown: all but its secret.

    Attributes:
        id: Part of the token's text, so that one row has to be read to judge it.
        name: Of the person or program that has it; a name may have several tokens, and owns what they make.
        created_by: Name of the caller who made it.
        expires_at: Epoch seconds; None: never.
        revoked_at: When it was taken back.
        last_used_at: To the minute.
    """

    id: str
    name: str
    scope: Scope
    quota: Quota = field(default_factory=Quota)
    created_at: float
    created_by: str = ""
    expires_at: float | None = None
    revoked_at: float | None = None
    last_used_at: float | None = None

    def is_valid(self, now: float) -> bool:
        """Neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A browser that was let in by a token; it lasts no longer than the token does.

    Attributes:
        id: Digest of the cookie's secret.
    """

    id: str
    token_id: str
    created_at: float
    expires_at: float
