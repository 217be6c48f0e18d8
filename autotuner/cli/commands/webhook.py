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
    from autotuner.cli.console import console, print_json

    body = {"name": name, "url": url, "kinds": [kind.value for kind in kinds or ()], "format": form.value}
    with connect(server) as client:
        added = client.post("/webhooks", body | ({"secret": secret} if secret else {}))
    if as_json:
        return print_json(added)
    console().print(f"{name} posts to {added['webhook']['posts_to']}; its secret, not shown again:\n{added['secret']}")
    return None


@webhook.command("list")
def list_(server: Server = None, as_json: Json = False) -> None:
    """List the webhooks, with the kinds of outcome that each one receives.

    It also counts the deliveries that wait, and those that were given up.

    Example: autotuner webhook list
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import console, print_json
    from autotuner.cli.views.webhooks import webhook_table

    with connect(server) as client:
        found = client.get("/webhooks")
    if as_json:
        return print_json(found)
    console().print(webhook_table(found["items"]))
    return None


@webhook.command("remove")
def remove(name: _Name, server: Server = None, as_json: Json = False) -> None:
    """Remove a webhook and its deliveries, including those that wait.

    Example: autotuner webhook remove ours
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import console, print_json

    with connect(server) as client:
        removed = client.delete(f"/webhooks/{name}")
    if as_json:
        return print_json(removed)
    console().print(f"{name} is forgotten, with its deliveries")
    return None


@webhook.command("test")
def try_(name: _Name, server: Server = None, as_json: Json = False) -> None:
    """Post a test message to a webhook now.

    Exit code 6: the receiver did not accept the message.

    Example: autotuner webhook test ours
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import console, print_json

    with connect(server) as client:
        answer = client.post(f"/webhooks/{name}/test")
    if as_json:
        print_json(answer)
    else:
        console().print(f"{'accepted' if answer['accepted'] else 'not accepted'}: {answer['detail']}")
    if not answer["accepted"]:
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
    from autotuner.cli.console import console, print_json
    from autotuner.cli.views.webhooks import delivery_table

    asked = {"webhook": name, "state": state.value if state else None}
    with connect(server) as client:
        found = client.get("/deliveries", **{key: value for key, value in asked.items() if value is not None})
    if as_json:
        return print_json(found)
    console().print(delivery_table(found["items"], found["total"]))
    return None


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
    from autotuner.cli.console import console, print_json

    with connect(server) as client:
        pending = client.post(f"/deliveries/{delivery}/send-again")
    if as_json:
        return print_json(pending)
    console().print(f"{pending['id']} to {pending['webhook']} is pending; a service or `autotuner worker` posts it")
    return None
