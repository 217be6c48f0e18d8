"""``autotuner serve``, ``worker``, ``token`` and ``webhook``, and an operator's commands for the database."""

from __future__ import annotations

import gc
import logging
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotuner.cli.console import console, open_service, print_json, progress, show, tell
from autotuner.cli.flags import Json, Server, flags, stored_id
from autotuner.core.access import TokenCreate
from autotuner.core.announcement import AnnouncementKind, DeliveryState, PayloadFormat, WebhookCreate
from autotuner.core.documents import read
from autotuner.core.errors import InvalidInput
from autotuner.core.signals import interruptible

if TYPE_CHECKING:
    from autotuner.service.settings import Settings


# ---------------------------------------------------------------- processes
def _settings() -> Settings:
    """Return the settings of the environment, with the level of logs that --quiet or --verbose wants."""
    from autotuner.service.settings import Settings

    match logging.getLogger("autotuner").level:
        case logging.ERROR:
            return Settings(log_level="error")
        case logging.INFO:
            return Settings(log_level="debug")
    return Settings()


def serve(
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on. Default: AUTOTUNER_HOST.")] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, help="Port to listen on, 0 for a free one. Default: AUTOTUNER_PORT."),
    ] = None,
) -> None:
    """Run the REST service, the dashboard and a worker.

    With AUTOTUNER_NUM_WORKERS=0, it runs no worker.

    Example: autotuner serve --port 8000
    """
    gc.disable()  # the imports would run it fifty times, and it finds nothing
    from autotuner.service.build import build
    from autotuner.service.observing import exporting
    from autotuner.store.schema import migrate_if_embedded

    settings = _settings()
    migrate_if_embedded(settings.database_url)
    application = build(settings)
    application.compute.prepare()  # they import what they need while this process imports the rest
    from autotuner.api.edge.auth import check_start
    from autotuner.api.main import create_app
    from autotuner.cli.service import run_server

    with exporting(settings.telemetry):
        try:
            check_start(application, host or settings.host)
            api = create_app(application)
            gc.freeze()  # what was imported stays
            gc.enable()
            run_server(api, host or settings.host, settings.port if port is None else port)
        finally:
            application.close()  # also after a second Ctrl-C during the server's shutdown


def worker() -> None:
    """Run the queued sweeps of the shared database on this machine until interrupted.

    Example: autotuner worker
    """
    from autotuner.service.build import build
    from autotuner.service.observing import exporting
    from autotuner.store.schema import migrate_if_embedded

    settings = _settings()
    migrate_if_embedded(settings.database_url)
    application = build(settings)
    with exporting(settings.telemetry):
        with interruptible(application.background.request_stop):
            application.background.work()
        application.close()


def mcp(server: Server = None) -> None:
    """Answer agents on standard input and output, over the Model Context Protocol.

    With --server, agents can also read and start sweeps and gates.

    Example: autotuner mcp --server http://127.0.0.1:8000
    """
    from autotuner.mcp import server as tools

    tools(server).run()


def migrate(as_json: Json = False) -> None:
    """Upgrade the database to the newest schema.

    Run it after you install a new release.

    Example: autotuner migrate
    """
    from autotuner.service.settings import Settings
    from autotuner.store.schema import head_revision
    from autotuner.store.schema import migrate as migrate_database

    settings = Settings()
    with progress("upgrading the database"):
        migrate_database(settings.database_url)
    if as_json:
        return print_json({"database": settings.database_address, "schema_revision": head_revision()})
    console().print(f"{settings.database_address} is at the newest schema")
    return None


# ---------------------------------------------------------------- the database
def thin(
    days: Annotated[
        float | None,
        typer.Option("--days", min=0, help="Age of steps and events to delete. Default: AUTOTUNER_KEEP_STEPS_DAYS."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Delete old records from the database, but keep everything that later sweeps learn from.

    --days sets the age of steps and events. The AUTOTUNER_KEEP_... settings set
    the ages of announced outcomes, plans and audit entries.
    Workers delete old records every hour by themselves.

    Example: autotuner thin --days 90
    """
    from dataclasses import asdict, replace

    from autotuner.runs.clock import SystemClock
    from autotuner.service.settings import Settings
    from autotuner.store.schema import migrate_if_embedded
    from autotuner.store.sql import open_store

    settings = Settings()
    migrate_if_embedded(settings.database_url)
    store = open_store(settings.database_url)
    ages = settings.ages if days is None else replace(settings.ages, steps=days)
    with progress("deleting old records"):
        done = store.retention.run(ages, now=SystemClock().now())
    store.close()
    if as_json:
        return print_json(asdict(done))
    console().print(
        f"thinned {done.num_sweeps:,} sweeps: {done.num_steps:,} steps and {done.num_events:,} events removed; "
        f"and {done.num_announcements:,} announcements, {done.num_plans:,} plans, "
        f"{done.num_audit_entries:,} audit entries",
        highlight=False,
    )
    return None


def backup(file: Annotated[Path, typer.Argument(help="New file to write. It becomes an SQLite database.")]) -> None:
    """Write the whole database into one file while the service keeps running.

    Example: autotuner backup copy.db
    """
    from autotuner.service.settings import Settings
    from autotuner.store.copying import backup as copy

    with progress("copying the database"):
        rows = copy(Settings().database_url, file)
    _say(rows, f"in {file} ({file.stat().st_size / 1e6:.1f} MB)")


def restore(file: Annotated[Path, typer.Argument(help="File that `autotuner backup` wrote.")]) -> None:
    """Fill an empty database from a backup.

    AUTOTUNER_DATABASE_URL names the database, SQLite or PostgreSQL.

    Example: autotuner restore copy.db
    """
    from autotuner.service.settings import Settings
    from autotuner.store.copying import restore as fill

    settings = Settings()
    with progress("filling the database"):
        rows = fill(file, settings.database_url)
    _say(rows, f"in {settings.database_address}")


def _say(rows: dict[str, int], where: str) -> None:
    console().print(
        f"sweeps: {rows['sweeps']:,}, trials: {rows['trials']:,}, rows in all: {sum(rows.values()):,}, {where}",
        highlight=False,
        soft_wrap=True,
    )


# ---------------------------------------------------------------- tokens
token = typer.Typer(no_args_is_help=True, help="Manage the access tokens of a service with a login.")

_DAY_S = 86_400

_TOKEN_ID = re.compile(r"[a-z0-9]{1,32}")


def _token_id(text: str) -> str:
    if _TOKEN_ID.fullmatch(text):
        return text
    raise InvalidInput("token", text[:3] + "…", "must be the id of a token, as `autotuner token list` prints it")


@token.command("add")
@flags(TokenCreate, arguments=("name",), leaves_out=("expires_at",))
def add_token(
    request: TokenCreate,
    days: Annotated[
        int | None,
        typer.Option("--expires-in-days", min=1, max=36_500, help="Days until the token expires. Default: never."),
    ] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Create an access token and print it once.

    Without --server, AUTOTUNER_DATABASE_URL names the database that stores it.

    Example: autotuner token add ci --scope run --expires-in-days 90
    """
    from autotuner.report.service import token_created_report

    asked = replace(request, expires_at=None if days is None else time.time() + days * _DAY_S)
    tell(server, lambda service: service.create_token(asked), token_created_report, as_json=as_json)


@token.command("list")
def list_tokens(server: Server = None, as_json: Json = False) -> None:
    """List the tokens, with their owners, scopes, last uses and expiry dates.

    Example: autotuner token list
    """
    from autotuner.report.service import tokens_report

    tell(
        server,
        lambda service: service.list_tokens(),
        lambda found: tokens_report(found.items, now=time.time()),
        as_json=as_json,
    )


@token.command("revoke")
def revoke_token(
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
    from autotuner.report.service import token_revoked_report

    tell(server, lambda service: service.revoke_token(token_id), token_revoked_report, as_json=as_json)


# ---------------------------------------------------------------- webhooks
webhook = typer.Typer(no_args_is_help=True, help="Post the outcomes of sweeps, gates and retunes to URLs.")

_NOT_ACCEPTED = 6

_Webhook = Annotated[str, typer.Argument(help="Name of the webhook.")]


def _delivery_id(text: str) -> str:
    return stored_id(text, "delivery")


@webhook.command("add")
def add_webhook(
    name: _Webhook,
    url: Annotated[str, typer.Argument(help="URL to post to.")],
    kinds: Annotated[
        list[AnnouncementKind] | None,
        typer.Option("--kind", help="Kind of outcome to post. May be repeated. Default: all kinds."),
    ] = None,
    form: Annotated[
        PayloadFormat,
        typer.Option("--format", help="Format of the posts: json for programs, slack for a Slack webhook."),
    ] = PayloadFormat.JSON,
    secret: Annotated[
        str | None,
        typer.Option(
            "--secret", envvar="AUTOTUNER_WEBHOOK_SECRET", help="Secret that signs the posts. Default: a new one."
        ),
    ] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Post outcomes to a URL from now on.

    It prints the secret that signs the posts once.

    Example: autotuner webhook add ours https://hooks.example.com/autotuner
    """
    from autotuner.report.service import webhook_created_report

    asked = {
        "name": name,
        "url": url,
        "kinds": [one.value for one in kinds or ()],
        "format": form.value,
        "secret": secret or None,
    }
    tell(
        server,
        lambda service: service.create_webhook(read(WebhookCreate, asked)),
        webhook_created_report,
        as_json=as_json,
    )


@webhook.command("list")
def list_webhooks(server: Server = None, as_json: Json = False) -> None:
    """List the webhooks, with the kinds of outcome that each one receives.

    It also counts the deliveries that wait, and those that were given up.

    Example: autotuner webhook list
    """
    from autotuner.report.service import webhooks_report

    tell(server, lambda service: service.list_webhooks(), lambda found: webhooks_report(found.items), as_json=as_json)


@webhook.command("remove")
def remove_webhook(name: _Webhook, server: Server = None, as_json: Json = False) -> None:
    """Remove a webhook and its deliveries, including those that wait.

    Example: autotuner webhook remove ours
    """
    from autotuner.report.service import webhook_removed_report

    tell(server, lambda service: service.remove_webhook(name), webhook_removed_report, as_json=as_json)


@webhook.command("test")
def try_webhook(name: _Webhook, server: Server = None, as_json: Json = False) -> None:
    """Post a test message to a webhook now.

    Exit code 6: the receiver did not accept the message.

    Example: autotuner webhook test ours
    """
    from autotuner.report.service import answer_report

    with open_service(server) as service:
        answer = service.test_webhook(name)
    show(answer, answer_report, as_json=as_json)
    if not answer.is_accepted:
        raise typer.Exit(_NOT_ACCEPTED)


@webhook.command("deliveries")
def deliveries(
    name: Annotated[str | None, typer.Argument(help="List only the deliveries to this webhook.")] = None,
    state: Annotated[
        DeliveryState | None,
        typer.Option("--state", help="List only deliveries in this state. Dead ones were given up."),
    ] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """List deliveries, newest first, with the last answer of the receiver.

    A delivery is the post of one outcome to one webhook.

    Example: autotuner webhook deliveries ours
    """
    from autotuner.report.service import deliveries_report

    tell(server, lambda service: service.list_deliveries(webhook=name, state=state), deliveries_report, as_json=as_json)


@webhook.command("send-again")
def send_again(
    delivery: Annotated[
        str,
        typer.Argument(callback=_delivery_id, help="Id of the delivery, as `autotuner webhook deliveries` prints it."),
    ],
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Post a delivery again, even if it arrived or was given up.

    A service or `autotuner worker` posts it.

    Example: autotuner webhook send-again dl-k3v7q2mxn5
    """
    from autotuner.report.service import delivery_report

    tell(server, lambda service: service.send_again(delivery), delivery_report, as_json=as_json)
