"""``autotuner engines``: where trials can run."""

from __future__ import annotations

from autotuner.cli.options import Json, Server


def engines(server: Server = None, as_json: Json = False) -> None:
    """List the engines that can run trials, and ask each one whether it is ready.

    Example: autotuner engines
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import console, print_json
    from autotuner.report.terminal import plain_table

    with connect(server, keep=False) as client:
        found = client.get("/engines")
    if as_json:
        return print_json(found)
    table = plain_table("name", "kind", "state", "queues", "jobs at once", "answer")
    for each in found["items"]:
        table.add_row(
            each["name"],
            each["kind"],
            "answers" if each["answers"] else "not ready",
            ", ".join(each["queues"]) or "-",
            "-" if each["max_parallel_trials"] is None else str(each["max_parallel_trials"]),
            each["answer"],
        )
    console().print(table)
    return None
