"""``autotuner webhook``: where outcomes are announced, and what became of each announcement."""

from __future__ import annotations

from typing import Annotated

import typer

from autotuner.cli.options import Json, Server, stored_id
from autotuner.domain.upkeep.announcement import AnnouncementKind, DeliveryState, PayloadFormat

__all__ = ["webhook"]

webhook = typer.Typer(
    no_args_is_help=True, help="Have outcomes of retunes, MFU gates and sweeps posted to URLs; look after deliveries."
)

_NOT_ACCEPTED = 6

_Name = Annotated[str, typer.Argument(help="The webhook's name.")]


def _delivery_id(text: str) -> str:
    return stored_id(text, "delivery")


@webhook.command("add")
def add(
    name: _Name,
    url: Annotated[str, typer.Argument(help="What is posted to.")],
    kinds: Annotated[
        list[AnnouncementKind] | None, typer.Option("--kind", help="What it wants, once for each; by default all.")
    ] = None,
    form: Annotated[
        PayloadFormat, typer.Option("--format", help="json for programs, slack for an incoming webhook of Slack.")
    ] = PayloadFormat.JSON,
    secret: Annotated[
        str | None,
        typer.Option("--secret", envvar="AUTOTUNER_WEBHOOK_SECRET", help="Key of the signature; else one is made."),
    ] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Have outcomes posted to a URL from now on; prints the secret of the signatures, this once."""
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
    """List the webhooks, what each wants, and how many deliveries wait or were given up."""
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
    """Forget a webhook with its deliveries, those that wait too."""
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
    """Post a test to a webhook now; exit code 6 where it is not accepted."""
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
    name: Annotated[str | None, typer.Argument(help="Only deliveries to this webhook.")] = None,
    state: Annotated[DeliveryState | None, typer.Option("--state", help="Only these; dead ones were given up.")] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """List deliveries, newest first, with what the receiver last answered."""
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
        str, typer.Argument(callback=_delivery_id, help="The delivery's id, as `webhook deliveries` prints it.")
    ],
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Make a delivery anew, whether it arrived or was given up; a service or worker posts it."""
    from autotuner.cli.client import connect
    from autotuner.cli.console import console, print_json

    with connect(server) as client:
        pending = client.post(f"/deliveries/{delivery}/send-again")
    if as_json:
        return print_json(pending)
    console().print(f"{pending['id']} to {pending['webhook']} is pending; a service or `autotuner worker` posts it")
    return None
