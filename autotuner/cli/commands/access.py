"""``autotuner token`` and ``autotuner audit``: who may call, and who did what."""

from __future__ import annotations

import re
import time
from typing import Annotated

import typer

from autotuner.cli.options import Json, Server
from autotuner.core.access import Scope
from autotuner.core.errors import InvalidInput

token = typer.Typer(no_args_is_help=True, help="Manage the access tokens of a service with a login.")

_LIMITS = "Limits"

_DAY_S = 86_400

_ID = re.compile(r"[a-z0-9]{1,32}")


def _token_id(text: str) -> str:
    if _ID.fullmatch(text):
        return text
    raise InvalidInput("token", text[:3] + "…", "must be the id of a token, as `autotuner token list` prints it")


@token.command("add")
def add(
    name: Annotated[
        str, typer.Argument(help="Name of the person or program that uses the token, and owns what it creates.")
    ],
    scope: Annotated[
        Scope, typer.Option("--scope", help="Allowed actions. Each scope includes those before it.")
    ] = Scope.RUN,
    days: Annotated[
        int | None,
        typer.Option("--expires-in-days", min=1, max=36_500, help="Days until the token expires. Default: never."),
    ] = None,
    sweeps: Annotated[
        int | None,
        typer.Option(
            "--unfinished-sweeps",
            min=1,
            help="Largest number of sweeps that wait or run at once.",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    hours: Annotated[
        float | None,
        typer.Option("--accelerator-hours-per-day", help="Accelerator-hours in any 24 hours.", rich_help_panel=_LIMITS),
    ] = None,
    requests: Annotated[
        int | None,
        typer.Option("--requests-per-minute", min=1, help="Requests in any minute.", rich_help_panel=_LIMITS),
    ] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Create an access token and print it once.

    Without --server, AUTOTUNER_DATABASE_URL names the database that stores it.

    Example: autotuner token add ci --scope run --expires-in-days 90
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import show
    from autotuner.core.access import TokenCreate
    from autotuner.core.documents import read
    from autotuner.report.service import token_created_report

    asked = {
        "name": name,
        "scope": scope.value,
        "quota": {
            "unfinished_sweeps": sweeps,
            "accelerator_hours_per_day": hours,
            "requests_per_minute": requests,
        },
        "expires_at": None if days is None else time.time() + days * _DAY_S,
    }
    with connect(server) as service:
        show(service.create_token(read(TokenCreate, asked)), token_created_report, as_json=as_json)


@token.command("list")
def list_(server: Server = None, as_json: Json = False) -> None:
    """List the tokens, with their owners, scopes, last uses and expiry dates.

    Example: autotuner token list
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import show
    from autotuner.report.service import tokens_report

    with connect(server) as service:
        show(service.list_tokens(), lambda found: tokens_report(found.items, now=time.time()), as_json=as_json)


@token.command("revoke")
def revoke(
    token_id: Annotated[
        str,
        typer.Argument(
            metavar="TOKEN", callback=_token_id, help="Id of the token, as `autotuner token list` prints it."
        ),
    ],
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Revoke a token, and end the browser sessions that it opened.

    The next request with this token is refused.

    Example: autotuner token revoke k3v7q2mxn5
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import show
    from autotuner.report.service import token_revoked_report

    with connect(server) as service:
        show(service.revoke_token(token_id), token_revoked_report, as_json=as_json)


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
    from autotuner.cli.console import show
    from autotuner.report.service import audit_report

    with connect(server) as service:
        found = service.read_audit(caller=caller, limit=limit)
    show(found, lambda _: audit_report(found, caller or ""), as_json=as_json)
