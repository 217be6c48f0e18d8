"""``autotuner predict``: the best predicted layouts of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

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

if TYPE_CHECKING:
    from autotuner.search.predictions import PredictionTable

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
    from autotuner.cli.console import console, print_json
    from autotuner.cli.inputs import cluster_name, job_body, may_be_stored, read_space
    from autotuner.cli.layout_text import read_layout
    from autotuner.cli.measured_runs import read_measured
    from autotuner.cli.money import objective_body, price_body
    from autotuner.core import documents
    from autotuner.core.objective import Objective
    from autotuner.report.prediction import how_many_fit, prediction_report
    from autotuner.report.terminal import render
    from autotuner.report.words import job_in_words

    body = job_body(model, cluster, global_batch, seq_len, link_health, lengths)
    body |= read_measured(measured, body["workload"])
    compared = objective_body(objective, profile)
    body |= price_body(price, tariff)
    body |= {"space": read_space(space), "limit": limit, "stack": stack, "format": wanted, "objective": compared}
    given = {"layout": layout, "current": current}
    body |= {name: read_layout(text) for name, text in given.items() if text is not None}
    found = _asked(body, knows_stored=may_be_stored(cluster)) if server is None else _sent(server, body)
    if as_json:
        print_json(documents.write(found))
    else:
        job = job_in_words(found.model_size, cluster=cluster_name(cluster), global_batch=global_batch, seq_len=seq_len)
        report = prediction_report(found, f"{job}{how_many_fit(found)}", documents.restore(Objective, compared))
        console().print(render(report))
    if not any(one.predicted.fits for one in found.items):
        raise typer.Exit(NOTHING_FITS)


def _asked(body: dict[str, Any], *, knows_stored: bool) -> PredictionTable:
    """The answer of this process."""
    from autotuner.cli.own_door import own_door
    from autotuner.core.documents import read
    from autotuner.core.requests import PredictionRequest

    with own_door(knows_stored=knows_stored) as door:
        return door.predict(read(PredictionRequest, body))


def _sent(server: str, body: dict[str, Any]) -> PredictionTable:
    """The answer of a service that runs already."""
    from autotuner.cli.client import connect
    from autotuner.core.documents import restore
    from autotuner.search.predictions import PredictionTable

    with connect(server) as client:
        return restore(PredictionTable, client.post("/predictions", body))
