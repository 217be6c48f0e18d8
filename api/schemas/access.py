"""Callers and their tokens, as they travel: a token's text is shown once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from autotuner.core.access import MAX_NAME, Quota, Scope, Token, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCreate:
    """Who or what shall be let in.

    Attributes:
        name: Of the person or program; a name may have several tokens, and owns what they make.
        scope: What they may do; each holds what stands before it: `read`, `run`, `admin`.
        quota: How much they may take; left out, as much as there is.
        expires_at: Epoch seconds; left out, never.
    """

    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
    scope: Scope = Scope.RUN
    quota: Quota = field(default_factory=Quota)
    expires_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCreated:
    """A new token, and what to give to whom it is for.

    Attributes:
        text: What they show: `Authorization: Bearer` and this. It is kept nowhere and not shown again.
    """

    token: Token
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenList:
    """Tokens by name, then newest first; those that were taken back or are expired too."""

    items: tuple[Token, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerView:
    """Who the service takes you for.

    Attributes:
        name: What you make belongs to it; empty where the service asks nobody.
        scope: What you may do.
        token_id: Of the token that let you in, also through a session; null: a proxy did, or nobody was asked.
        usage: What you take of your quota now; of accelerator-hours, in the last 24 hours.
    """

    name: str
    scope: Scope
    quota: Quota
    token_id: str | None
    usage: Usage
