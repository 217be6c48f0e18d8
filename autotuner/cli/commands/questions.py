"""``autotuner predict``, ``phases``, ``layers`` and ``plan``: questions that nothing has to run for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from autotuner.cli.flags import Output, flags
from autotuner.cli.options import Server, stored_id
from autotuner.core.requests import LayersRequest, PhasesRequest, PredictionRequest
from autotuner.search.planning.request import USUAL_GLOBAL_BATCH, USUAL_SEQ_LEN, PlanRequest

if TYPE_CHECKING:
    from autotuner.door import Autotuner
    from autotuner.remote import Remote
    from autotuner.search.planning.plan import PlanView

NOTHING_FITS = 7
"""Exit code where no layout fits in memory."""


@flags(PredictionRequest)
def predict(request: PredictionRequest, output: Output = "text", server: Server = None) -> None:
    r"""Predict the speed and memory of every legal layout of a job, and print the best ones.

    It runs nothing on the cluster.
    Exit code 7: no layout fits in memory.

    Example: autotuner predict --model llama-3-8b --cluster h100:8 \
        --global-batch 64 --seq-len 8k
    """
    from autotuner.cli.ask import ask
    from autotuner.cli.console import show
    from autotuner.report.prediction import predictions_report

    found = ask(request, server, lambda door: door.predict(request), lambda remote: remote.predict(request))
    show(found, partial(predictions_report, request), output=output)
    if not any(one.predicted.fits for one in found.items):
        raise typer.Exit(NOTHING_FITS)


@flags(PhasesRequest)
def phases(request: PhasesRequest, output: Output = "text", server: Server = None) -> None:
    r"""Predict the best layout for each phase of a training run.

    It counts the time to switch layouts, which is a checkpoint and a restart.
    It runs nothing on the cluster.

    Example: autotuner phases --model llama-3-8b --cluster h100:32 \
        --global-batch 512 --seq-len 8k --tokens 1T \
        --phases 'main: 95 % | long: 5 %; seq_len 131072; batch 32'
    """
    from autotuner.cli.ask import ask
    from autotuner.cli.console import show
    from autotuner.report.jobs import phases_report

    found = ask(request, server, lambda door: door.phases(request), lambda remote: remote.plan_job_phases(request))
    show(found, partial(phases_report, request), output=output)


@flags(LayersRequest, unless="sweep")
def layers(
    request: LayersRequest | None,
    sweep: Annotated[
        str | None, typer.Argument(help="Id of a sweep, to use its job and its trials (sw-k3v7q2mxn5).")
    ] = None,
    output: Output = "text",
    server: Server = None,
) -> None:
    r"""Predict how much faster a job becomes with each layer of communication options.

    It searches the options of one layer, then of two, up to all five: strategy,
    task scheduling, collectives, flow scheduling and network.
    With the id of a sweep, it also compares the trials of that sweep.

    Example: autotuner layers --model llama-3-8b --cluster h100:64@fat-tree-4to1 \
        --global-batch 256 --seq-len 4k
    """
    from autotuner.cli.ask import ask
    from autotuner.cli.client import connect
    from autotuner.cli.console import show
    from autotuner.report.jobs import job_named, layers_report
    from autotuner.search.explain.layers import SweepLayers

    if request is not None:
        predicted = ask(
            request, server, lambda door: door.layers(request), lambda remote: remote.report_layers(request)
        )
        found = SweepLayers(predicted=predicted, measured=None)
    else:
        sweep_id = stored_id(sweep or "", "sweep")
        with connect(server) as client:
            found = client.read_layers(sweep_id)
    job = "" if request is None else job_named(request)
    show(found, partial(layers_report, job=job, is_of_sweep=request is None), output=output)


_LOOKING = "looking for clusters to compare"
_COMPARING = "comparing clusters: {} of {} pieces of work are done"
_WAIT_S = 0.5


@flags(PlanRequest, usual={"seq_len": f"{USUAL_SEQ_LEN}", "global_batch": f"{USUAL_GLOBAL_BATCH}"})
def plan(
    request: PlanRequest,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Largest number of clusters to print.")] = 12,
    output: Output = "text",
    server: Server = None,
) -> None:
    r"""Compare clusters for a training run by time, cost and energy, and recommend one.

    It runs nothing on a cluster.
    Without --deadline and --price-limit, it compares clusters by time x cost.

    Example: autotuner plan --model llama-3-70b --tokens 2T --deadline 60d \
        --seq-len 8k
    """
    from autotuner.cli.ask import ask
    from autotuner.cli.console import show, status
    from autotuner.report.plan import plan_report

    with status(_LOOKING) as say:
        found = ask(request, server, partial(_planned, request, say), partial(_planned_there, request, say))
    show(found, partial(plan_report, limit=limit), output=output)


def _planned(request: PlanRequest, say: Callable[[str], None], door: Autotuner) -> PlanView:
    from autotuner.search.planning.plan import PlanView

    return PlanView.of(door.plan(request, lambda done, known: say(_COMPARING.format(done, known))))


def _planned_there(request: PlanRequest, say: Callable[[str], None], remote: Remote) -> PlanView:
    """The plan of a service, once it is computed."""
    found = remote.create_plan(request)
    while found.answer is None:
        say(_COMPARING.format(found.num_done, found.num_known))
        found = remote.read_plan(found.id, wait_s=_WAIT_S)
    return found
