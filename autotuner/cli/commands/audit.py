"""``autotuner audit``: who changed what, and who was refused."""

from __future__ import annotations

from typing import Annotated

import typer

from autotuner.cli.options import Json, Server


def audit(
    caller: Annotated[str | None, typer.Option("--caller", help="List only the requests of this caller.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=500, help="Largest number of entries to print.")] = 50,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """List the requests that changed something or were refused, newest first.

    A service with a login shows them only to an admin.

    Example: autotuner audit --limit 20
    """
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
