"""Tokens, and sessions of browsers, on SQLite and PostgreSQL."""

# ruff: noqa: D102  # the port documents every method

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from sqlalchemy import Connection, Engine, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from autotuner.core.access import Session, Token
from autotuner.core.errors import Conflict, NotFound
from autotuner.store.engine import reading, writing
from autotuner.store.identity import check_name
from autotuner.store.statements import AnySelect
from autotuner.store.tables import sessions, tokens

_TOKEN_FIELDS = [field.name for field in fields(Token)]
_TOKENS: AnySelect = select(*(tokens.c[name] for name in _TOKEN_FIELDS)).select_from(tokens)
_SESSIONS: AnySelect = select(*(sessions.c[field.name] for field in fields(Session))).select_from(sessions)


class SqlAccess:
    """The AccessStore port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    # ------------------------------------------------------------------ tokens
    def add_token(self, token: Token, digest: str) -> None:
        check_name("token.name", token.name)
        values = {name: getattr(token, name) for name in _TOKEN_FIELDS}
        try:
            with writing(self._engine) as connection:
                connection.execute(insert(tokens).values(**values, digest=digest))
        except IntegrityError:
            raise Conflict(f"a token is stored as {token.id} already") from None

    def get_token(self, token_id: str) -> tuple[Token, str]:
        with reading(self._engine) as connection:
            row = connection.execute(_TOKENS.add_columns(tokens.c.digest).where(tokens.c.id == token_id)).one_or_none()
        if row is None:
            raise NotFound("token", token_id)
        values = dict(row._mapping)
        return Token(**{name: values[name] for name in _TOKEN_FIELDS}), values["digest"]

    def list_tokens(self) -> Sequence[Token]:
        with reading(self._engine) as connection:
            rows = connection.execute(_TOKENS.order_by(tokens.c.created_at.desc(), tokens.c.id)).all()
        found = [Token(**row._mapping) for row in rows]
        return sorted(found, key=lambda token: token.name)  # not in SQL: PostgreSQL sorts text as its locale says

    def revoke_token(self, token_id: str, *, now: float) -> Token:
        valid = (tokens.c.id == token_id) & tokens.c.revoked_at.is_(None)
        with writing(self._engine) as connection:
            connection.execute(update(tokens).where(valid).values(revoked_at=now))
            connection.execute(delete(sessions).where(sessions.c.token_id == token_id))
            return _get_token(connection, token_id)

    def touch_token(self, token_id: str, *, now: float) -> None:
        with writing(self._engine) as connection:
            connection.execute(update(tokens).where(tokens.c.id == token_id).values(last_used_at=now))

    # ------------------------------------------------------------------ sessions
    def add_session(self, session: Session) -> None:
        with writing(self._engine) as connection:
            _get_token(connection, session.token_id)
            connection.execute(delete(sessions).where(sessions.c.expires_at <= session.created_at))
            values = {field.name: getattr(session, field.name) for field in fields(Session)}
            connection.execute(insert(sessions).values(values))

    def get_session(self, session_id: str) -> Session:
        with reading(self._engine) as connection:
            row = connection.execute(_SESSIONS.where(sessions.c.id == session_id)).one_or_none()
        if row is None:
            raise NotFound("session", "of a browser")  # its id says nothing to anybody
        return Session(**row._mapping)

    def remove_session(self, session_id: str) -> None:
        with writing(self._engine) as connection:
            connection.execute(delete(sessions).where(sessions.c.id == session_id))


def _get_token(connection: Connection, token_id: str) -> Token:
    row = connection.execute(_TOKENS.where(tokens.c.id == token_id)).one_or_none()
    if row is None:
        raise NotFound("token", token_id)
    return Token(**row._mapping)
