"""``autotuner phases``: the best predicted layout of each phase of a job."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from autotuner.cli.options import (
    SELDOM,
    ClusterArgument,
    GlobalBatch,
    Json,
    LinkHealthText,
    Measured,
    Model,
    SeqLen,
    Server,
    Space,
    StackName,
)
from autotuner.core.units import GIGA


def phases(
    model: Model,
    cluster: ClusterArgument,
    global_batch: GlobalBatch,
    seq_len: SeqLen,
    described: Annotated[
        str,
        typer.Option(
            "--phases",
            help="Phases in order: a file, or lines such as 'main: 95 % | long: 5 %; seq_len 131072; batch 64'.",
        ),
    ],
    tokens: Annotated[str, typer.Option("--tokens", help="Tokens of the whole training: 15.6T, 400B, 2e12.")],
    restart: Annotated[
        float | None,
        typer.Option(
            "--restart", min=0.0, help="Seconds until restarted ranks can train again.", rich_help_panel=SELDOM
        ),
    ] = None,
    storage: Annotated[
        float | None,
        typer.Option(
            "--storage",
            min=0.0,
            help="GB/s at which the whole job writes and reads checkpoints.",
            rich_help_panel=SELDOM,
        ),
    ] = None,
    current: Annotated[
        str | None,
        typer.Option("--current", help="Layout that runs before the first phase.", rich_help_panel=SELDOM),
    ] = None,
    space: Space = None,
    stack: StackName = "torch",
    measured: Measured = None,
    link_health: LinkHealthText = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    r"""Predict the best layout for each phase of a training run.

    It counts the time to switch layouts, which is a checkpoint and a restart.
    It runs nothing on the cluster.

    Example: autotuner phases --model llama-3-8b --cluster h100:32 \
        --global-batch 512 --seq-len 8k --tokens 1T \
        --phases 'main: 95 % | long: 5 %; seq_len 131072; batch 32'
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import console, print_json
    from autotuner.cli.inputs import cluster_name, job_body, may_be_stored, read_phases_of, read_space
    from autotuner.cli.layout_text import read_layout
    from autotuner.cli.measured_runs import read_measured
    from autotuner.cli.views.job_phases import phases_view
    from autotuner.search.planning.words import read_amount, written_amount

    body = job_body(model, cluster, global_batch, seq_len, link_health)
    body |= read_measured(measured, body["workload"])
    num_tokens = read_amount("--tokens", tokens)
    body |= {"phases": read_phases_of(described), "num_tokens": num_tokens, "space": read_space(space), "stack": stack}
    body |= {"switch": _switch(restart, storage)}
    if current is not None:
        body |= {"current": read_layout(current)}
    with connect(server, keep=may_be_stored(cluster)) as client:
        answer = client.post("/job-phases", body)
    if as_json:
        print_json(answer)
        return
    console().print(
        phases_view(answer, title=f"{model} on {cluster_name(cluster)}, {written_amount(num_tokens)} tokens")
    )


def _switch(restart_s: float | None, storage_gb_per_s: float | None) -> dict[str, Any]:
    said = {"restart_s": restart_s, "storage_bytes_per_s": storage_gb_per_s and GIGA * storage_gb_per_s}
    return {name: value for name, value in said.items() if value is not None}
