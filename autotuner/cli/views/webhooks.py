"""Webhooks, and how each delivery stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from autotuner.report.terminal import plain_table


def webhook_table(webhooks: Sequence[Mapping[str, Any]]) -> RenderableType:
    """A line for each."""
    if not webhooks:
        return Text("no webhook is stored; `autotuner webhook add NAME URL` stores one")
    table = plain_table("name", "posts to", "wants", "format", "pending", "given up", "by")
    for one in webhooks:
        wants = ", ".join(one["kinds"]) or "everything"
        counts = str(one["num_pending"]), str(one["num_dead"])
        table.add_row(one["name"], one["posts_to"], wants, one["format"], *counts, one["created_by"] or "-")
    return table


def delivery_table(deliveries: Sequence[Mapping[str, Any]], total: int) -> RenderableType:
    """A line for each; the newest first."""
    if not deliveries:
        return Text("no delivery")
    table = plain_table("delivery", "webhook", "announced", "what", "state", "attempts", "last answer")
    for one in deliveries:
        told = one["announcement"]
        state = _state(one)
        table.add_row(
            one["id"], one["webhook"], _at(told["at"]), told["title"], state, str(one["attempts"]), one["detail"]
        )
    more = [Text(f"and {total - len(deliveries)} older")] if total > len(deliveries) else []
    return Group(table, *more)


def _state(delivery: Mapping[str, Any]) -> str:
    if delivery["next_attempt_at"] is None:
        return str(delivery["state"])
    return f"{delivery['state']}, next {_at(delivery['next_attempt_at'])}"


def _at(epoch_s: float) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%d %H:%M:%S")
