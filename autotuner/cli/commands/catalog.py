"""``autotuner catalog``: what is known by name."""

from __future__ import annotations

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
