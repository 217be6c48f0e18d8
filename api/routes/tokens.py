"""Who calls, and the tokens that let callers in."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from api.dependencies import AppOf, CallerOf
from api.edge.needs import needs
from api.openapi import problems
from api.schemas import CallerView, TokenCreate, TokenCreated, TokenList
from autotuner.core.access import Scope, Token
from autotuner.core.documents import Document

router = APIRouter(tags=["access"])

_ADMIN = needs(Scope.ADMIN)

TokenId = Annotated[str, Path(pattern=r"^[a-z0-9]{1,32}$", examples=["k3v7q2mxn5"])]


@router.get("/caller", responses=problems())
def read_caller(app: AppOf, caller: CallerOf) -> Document[CallerView]:
    """Read who the service takes you for, what you may do, how much of it, and what you take of that now."""
    usage = app.store.accounts.usage(caller.name, now=app.clock.now())
    return CallerView(name=caller.name, scope=caller.scope, quota=caller.quota, token_id=caller.token_id, usage=usage)


@router.post("/tokens", status_code=201, responses=problems(400, 422), openapi_extra=_ADMIN)
def create_token(app: AppOf, caller: CallerOf, body: Document[TokenCreate]) -> Document[TokenCreated]:
    """Make a token for a person or a program. The answer has its text, which no other answer shows."""
    token, text = app.tokens.add(body.name, body.scope, body.quota, expires_at=body.expires_at, created_by=caller.name)
    return TokenCreated(token=token, text=text)


@router.get("/tokens", responses=problems(), openapi_extra=_ADMIN)
def list_tokens(app: AppOf) -> Document[TokenList]:
    """List all tokens, without their secrets, with when each was last used."""
    return TokenList(items=tuple(app.tokens.all()))


@router.post("/tokens/{token_id}/revoke", responses=problems(404, 422), openapi_extra=_ADMIN)
def revoke_token(app: AppOf, token_id: TokenId) -> Document[Token]:
    """Take a token back, from the next request on, with the sessions of browsers that it opened.

    One that was taken back stays as it is.
    """
    return app.tokens.revoke(token_id)
