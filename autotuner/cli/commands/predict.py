"""``autotuner predict``: the best predicted layouts of a job."""

from __future__ import annotations

from typing import Annotated

import typer

from autotuner.cli.options import ClusterArgument, GlobalBatch, Json, Measured, Model, SeqLen, Server, Space, StackName

__all__ = ["predict"]


def predict(
    model: Model,
    cluster: ClusterArgument,
    global_batch: GlobalBatch,
    seq_len: SeqLen,
    space: Space = None,
    stack: StackName = "torch",
    measured: Measured = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Rows to print.")] = 10,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Predict every legal layout and print the best, with where the time goes. Measures nothing."""
    from autotuner.cli.client import connect
    from autotuner.cli.console import console, print_json
    from autotuner.cli.inputs import is_measured, job_body, read_space
    from autotuner.cli.measured_runs import read_measured
    from autotuner.cli.views.rankings import prediction_table

    body = job_body(model, cluster, global_batch, seq_len)
    body |= read_measured(measured, body["workload"])
    body |= {"space": read_space(space), "limit": limit, "stack": stack}
    with connect(server, keep=is_measured(cluster)) as client:
        answer = client.post("/predictions", body)
    if as_json:
        return print_json(answer)
    fitting = f"{answer['num_fitting']:,} of {answer['num_legal']:,} legal layouts fit"
    title = f"{model} on {cluster}, {global_batch} sequences of {seq_len}: {fitting}"
    console().print(prediction_table(answer, title=title))
    return None
