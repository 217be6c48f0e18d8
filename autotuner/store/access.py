"""Access: tokens, browser sessions, the accelerator-hours that callers use, and the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from sqlalchemy import Connection, delete, func, insert, select, text, union_all, update
from sqlalchemy.exc import IntegrityError

from autotuner.core.access import (
    DAY_S,
    AuditEntry,
    Caller,
    Session,
    Token,
    Usage,
    hours_allowed,
    require_room_for_sweep,
)
from autotuner.core.errors import Conflict
from autotuner.core.run import RunState
from autotuner.store import overviews
from autotuner.store.descriptions import check_name, new_id
from autotuner.store.engine import AnySelect, one_row, reading, select_values, values_of, window, writing
from autotuner.store.options import Page
from autotuner.store.runs import Part
from autotuner.store.tables import audit, sessions, sweeps, tokens, trials

_TOKENS, _SESSIONS, _ENTRIES = (
    select_values(tokens, Token),
    select_values(sessions, Session),
    select_values(audit, AuditEntry),
)

_UNFINISHED = tuple(state for state in RunState if not state.is_finished)
_FINISHED = tuple(state for state in RunState if state.is_finished)


class AccessStore(Part):
    """The store of callers' API tokens, browser sessions, use of quotas, and the audit log of callers' actions."""

    # ------------------------------------------------------------------ tokens
    def add_token(self, token: Token, digest: str) -> None:
        """Store a new API token together with the hash (``digest``) of its secret.

        Raises:
            Conflict: Another token has that id.
        """
        check_name("token.name", token.name)
        try:
            with writing(self._engine) as connection:
                connection.execute(insert(tokens).values(**values_of(token), digest=digest))
        except IntegrityError:
            raise Conflict(f"a token with the id {token.id} is already stored; give the new token another id") from None

    def get_token(self, token_id: str) -> tuple[Token, str]:
        """Return the API token with that id and the hash of its secret; raise ``NotFound`` if it is not stored."""
        with reading(self._engine) as connection:
            stored = _TOKENS.add_columns(tokens.c.digest).where(tokens.c.id == token_id)
            values = dict(one_row(connection, stored, "token", token_id)._mapping)
        digest = values.pop("digest")
        return Token(**values), digest

    def list_tokens(self) -> Sequence[Token]:
        """Return all API tokens, including revoked tokens, ordered by name.

        Among the tokens of one name, the newest comes first.
        """
        with reading(self._engine) as connection:
            rows = connection.execute(_TOKENS.order_by(tokens.c.created_at.desc(), tokens.c.id)).all()
        found = [Token(**row._mapping) for row in rows]
        return sorted(found, key=lambda token: token.name)  # not in SQL: PostgreSQL sorts text as its locale says

    def revoke_token(self, token_id: str, *, now: float) -> Token:
        """Revoke a token, and delete the browser sessions that were opened with it.

        If the token is revoked already, it keeps the date of its revocation.
        """
        valid = (tokens.c.id == token_id) & tokens.c.revoked_at.is_(None)
        with writing(self._engine) as connection:
            connection.execute(update(tokens).where(valid).values(revoked_at=now))
            connection.execute(delete(sessions).where(sessions.c.token_id == token_id))
            return _get_token(connection, token_id)

    def touch_token(self, token_id: str, *, now: float) -> None:
        """Store ``now`` as the time at which an API token was last used, which lists of tokens show."""
        with writing(self._engine) as connection:
            connection.execute(update(tokens).where(tokens.c.id == token_id).values(last_used_at=now))

    # ------------------------------------------------------------------ sessions
    def add_session(self, session: Session) -> None:
        """Store a new browser session. Delete the sessions that had expired when the new session was created."""
        with writing(self._engine) as connection:
            _get_token(connection, session.token_id)
            connection.execute(delete(sessions).where(sessions.c.expires_at <= session.created_at))
            connection.execute(insert(sessions).values(values_of(session)))

    def get_session(self, session_id: str) -> Session:
        """Return the browser session with that id, even if it has expired; raise ``NotFound`` if it is not stored."""
        with reading(self._engine) as connection:
            stored = _SESSIONS.where(sessions.c.id == session_id)
            row = one_row(connection, stored, "session", "of a browser")  # the message does not show the session's id
        return Session(**row._mapping)

    def remove_session(self, session_id: str) -> None:
        """Delete a browser session. If it is not stored, nothing happens."""
        with writing(self._engine) as connection:
            connection.execute(delete(sessions).where(sessions.c.id == session_id))

    # ------------------------------------------------------------------ accounts
    def usage(self, caller: str, *, now: float) -> Usage:
        """Return how much of a quota the caller with that name uses now: unfinished sweeps and accelerator-hours.

        The queries read columns only; they decode no trial.
        """
        with reading(self._engine) as connection:
            return _usage(connection, caller, now)

    def record(self, entry: AuditEntry) -> None:
        """Append an entry to the audit log. Entries never change; only the retention period removes them."""
        with writing(self._engine) as connection:
            connection.execute(insert(audit).values(id=new_id("au"), **values_of(entry)))

    def audit(self, *, caller: str | None = None, page: Page = Page()) -> tuple[Sequence[AuditEntry], int]:
        """Return one page of audit log entries, newest first, and the total number of entries.

        If ``caller`` is the name of a caller, only the entries of this caller are returned and counted; None: the
        entries of all callers.
        """
        with reading(self._engine) as connection:
            rows, total = window(connection, select_audit(caller), page)
        return [AuditEntry(**row._mapping) for row in rows], total


# ---------------------------------------------------------------------- on a connection
def _get_token(connection: Connection, token_id: str) -> Token:
    return Token(**one_row(connection, _TOKENS.where(tokens.c.id == token_id), "token", token_id)._mapping)


def select_audit(caller: str | None) -> AnySelect:
    """Return the query for audit log entries, newest first, of one caller, or of all callers if ``caller`` is None."""
    chosen = _ENTRIES if caller is None else _ENTRIES.where(audit.c.caller == caller)
    return chosen.order_by(audit.c.at.desc(), audit.c.id.desc())


def lock_caller(connection: Connection, caller: Caller) -> None:
    """Lock the caller's quota until the transaction ends, so that two requests cannot use the same rest of the quota.

    Only PostgreSQL needs this lock, because SQLite allows only one writer at a time.
    """
    if caller.quota.is_limiting_sweeps and connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))"), {"name": caller.name})


def allowed_hours(
    connection: Connection, caller: Caller, asked: float | None, now: float, *, is_new: bool = True
) -> float | None:
    """Return how many accelerator-hours a caller's sweep may use; None: no limit. Lock the caller's quota first.

    ``asked`` is the number of hours that the request names; None: no limit. If ``is_new`` is False, the sweep exists
    and is unfinished, and ``asked`` is the number of additional hours.

    Raises:
        InvalidInput: The sweep asks for more than the quota ever allows.
        QuotaExceeded: The caller has too many unfinished sweeps, or the quota has fewer hours left than ``asked``.
    """
    if not caller.quota.is_limiting_sweeps:
        return asked
    usage = _usage(connection, caller.name, now)
    if is_new:
        require_room_for_sweep(caller.quota, usage)
    return hours_allowed(caller.quota, usage, asked, frees_in_s=partial(_frees_in_s, connection, caller.name, now))


def _usage(connection: Connection, caller: str, now: float) -> Usage:
    unfinished = (sweeps.c.created_by == caller) & sweeps.c.state.in_(_UNFINISHED)
    budgets = dict(connection.execute(select(sweeps.c.id, sweeps.c.budget).where(unfinished)).all())
    spent = overviews.hours_spent(connection, list(budgets), now)
    promised = [_promised(budget.accelerator_hours, spent[sweep_id]) for sweep_id, budget in budgets.items()]
    return Usage(
        unfinished_sweeps=len(budgets),
        accelerator_hours=sum(hours for _, hours in connection.execute(select_used(caller, now))),
        promised_hours=None if None in promised else sum(hours for hours in promised if hours is not None),
    )


def _promised(budget: float | None, spent: float) -> float | None:
    return None if budget is None else max(0.0, budget - spent)


def select_used(caller: str, now: float) -> AnySelect:
    """Return the query for the accelerator-hours of each of the caller's trials that ran within the last day.

    The hours include those of the trial's convergence gate. Each row also has the time at which the trial ended. Rows
    are ordered by that time, oldest first; running trials come last.
    """
    since = now - DAY_S
    hours = func.coalesce(overviews.run_hours(now), 0.0) + func.coalesce(trials.c.gate_hours, 0.0)
    is_recent = trials.c.finished_at.is_(None) | (trials.c.finished_at > since)
    mine = trials.c.sweep_id.in_(_recent_sweeps(caller, since))
    used = select(trials.c.finished_at, hours.label("hours")).where(mine, is_recent).subquery()
    is_running = used.c.finished_at.is_(None)
    return select(used.c.finished_at, used.c.hours).where(used.c.hours > 0).order_by(is_running, used.c.finished_at)


def _recent_sweeps(caller: str, since: float) -> AnySelect:
    """Return the ids of the caller's sweeps whose trials may have run since then; an index alone answers the query."""
    own = select(sweeps.c.id).where(sweeps.c.created_by == caller)
    ended = own.where(sweeps.c.state.in_(_FINISHED), sweeps.c.finished_at > since)
    both = union_all(own.where(sweeps.c.state.in_(_UNFINISHED)), ended).subquery()
    return select(both.c.id)


def _frees_in_s(connection: Connection, caller: str, now: float, hours: float) -> float | None:
    """Return the seconds until ``hours`` of the caller's used hours are more than a day old.

    None if too few of them will be free, because the sweeps that used them still run.
    """
    freed = 0.0
    for row in connection.execute(select_used(caller, now)):
        freed += row.hours
        if row.finished_at is not None and freed >= hours:
            return max(0.0, float(row.finished_at) + DAY_S - now)
    return None
