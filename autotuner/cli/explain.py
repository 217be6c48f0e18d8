"""The commands that explain: one layout, or what measured layouts teach."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from autotuner.backtest.table import read_table
from autotuner.cli.client import connect
from autotuner.cli.describe import is_measured, job_body
from autotuner.cli.explanation import explanation_view, rules_view
from autotuner.cli.layout_text import read_layout
from autotuner.cli.measurement import measurement_view
from autotuner.cli.options import (
    Json,
    OptionalCluster,
    OptionalGlobalBatch,
    OptionalModel,
    OptionalSeqLen,
    OptionalStack,
    Server,
)
from autotuner.cli.output import console, print_json
from autotuner.domain.wire import to_dict
from autotuner.errors import InvalidInput
from autotuner.search.explain.pairwise import insights

__all__ = ["explain", "rules"]


def explain(
    trial: Annotated[
        str | None,
        typer.Argument(
            help="A trial's id: its sweep's, a dash and its number, four digits. Or describe a layout by options."
        ),
    ] = None,
    model: OptionalModel = None,
    cluster: OptionalCluster = None,
    global_batch: OptionalGlobalBatch = None,
    seq_len: OptionalSeqLen = None,
    layout: Annotated[
        str | None, typer.Option("--layout", help="As tables print it ('fsdp8 tp4 mb1 sp'), or JSON.")
    ] = None,
    stack: OptionalStack = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Explain a layout: where its time and memory go, what limits it, and which change would help.

    Of a trial that was measured, what was measured comes first.
    """
    if trial is not None:
        _refuse_options(
            model=model, cluster=cluster, global_batch=global_batch, seq_len=seq_len, layout=layout, stack=stack
        )
        with connect(server) as client:
            answer = client.get(f"/trials/{trial}/explanation")
            measured = client.get(f"/trials/{trial}")["measured"]
    else:
        measured = None
        body = _described(model=model, cluster=cluster, global_batch=global_batch, seq_len=seq_len, layout=layout)
        with connect(server, keep=is_measured(cluster or "")) as client:
            answer = client.post("/explanations", body if stack is None else body | {"stack": stack})
    if as_json:
        return print_json(answer)
    if measured is not None:
        console().print(measurement_view(measured))
    console().print(explanation_view(answer))
    return None


def rules(
    source: Annotated[str, typer.Argument(help="A sweep's id, or a CSV file of measured runs.")],
    server: Server = None,
    as_json: Json = False,
) -> None:
    """State what measured layouts say about one choice at a time: pair counts and effects."""
    if source.endswith(".csv"):
        answer = _rules_of_table(source)
    else:
        with connect(server) as client:
            answer = client.get(f"/sweeps/{source}/rules")
    if as_json:
        return print_json(answer)
    console().print(rules_view(answer))
    return None


def _refuse_options(**options: Any) -> None:
    """A stored trial has its layout and its job; what else is said would be ignored."""
    for name, value in options.items():
        if value is not None:
            raise InvalidInput(f"--{name.replace('_', '-')}", value, "must be left out when a trial is given")


def _described(**options: Any) -> dict[str, Any]:
    """The body of an explanation, from options that are only needed where no trial is given."""
    for name, value in options.items():
        if value is None:
            rule = "is required, unless the id of a stored trial is given"
            raise InvalidInput(f"--{name.replace('_', '-')}", value, rule)
    layout = read_layout(options.pop("layout"))
    return job_body(**options) | {"layout": layout}


def _rules_of_table(path: str) -> dict[str, Any]:
    """As the service answers for a sweep."""
    sheets = read_table(Path(path)).sheets
    found = insights((sheet.layouts, sheet.step_time_s) for sheet in sheets)
    num_measured = sum(int((~sheet.out_of_memory).sum()) for sheet in sheets)
    return {"num_measured": num_measured, "items": to_dict(found)}
