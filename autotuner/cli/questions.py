"""Questions: ``autotuner predict``, ``explain``, ``layers``, ``phases``, ``plan``, ``rules`` and ``dry-run``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from autotuner.cli.console import open_service, progress, show, tell
from autotuner.cli.flags import Json, OptionalTrialId, Output, Server, flags, stored_id
from autotuner.cli.folder import SaveDir, save_of_job
from autotuner.connections import ask, door_for, planned
from autotuner.core import documents
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.requests import ExplanationRequest, LayersRequest, PhasesRequest, PredictionRequest, RanksRequest
from autotuner.search.planning.request import USUAL_GLOBAL_BATCH, USUAL_SEQ_LEN, PlanRequest

if TYPE_CHECKING:
    from autotuner.core.dry_run import DryRunRequest
    from autotuner.core.layout import Layout
    from autotuner.search.results.pairs import MeasuredRules

NOTHING_FITS = 7
"""Exit code if no layout fits in memory."""


@flags(PredictionRequest)
def predict(
    request: PredictionRequest, save_dir: SaveDir = None, output: Output = "text", server: Server = None
) -> None:
    r"""Predict the speed and memory of every legal layout of a job, and print the best ones.

    It runs nothing on the cluster.
    Exit code 7: no layout fits in memory.

    Example: autotuner predict --model llama-3-8b --cluster h100:8 \
        --global-batch-size 64 --seq-len 8k
    """
    from autotuner.report.prediction import predictions_report

    with progress("predicting layouts"):
        found = ask(request, server, lambda door: door.predict(request), lambda remote: remote.predict(request))
    show(found, partial(predictions_report, request), output=output)
    if save_dir is not None and found.items:
        save_of_job(
            save_dir,
            request,
            found.items[0].layout,
            stack=request.stack,
            format=request.format,
            layouts=found.items,
            server=server,
        )
    if not any(one.prediction.fits for one in found.items):
        raise typer.Exit(NOTHING_FITS)


@flags(ExplanationRequest, unless="trial")
def explain(
    request: ExplanationRequest | None, trial: OptionalTrialId = None, output: Output = "text", server: Server = None
) -> None:
    r"""Explain how a layout uses time and memory, what limits it, and which change would help.

    For a trial that ran, the measurement comes first.
    On several nodes, it also compares ways to exchange gradients.

    Example: autotuner explain --model llama-3-8b --cluster h100:8 --seq-len 8k \
        --global-batch-size 64 --layout 'fsdp8 mb1 recompute-selective'
    """
    from autotuner.report.explanation import explanation_report

    if request is None:
        with open_service(server) as client:
            found, curve = client.explain_trial(trial or ""), client.read_bandwidth_curve(trial or "")
            ran = client.read_trial(trial or "").measurement
    else:
        with progress("explaining the layout"):
            found, curve = ask(
                request,
                server,
                lambda door: (door.explain(request), door.bandwidth_curve(request)),
                lambda remote: (remote.explain_layout(request), remote.draw_bandwidth_curve(request)),
            )
        ran = None
    answer = documents.write(found) | {"bandwidth": documents.write(curve)}
    show(answer, lambda _: explanation_report(found, curve, ran=ran), output=output)


@flags(PhasesRequest)
def phases(request: PhasesRequest, output: Output = "text", server: Server = None) -> None:
    r"""Predict the best layout for each phase of a training run.

    It counts the time to switch layouts, which is a checkpoint and a restart.
    It runs nothing on the cluster.

    Example: autotuner phases --model llama-3-8b --cluster h100:32 \
        --global-batch-size 512 --seq-len 8k --tokens 1T \
        --phases 'main: 95 % | long: 5 %; seq_len 131072; batch 32'
    """
    from autotuner.report.jobs import phases_report

    with progress("predicting layouts for each phase"):
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
        --global-batch-size 256 --seq-len 4k
    """
    from autotuner.report.jobs import job_named, layers_report
    from autotuner.search.explain.layers import SweepLayers

    if request is not None:
        with progress("predicting layouts for each layer"):
            predicted = ask(
                request, server, lambda door: door.layers(request), lambda remote: remote.report_layers(request)
            )
        found = SweepLayers(predicted=predicted, measured=None)
    else:
        sweep_id = stored_id(sweep or "", "sweep")
        with open_service(server) as client:
            found = client.read_layers(sweep_id)
    job = "" if request is None else job_named(request)
    show(found, partial(layers_report, job=job, is_of_sweep=request is None), output=output)


@flags(PlanRequest, usual={"seq_len": f"{USUAL_SEQ_LEN}", "global_batch_size": f"{USUAL_GLOBAL_BATCH}"})
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
    from autotuner.report.plan import plan_report

    with progress("comparing clusters") as bar:
        found = ask(
            request,
            server,
            lambda door: door.plan(request, bar.count),
            lambda remote: planned(remote, request, bar.count),
        )
    show(found, partial(plan_report, limit=limit), output=output)


# ---------------------------------------------------------------- rules
def rules(
    source: Annotated[str, typer.Argument(help="Id of a sweep, or a CSV file of measured runs.")],
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Show how much each single option changed the measured speed.

    It compares pairs of measured layouts that differ in nothing else.

    Example: autotuner rules sw-k3v7q2mxn5
    """
    from autotuner.report.explanation import rules_report

    if source.endswith(".csv"):
        return show(_rules_of_table(source), rules_report, as_json=as_json)
    stored_id(source, "sweep", otherwise=", or a CSV file of measured runs")
    return tell(server, lambda client: client.read_rules(source), rules_report, as_json=as_json)


def _rules_of_table(path: str) -> MeasuredRules:
    """Return the measured rules for the rows of a table, as the service does for a sweep."""
    from pathlib import Path

    from autotuner.backtests.measured_table import read_table
    from autotuner.search.results.pairs import MeasuredRules, pair_effects

    sheets = read_table(Path(path)).sheets
    found = pair_effects((sheet.layouts, sheet.step_time_s) for sheet in sheets)
    num_measured = sum(int((~sheet.out_of_memory).sum()) for sheet in sheets)
    return MeasuredRules(num_measured=num_measured, items=found)


# ---------------------------------------------------------------- dry-run
@flags(RanksRequest)
def dry_run(request: RanksRequest, output: Output = "text") -> None:
    r"""Count the memory, FLOP and collectives of a rank at full size, without a GPU.

    It runs the training step of a trial on tensors without values.

    Example: autotuner dry-run --model llama-3-70b --cluster h100:64 \
        --global-batch-size 16 --seq-len 8k --layout 'fsdp2 tp8 pp4 1f1b mb1 sp'
    """
    from autotuner.core.model import ModelSize
    from autotuner.core.named import resolved
    from autotuner.launch.this_machine import dry_run as run
    from autotuner.report.machine import dry_run_report
    from autotuner.report.words import cluster_in_words, job_in_words

    with door_for(request) as door:
        asked = door.resolve(request, is_measured=False)
    job = Job(model=resolved(asked.model), cluster=resolved(asked.cluster), workload=asked.workload)
    wanted = dry_run_of(job, asked.layout, asked.rank, exact=asked.exact)
    with progress("starting torch") as bar:
        answer = run(wanted, bar.say)
    size, batch = ModelSize.of(job.model), job.workload.global_batch_size
    where = cluster_in_words(request.cluster)
    title = job_in_words(size, cluster=where, global_batch=batch, seq_len=job.workload.seq_len)
    show(answer, lambda found: dry_run_report(found, f"{title}: {asked.layout}"), output=output)


def dry_run_of(job: Job, layout: Layout, rank: int | None = None, *, exact: bool = False) -> DryRunRequest:
    """Return the request for a dry run of a layout (a training step on tensors without values).

    Args:
        job: The model, the cluster and the workload.
        layout: The layout.
        rank: The rank to run; None: the ranks that decide the peak of memory.
        exact: Run every layer and micro-batch. Otherwise fewer run, and the rest is extrapolated.

    Raises:
        InvalidInput: Trials cannot run the layout, or it has no such rank.
    """
    from autotuner.core.dry_run import DryRunRequest, telling_ranks
    from autotuner.core.rules.legality import RULES, require_legal
    from autotuner.core.rules.trial_job import TRIAL_RULES
    from autotuner.core.trial_spec import TrialSettings, TrialSpec

    require_legal(layout, job, (*RULES, *TRIAL_RULES))
    if rank is not None and rank >= layout.world_size:
        raise InvalidInput(
            "--rank", rank, f"must be a rank of the layout, below {layout.world_size}", layout.world_size - 1
        )
    spec = TrialSpec(
        trial_id="dry-run",
        model=job.model,
        workload=job.workload,
        layout=layout,
        device="cpu" if job.cluster.accelerator.kind == "cpu" else "cuda",
        settings=TrialSettings.default_for(layout),
    )
    return DryRunRequest(spec=spec, ranks=telling_ranks(layout) if rank is None else (rank,), exact=exact)
