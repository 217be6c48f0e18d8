"""``autotuner front``: what no other layout of a sweep beats in everything, and why."""

from __future__ import annotations

from typing import Annotated

import typer

from autotuner.cli.options import Json, Server, SweepId

__all__ = ["front"]


def front(
    sweep_id: SweepId,
    metrics: Annotated[
        str, typer.Option("--metrics", help="What counts: mfu,tokens_per_joule. Left out: what the sweep looks for.")
    ] = "",
    profile: Annotated[
        str, typer.Option("--profile", help="How much each counts where one is named: mfu=2,tokens_per_joule=1.")
    ] = "",
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Print the layouts of a sweep that no other beats in everything, and why each is one of them."""
    from autotuner.cli.client import connect
    from autotuner.cli.console import console, print_json
    from autotuner.cli.views.front import front_view

    with connect(server) as client:
        answer = client.get(f"/sweeps/{sweep_id}/front", metrics=metrics, profile=profile)
    if as_json:
        return print_json(answer)
    console().print(front_view(answer))
    return None
