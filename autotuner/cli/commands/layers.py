"""``autotuner layers``: what each layer of communication gives to a job."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from autotuner.cli.options import (
    Json,
    LinkHealthText,
    Measured,
    OptionalCluster,
    OptionalGlobalBatch,
    OptionalModel,
    OptionalSeqLen,
    OptionalStack,
    Server,
    stored_id,
)
from autotuner.core.errors import InvalidInput


def layers(
    sweep: Annotated[
        str | None, typer.Argument(help="Id of a sweep, to use its job and its trials (sw-k3v7q2mxn5).")
    ] = None,
    model: OptionalModel = None,
    cluster: OptionalCluster = None,
    global_batch: OptionalGlobalBatch = None,
    seq_len: OptionalSeqLen = None,
    stack: OptionalStack = None,
    measured: Measured = None,
    link_health: LinkHealthText = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    r"""Predict how much faster a job becomes with each layer of communication options.

    It searches the options of one layer, then of two, up to all five: strategy,
    task scheduling, collectives, flow scheduling and network.
    With the id of a sweep, it also compares the trials of that sweep.

    Example: autotuner layers --model llama-3-8b --cluster h100:64@fat-tree-4to1 \
        --global-batch 256 --seq-len 4k
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import console, print_json
    from autotuner.cli.inputs import may_be_stored
    from autotuner.cli.views.layers import layers_view

    job = {"model": model, "cluster": cluster, "global_batch": global_batch, "seq_len": seq_len}
    if sweep is None:
        body = _described(job, stack, measured, link_health)
        with connect(server, keep=may_be_stored(cluster or "")) as client:
            answer = {"predicted": client.post("/layer-reports", body), "measured": None}
    else:
        _require_alone({**job, "stack": stack, "measured": measured, "link_health": link_health})
        stored_id(sweep, "sweep")
        with connect(server) as client:
            answer = client.get(f"/sweeps/{sweep}/layers")
    if as_json:
        print_json(answer)
        return
    console().print(layers_view(answer))


def _described(job: dict[str, Any], stack: str | None, measured: Any, link_health: str | None) -> dict[str, Any]:
    from autotuner.cli.inputs import job_body
    from autotuner.cli.measured_runs import read_measured

    for name, value in job.items():
        if value is None:
            rule = "is required, unless the id of a stored sweep is given"
            raise InvalidInput(f"--{name.replace('_', '-')}", value, rule)
    body = job_body(**job, link_health=link_health)
    return body | read_measured(measured, body["workload"]) | ({} if stack is None else {"stack": stack})


def _require_alone(options: dict[str, Any]) -> None:
    for name, value in options.items():
        if value is not None:
            raise InvalidInput(f"--{name.replace('_', '-')}", value, "must be left out when a sweep is given")
