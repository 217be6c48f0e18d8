"""``autotuner stacks``: which training software is known, and from which runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autotuner.cli.options import Json, Server


def stacks(server: Server = None, as_json: Json = False) -> None:
    """List the training software that --stack accepts, with the measured runs behind each one.

    Example: autotuner stacks
    """
    from rich.text import Text

    from autotuner.cli.client import connect
    from autotuner.cli.console import console, print_json

    with connect(server, keep=False) as client:
        found = client.get("/stacks")
    if as_json:
        return print_json(found)
    for stack in found["items"]:
        about = "; ".join(word for word in (stack["framework"], stack["versions"]) if word)
        date = f" ({stack['date']})" if stack["date"] else ""
        console().print(Text.assemble((stack["name"], "bold"), f": {about}{date}"))
        for line in _fitted(stack):
            console().print(Text(f"  {line}"))
    return None


def _fitted(stack: dict[str, Any]) -> Iterator[str]:
    """A line for the runs of each device and kind of model, and one for the error."""
    for each in stack["compared"]:
        tables = f", {' and '.join(each['tables'])}" if each["tables"] else ""
        yield f"{each['runs']:,} runs of {each['model']} on {each['device']}{tables}"
    if not stack["compared"]:
        yield "compared with no measured run"
    if stack["left_out_error"] is not None:
        yield f"median error {100 * stack['left_out_error']:.1f} % on runs whose source was left out of the fit"
