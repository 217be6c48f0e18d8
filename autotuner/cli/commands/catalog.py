"""``autotuner catalog``, ``stacks``, ``trainers`` and ``engines``: what there is to choose from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autotuner.cli.options import Json, Server


def catalog(server: Server = None, as_json: Json = False) -> None:
    """List the accelerators, models and training software that commands accept by name.

    Example: autotuner catalog
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import console, print_json

    with connect(server, keep=False) as client:
        found = {kind: client.get(f"/catalog/{kind}") for kind in ("accelerators", "models", "stacks")}
    if as_json:
        return print_json(found)
    console().print(_table([_accelerator_row(each) for each in found["accelerators"]["items"]]))
    console().print(_table([_model_row(each) for each in found["models"]["items"]]))
    console().print("training software: " + ", ".join(stack["name"] for stack in found["stacks"]["items"]))
    return None


def _table(rows: list[dict[str, str]]) -> Any:
    from autotuner.report.terminal import plain_table

    table = plain_table(*rows[0])
    for row in rows:
        table.add_row(*row.values())
    return table


def _accelerator_row(accelerator: dict[str, Any]) -> dict[str, str]:
    from autotuner.core.units import format_bytes, format_rate

    peaks = ("fp32_flop_per_s", "bf16_flop_per_s", "fp8_flop_per_s", "fp4_flop_per_s")
    return {
        "name": accelerator["name"],
        "memory": format_bytes(accelerator["memory_bytes"]),
        "bandwidth": format_rate(accelerator["memory_bandwidth_bytes_per_s"], "B/s"),
        **{key[:4].strip("_"): format_rate(accelerator[key], "FLOP/s") if accelerator[key] else "-" for key in peaks},
        "source": accelerator["peak_source"],
    }


def _model_row(model: dict[str, Any]) -> dict[str, str]:
    from autotuner.core import documents
    from autotuner.core.model import TransformerSpec
    from autotuner.core.units import format_count

    keys = ("num_layers", "hidden_size", "num_heads", "num_kv_heads", "ffn_size", "vocab_size")
    size = format_count(documents.restore(TransformerSpec, model).num_parameters)
    return {"name": model["name"], "parameters": size, **{key.removeprefix("num_"): str(model[key]) for key in keys}}


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
