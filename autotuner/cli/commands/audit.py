"""``autotuner audit``: who changed what, and who was refused."""

from __future__ import annotations

from typing import Annotated

import typer

from autotuner.cli.options import Json, Server

__all__ = ["audit"]


def audit(
    caller: Annotated[str | None, typer.Option("--caller", help="Only what that caller did.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=500, help="Most entries to print.")] = 50,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """List what was changed and what was refused, newest first; of a service with a login this takes an admin."""
    from autotuner.cli.client import connect
    from autotuner.cli.console import console, print_json
    from autotuner.cli.views.audit import audit_table

    asked = {"limit": limit} | ({} if caller is None else {"caller": caller})
    with connect(server) as client:
        found = client.get("/audit", **asked)
    if as_json:
        return print_json(found)
    console().print(audit_table(found["items"], found["total"]))
    return None
