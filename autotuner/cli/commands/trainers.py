"""``autotuner trainers``: what a sweep can run in place of our own decoder."""

from __future__ import annotations

from autotuner.cli.options import Json, Server


def trainers(server: Server = None, as_json: Json = False) -> None:
    """List the registered trainers, and the layout options that a sweep can search with each one.

    Example: autotuner trainers
    """
    from rich.text import Text

    from autotuner.cli.client import connect
    from autotuner.cli.console import console, print_json

    with connect(server, keep=False) as client:
        found = client.get("/trainers")
    if as_json:
        return print_json(found)
    for each in found["items"]:
        about = f": {each['format']} {each['version']}".rstrip() + f", predicted as {each['stack']}"
        console().print(Text.assemble((each["name"], "bold"), about))
        console().print(Text("  searches " + ", ".join(each["options"])))
        if each["values"]:
            known = (f"{name} {', '.join(map(str, values))}" for name, values in each["values"].items())
            console().print(Text("  knows " + "; ".join(known)))
        if each["fixed"]:
            console().print(Text("  fixed " + ", ".join(f"{name} {value}" for name, value in each["fixed"].items())))
    if not found["items"]:
        console().print("no trainer is registered; AUTOTUNER_TRAINERS names the file that does (docs/trainers.md)")
    return None
