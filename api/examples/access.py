"""Examples of callers and tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from api.schemas import CallerView, TokenCreated, TokenList
from autotuner.core.access import Quota, Scope, Token, Usage

_AT = 1_760_000_000.0
_DAY_S = 86_400.0
_QUOTA = Quota(unfinished_sweeps=2, accelerator_hours_per_day=64.0, requests_per_minute=600)
_TOKEN = Token(
    id="k3v7q2mxn5", name="ada", scope=Scope.RUN, quota=_QUOTA, created_at=_AT, created_by="root", last_used_at=None
)


def token_bodies() -> dict[str, Any]:
    """Bodies of ``POST /tokens``."""
    return {
        "a person with a quota": {
            "name": "ada",
            "scope": "run",
            "quota": {"unfinished_sweeps": 2, "accelerator_hours_per_day": 64.0},
        },
        "a job that only looks, until a day": {"name": "ci", "scope": "read", "expires_at": 1_900_000_000.0},
    }


def token_created() -> TokenCreated:
    """A new token with its text."""
    return TokenCreated(token=_TOKEN, text="at_k3v7q2mxn5_" + "EXAMPLE" * 6)


def token_list() -> TokenList:
    """One that is used and one that was taken back."""
    return TokenList(items=(replace(_TOKEN, last_used_at=_AT + _DAY_S), revoked_token()))


def revoked_token() -> Token:
    """One that does not count any more."""
    return replace(_TOKEN, id="7d2mxq4zab", name="ci", scope=Scope.READ, quota=Quota(), revoked_at=_AT + _DAY_S)


def caller() -> CallerView:
    """Somebody with a token."""
    usage = Usage(unfinished_sweeps=1, accelerator_hours=6.5, promised_hours=2.0)
    return CallerView(name="ada", scope=Scope.RUN, quota=_QUOTA, token_id=_TOKEN.id, usage=usage)
