"""``autotuner predict``: the best predicted layouts of a job."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from autotuner.cli.options import (
    SELDOM,
    ClusterArgument,
    GlobalBatch,
    Json,
    LengthsText,
    LinkHealthText,
    Measured,
    Model,
    ObjectiveName,
    Price,
    ProfileText,
    SeqLen,
    Server,
    Space,
    StackName,
    TariffText,
)

NOTHING_FITS = 7
"""Exit code where no layout fits in memory."""


def predict(
    model: Model,
    cluster: ClusterArgument,
    global_batch: GlobalBatch,
    seq_len: SeqLen,
    layout: Annotated[
        str | None,
        typer.Option("--layout", help="Predict only this layout, as tables print it ('fsdp8 tp4 mb1 sp') or as JSON."),
    ] = None,
    current: Annotated[
        str | None, typer.Option("--current", help="Layout that you use today, to compare the best one with.")
    ] = None,
    objective: ObjectiveName = "mfu",
    space: Space = None,
    wanted: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="Try only layouts that this trainer can run. The names are those of `autotuner export`.",
            rich_help_panel=SELDOM,
        ),
    ] = None,
    stack: StackName = "torch",
    measured: Measured = None,
    link_health: LinkHealthText = None,
    lengths: LengthsText = None,
    profile: ProfileText = None,
    price: Price = None,
    tariff: TariffText = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Number of layouts to print.")] = 10,
    server: Server = None,
    as_json: Json = False,
) -> None:
    r"""Predict the speed and memory of every legal layout of a job, and print the best ones.

    It runs nothing on the cluster.
    Exit code 7: no layout fits in memory.

    Example: autotuner predict --model llama-3-8b --cluster h100:8 \
        --global-batch 64 --seq-len 8k
    """
    from autotuner.cli.console import print_json
    from autotuner.cli.inputs import cluster_name, job_body, may_be_stored, read_space
    from autotuner.cli.layout_text import read_layout
    from autotuner.cli.measured_runs import read_measured
    from autotuner.cli.money import objective_body, price_body

    body = job_body(model, cluster, global_batch, seq_len, link_health, lengths)
    body |= read_measured(measured, body["workload"])
    compared = objective_body(objective, profile)
    body |= price_body(price, tariff)
    body |= {"space": read_space(space), "limit": limit, "stack": stack, "format": wanted, "objective": compared}
    given = {"layout": layout, "current": current}
    body |= {name: read_layout(text) for name, text in given.items() if text is not None}
    answer = _asked(body, knows_stored=may_be_stored(cluster)) if server is None else _sent(server, body)
    if as_json:
        print_json(answer)
    else:
        title = _title(answer, cluster=cluster_name(cluster), global_batch=global_batch, seq_len=seq_len)
        _print(answer, title, compared)
    if not any(item["predicted"]["fits"] for item in answer["items"]):
        raise typer.Exit(NOTHING_FITS)


def _asked(body: dict[str, Any], *, knows_stored: bool) -> dict[str, Any]:
    """The answer of this process."""
    from autotuner.cli.own_door import own_door
    from autotuner.core.codec import to_plain
    from autotuner.core.documents import read
    from autotuner.core.requests import PredictionRequest

    with own_door(knows_stored=knows_stored) as door:
        answer: dict[str, Any] = to_plain(door.predict(read(PredictionRequest, body)))
    return answer


def _sent(server: str, body: dict[str, Any]) -> dict[str, Any]:
    """The answer of a service that runs already."""
    from autotuner.cli.client import connect

    with connect(server) as client:
        answer: dict[str, Any] = client.post("/predictions", body)
    return answer


def _print(answer: dict[str, Any], title: str, compared: dict[str, Any]) -> None:
    from autotuner.cli.console import console
    from autotuner.cli.views.rankings import prediction_table
    from autotuner.core import documents
    from autotuner.core.objective import Objective

    console().print(prediction_table(answer, title=title, objective=documents.restore(Objective, compared)))


def _title(answer: dict[str, Any], *, cluster: str, global_batch: int, seq_len: int) -> str:
    from autotuner.cli.views.jobs import job_in_words

    title = job_in_words(answer["model_size"], cluster=cluster, global_batch=global_batch, seq_len=seq_len)
    if answer["num_legal"] is not None:
        title += f": {answer['num_fitting']:,} of {answer['num_legal']:,} legal layouts fit"
    return title
