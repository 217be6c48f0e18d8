"""Tokens and the audit log, as people read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from autotuner.report.terminal import plain_table

_QUOTAS = {
    "unfinished_sweeps": "sweeps at once",
    "accelerator_hours_per_day": "accelerator-hours a day",
    "requests_per_minute": "requests a minute",
}


def token_table(tokens: Sequence[Mapping[str, Any]], *, now: float) -> RenderableType:
    """A line for each."""
    if not tokens:
        return Text("no token is stored; `autotuner token add NAME` stores one")
    table = plain_table("token", "name", "may", "at most", "made", "last used", "counts")
    for one in tokens:
        when = _at(one["created_at"]), _at(one["last_used_at"], "never")
        table.add_row(one["id"], one["name"], one["scope"], _quota(one["quota"]), *when, _counts(one, now))
    return table


def _quota(quota: Mapping[str, Any]) -> str:
    return ", ".join(f"{quota[key]:g} {words}" for key, words in _QUOTAS.items() if quota.get(key) is not None)


def _counts(token: Mapping[str, Any], now: float) -> str:
    if token["revoked_at"] is not None:
        return f"taken back {_at(token['revoked_at'])}"
    if token["expires_at"] is None:
        return "until it is taken back"
    return f"{'until' if token['expires_at'] > now else 'expired'} {_at(token['expires_at'])}"


def _at(epoch_s: float | None, otherwise: str = "") -> str:
    return otherwise if epoch_s is None else datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%d %H:%M")


def audit_table(entries: Sequence[Mapping[str, Any]], total: int) -> RenderableType:
    """A line for each; the newest first."""
    if not entries:
        return Text("nothing was changed or refused yet")
    table = plain_table("at (UTC)", "caller", "did", "to", "answer", "from")
    for one in entries:
        at = datetime.fromtimestamp(one["at"], UTC).strftime("%Y-%m-%d %H:%M:%S")
        caller = one["caller"] or "-"
        table.add_row(at, caller, one["action"], one["subject"], str(one["status"]), one["address"] or "-")
    more = [Text(f"and {total - len(entries)} older")] if total > len(entries) else []
    return Group(table, *more)
