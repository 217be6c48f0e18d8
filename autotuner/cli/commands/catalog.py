"""``autotuner catalog``, ``stacks``, ``trainers`` and ``engines``: what there is to choose from."""

from __future__ import annotations

from autotuner.cli.options import Json, Server


def catalog(server: Server = None, as_json: Json = False) -> None:
    """List the accelerators, models and training software that commands accept by name.

    Example: autotuner catalog
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import show
    from autotuner.report.catalog import catalog_report

    with connect(server, keep=False) as service:
        accelerators, models, stacks = service.list_accelerators(), service.list_catalog_models(), service.list_stacks()
    found = {"accelerators": accelerators, "models": models, "stacks": stacks}
    show(found, lambda _: catalog_report(accelerators.items, models.items, stacks.items), as_json=as_json)


def stacks(server: Server = None, as_json: Json = False) -> None:
    """List the training software that --stack accepts, with the measured runs behind each one.

    Example: autotuner stacks
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import show
    from autotuner.report.catalog import stacks_report

    with connect(server, keep=False) as service:
        show(service.list_stack_profiles(), lambda found: stacks_report(found.items), as_json=as_json)


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
