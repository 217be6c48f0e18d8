"""``autotuner token``: who is let in to a service that asks."""

from __future__ import annotations

import re
import time
from typing import Annotated

import typer

from autotuner.cli.options import Json, Server
from autotuner.domain.access.scope import Scope
from autotuner.errors import InvalidInput

__all__ = ["token"]

token = typer.Typer(no_args_is_help=True, help="Let people and programs in to a service that asks who calls.")

_DAY_S = 86_400

_ID = re.compile(r"[a-z0-9]{1,32}")


def _token_id(text: str) -> str:
    if _ID.fullmatch(text):
        return text
    raise InvalidInput("token", text[:3] + "…", "must be the id of a token, as `autotuner token list` prints it")


@token.command("add")
def add(
    name: Annotated[str, typer.Argument(help="Of the person or program; owns what the token makes.")],
    scope: Annotated[Scope, typer.Option("--scope", help="Each holds what stands before it.")] = Scope.RUN,
    days: Annotated[
        int | None, typer.Option("--expires-in-days", min=1, max=36_500, help="By default it never expires.")
    ] = None,
    sweeps: Annotated[
        int | None, typer.Option("--unfinished-sweeps", min=1, help="At most so many that wait or run at once.")
    ] = None,
    hours: Annotated[
        float | None, typer.Option("--accelerator-hours-per-day", help="At most so many in any 24 hours.")
    ] = None,
    requests: Annotated[int | None, typer.Option("--requests-per-minute", min=1, help="At most so many.")] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Make a token; prints its text, this once. Without --server it is stored in the database of the settings."""
    from autotuner.cli.client import connect
    from autotuner.cli.console import console, print_json

    limits = {"unfinished_sweeps": sweeps, "accelerator_hours_per_day": hours, "requests_per_minute": requests}
    quota = {key: value for key, value in limits.items() if value is not None}
    ends = {} if days is None else {"expires_at": time.time() + days * _DAY_S}
    with connect(server) as client:
        added = client.post("/tokens", {"name": name, "scope": scope.value, "quota": quota, **ends})
    if as_json:
        return print_json(added)
    console().print(f"{name} may {scope.value}, by this token, which is not shown again:\n{added['text']}")
    return None


@token.command("list")
def list_(server: Server = None, as_json: Json = False) -> None:
    """List all tokens: whose, what each may do, when it was last used, and how long it counts."""
    from autotuner.cli.client import connect
    from autotuner.cli.console import console, print_json
    from autotuner.cli.views.tokens import token_table

    with connect(server) as client:
        found = client.get("/tokens")
    if as_json:
        return print_json(found)
    console().print(token_table(found["items"], now=time.time()))
    return None


@token.command("revoke")
def revoke(
    token_id: Annotated[
        str, typer.Argument(metavar="TOKEN", callback=_token_id, help="The token's id, as `token list` prints it.")
    ],
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Take a token back from the next request on, with the sessions of browsers that it opened."""
    from autotuner.cli.client import connect
    from autotuner.cli.console import console, print_json

    with connect(server) as client:
        revoked = client.post(f"/tokens/{token_id}/revoke")
    if as_json:
        return print_json(revoked)
    console().print(f"the token {revoked['id']} of {revoked['name']} counts no more")
    return None
