"""``autotuner webhook``: where outcomes are announced, and what became of each announcement."""

from __future__ import annotations

from typing import Annotated

import typer

from autotuner.cli.options import Json, Server, stored_id
from autotuner.core.announcement import AnnouncementKind, DeliveryState, PayloadFormat

webhook = typer.Typer(no_args_is_help=True, help="Post the outcomes of sweeps, gates and retunes to URLs.")

_NOT_ACCEPTED = 6

_Name = Annotated[str, typer.Argument(help="Name of the webhook.")]


def _delivery_id(text: str) -> str:
    return stored_id(text, "delivery")


@webhook.command("add")
def add(
    name: _Name,
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
    from autotuner.cli.client import connect
    from autotuner.cli.console import show
    from autotuner.core.announcement import WebhookCreate
    from autotuner.core.documents import read
    from autotuner.report.service import webhook_created_report

    asked = {
        "name": name,
        "url": url,
        "kinds": [one.value for one in kinds or ()],
        "format": form.value,
        "secret": secret or None,
    }
    with connect(server) as service:
        show(service.create_webhook(read(WebhookCreate, asked)), webhook_created_report, as_json=as_json)


@webhook.command("list")
def list_(server: Server = None, as_json: Json = False) -> None:
    """List the webhooks, with the kinds of outcome that each one receives.

    It also counts the deliveries that wait, and those that were given up.

    Example: autotuner webhook list
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import show
    from autotuner.report.service import webhooks_report

    with connect(server) as service:
        show(service.list_webhooks(), lambda found: webhooks_report(found.items), as_json=as_json)


@webhook.command("remove")
def remove(name: _Name, server: Server = None, as_json: Json = False) -> None:
    """Remove a webhook and its deliveries, including those that wait.

    Example: autotuner webhook remove ours
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import show
    from autotuner.report.service import webhook_removed_report

    with connect(server) as service:
        show(service.remove_webhook(name), webhook_removed_report, as_json=as_json)


@webhook.command("test")
def try_(name: _Name, server: Server = None, as_json: Json = False) -> None:
    """Post a test message to a webhook now.

    Exit code 6: the receiver did not accept the message.

    Example: autotuner webhook test ours
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import show
    from autotuner.report.service import answer_report

    with connect(server) as service:
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

    Example: autotuner webhook deliveries ours
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import show
    from autotuner.report.service import deliveries_report

    with connect(server) as service:
        show(service.list_deliveries(webhook=name, state=state), deliveries_report, as_json=as_json)


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
    from autotuner.cli.client import connect
    from autotuner.cli.console import show
    from autotuner.report.service import delivery_report

    with connect(server) as service:
        show(service.send_again(delivery), delivery_report, as_json=as_json)
