"""A gate that a service measures: asked for, watched to its end, cancelled with the command that waits for it."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console

from autotuner.cli.client import Client, connect
from autotuner.cli.console import PlainConsole
from autotuner.cli.follow import follow
from autotuner.cli.patience import patiently
from autotuner.cli.said_layout import is_configuration, ranks_of, said_layout
from autotuner.cli.signals import terminable

_POLL_S = 0.5


def run_gate(
    server: str | None, body: dict[str, Any], *, cluster: str, layout: str | None, quiet: bool
) -> dict[str, Any]:
    """The gate as it ended.

    A CI system that cancels its job interrupts the command, and with it the gate: nobody waits for it any more.

    Args:
        server: URL of a service that runs already; None: one in this process measures.
        body: What is asked for, without the layout.
        cluster: As the caller named it.
        layout: As the caller wrote it; None: the best is searched.
        quiet: Whether nothing is said while it runs.
    """
    console = PlainConsole(stderr=True, quiet=quiet)
    with connect(server, num_workers=1) as client, terminable():
        gate = client.post("/gates", body | _layout(client, cluster, layout, console))
        try:
            if gate["outcome"] is None:
                follow(client, gate["sweep_id"], console)
            return _finished(client, gate)
        except KeyboardInterrupt:
            client.post(f"/gates/{gate['id']}/cancel")
            raise


def _layout(client: Client, cluster: str, layout: str | None, console: Console) -> dict[str, Any]:
    """The layout as the service takes it; how many ranks there are is asked only where a configuration is read."""
    if layout is None:
        return {}
    num_ranks = ranks_of(client, cluster) if is_configuration(layout) else None
    said = said_layout(layout, num_ranks)
    for note in said.notes:
        console.print(note, highlight=False, soft_wrap=True)
    return {"layout": said.fields}


def _finished(client: Client, gate: dict[str, Any]) -> dict[str, Any]:
    """The gate once the service has concluded it, which is soon after its sweep has ended."""
    path = f"/gates/{gate['id']}"
    while gate["outcome"] is None:
        time.sleep(_POLL_S)
        gate = patiently(lambda: client.get(path))
    if client.url is not None:
        gate["report"]["notes"].append(f"its runs, and the trials that they are: {client.url}/gates/{gate['id']}")
    return gate
