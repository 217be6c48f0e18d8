"""The audit log, a line for each entry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from autotuner.report.terminal import plain_table


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
