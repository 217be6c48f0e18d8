"""``autotuner predict``: the best predicted layouts of a job."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from autotuner.cli.options import (
    ClusterArgument,
    GlobalBatch,
    Json,
    LengthsText,
    LinkHealthText,
    Measured,
    Model,
    OptionalLayoutText,
    SeqLen,
    Server,
    Space,
    StackName,
)

__all__ = ["NOTHING_FITS", "predict"]

NOTHING_FITS = 7
"""Exit code where no layout fits in memory."""


def predict(
    model: Model,
    cluster: ClusterArgument,
    global_batch: GlobalBatch,
    seq_len: SeqLen,
    space: Space = None,
    layout: OptionalLayoutText = None,
    current: Annotated[
        str | None,
        typer.Option("--current", help="The layout that you run today, to be told what the best would give."),
    ] = None,
    wanted: Annotated[
        str | None, typer.Option("--format", help="Try only layouts that this trainer can be told; as for export.")
    ] = None,
    stack: StackName = "torch",
    measured: Measured = None,
    link_health: LinkHealthText = None,
    lengths: LengthsText = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Rows to print.")] = 10,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Predict every legal layout and print the best, with where the time goes. Measures nothing.

    With --layout, predict that one alone. Exit code 7: no layout fits in memory; the answer says how much is missing
    and what would help.
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import print_json
    from autotuner.cli.inputs import job_body, may_be_stored, read_space
    from autotuner.cli.layout_text import read_layout
    from autotuner.cli.measured_runs import read_measured

    body = job_body(model, cluster, global_batch, seq_len, link_health, lengths)
    body |= read_measured(measured, body["workload"])
    body |= {"space": read_space(space), "limit": limit, "stack": stack, "format": wanted}
    given = {"layout": layout, "current": current}
    body |= {name: read_layout(text) for name, text in given.items() if text is not None}
    with connect(server, keep=may_be_stored(cluster)) as client:
        answer = client.post("/predictions", body)
    if as_json:
        print_json(answer)
    else:
        _print(answer, cluster=cluster, global_batch=global_batch, seq_len=seq_len)
    if not any(item["predicted"]["fits"] for item in answer["items"]):
        raise typer.Exit(NOTHING_FITS)


def _print(answer: dict[str, Any], *, cluster: str, global_batch: int, seq_len: int) -> None:
    from autotuner.cli.console import console
    from autotuner.cli.views.jobs import job_in_words
    from autotuner.cli.views.rankings import prediction_table

    title = job_in_words(answer["model_size"], cluster=cluster, global_batch=global_batch, seq_len=seq_len)
    if answer["num_legal"] is not None:
        title += f": {answer['num_fitting']:,} of {answer['num_legal']:,} legal layouts fit"
    console().print(prediction_table(answer, title=title))
