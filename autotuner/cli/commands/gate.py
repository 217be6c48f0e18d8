"""``autotuner gate`` and ``baselines``: whether a change may be merged, by what it does to MFU and memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotuner.cli.options import (
    ClusterArgument,
    GlobalBatch,
    Json,
    Model,
    SeqLen,
    Server,
    Space,
    StackName,
    TrialOption,
)
from autotuner.errors import InvalidInput

if TYPE_CHECKING:
    from autotuner.search.upkeep.gates.reports.report import GateReport

__all__ = ["baselines", "gate"]

_STRICT = "How strictly"
_STOP = "When to stop"
_FILES = "Files for CI"
_PREDICT = "Without a cluster"


def gate(
    model: Model,
    cluster: ClusterArgument,
    global_batch: GlobalBatch,
    seq_len: SeqLen,
    layout: Annotated[
        str | None,
        typer.Option(
            "--layout",
            help="What the change trains with: words ('fsdp8 tp4 mb1 sp'), JSON, or a trainer's configuration file; "
            "left out: the best that a sweep finds.",
        ),
    ] = None,
    baseline: Annotated[str, typer.Option("--baseline", help="Name of what it is held to, such as a branch.")] = "main",
    set_baseline: Annotated[
        bool, typer.Option("--set-baseline", help="What is measured becomes the baseline, unless the gate fails.")
    ] = False,
    software: Annotated[
        str, typer.Option("--software", help="What is under test, such as a commit: another is measured anew.")
    ] = "",
    reuse: Annotated[
        bool, typer.Option("--reuse/--no-reuse", help="Take the runs of an earlier gate of the same content.")
    ] = True,
    tolerance: Annotated[
        float, typer.Option("--tolerance", help="Loss that is accepted, as a fraction.", rich_help_panel=_STRICT)
    ] = 0.02,
    loss: Annotated[
        float, typer.Option("--loss", help="Loss that must be found, as a fraction.", rich_help_panel=_STRICT)
    ] = 0.05,
    min_runs: Annotated[
        int, typer.Option("--min-runs", min=1, help="Fewest runs of the change.", rich_help_panel=_STRICT)
    ] = 3,
    max_runs: Annotated[
        int, typer.Option("--max-runs", min=1, help="Most of them; undecided by then is told.", rich_help_panel=_STRICT)
    ] = 40,
    trials: Annotated[
        int, typer.Option("--trials", min=1, help="Most layouts, without --layout.", rich_help_panel=_STOP)
    ] = 20,
    minutes: Annotated[
        float | None, typer.Option("--minutes", help="Most wall-clock minutes of trials.", rich_help_panel=_STOP)
    ] = None,
    accelerator_hours: Annotated[
        float | None, typer.Option("--accelerator-hours", help="Most of these.", rich_help_panel=_STOP)
    ] = None,
    trainer: Annotated[
        str | None, typer.Option("--trainer", help="What runs as a trial: a name that `autotuner trainers` lists.")
    ] = None,
    trial: TrialOption = None,
    space: Space = None,
    predict: Annotated[
        bool,
        typer.Option(
            "--predict", help="Measure nothing: predict, and count memory in a dry run.", rich_help_panel=_PREDICT
        ),
    ] = False,
    against: Annotated[
        str | None,
        typer.Option(
            "--against", help="The baseline's layout, written as --layout; with --predict.", rich_help_panel=_PREDICT
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run/--no-dry-run", help="Count memory with torch.", rich_help_panel=_PREDICT)
    ] = True,
    stack: StackName = "torch",
    junit: Annotated[
        Path | None, typer.Option("--junit", help="File to write JUnit XML to.", rich_help_panel=_FILES)
    ] = None,
    summary: Annotated[
        Path | None, typer.Option("--summary", help="File to write Markdown to.", rich_help_panel=_FILES)
    ] = None,
    badge: Annotated[
        Path | None, typer.Option("--badge", help="File to write a badge to, as SVG.", rich_help_panel=_FILES)
    ] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Gate a change: measure its MFU beside the stored baseline until loss is told from noise, and wait for it.

    Exit codes: 0 passed, 6 could not run or was cancelled, 8 failed, 9 undecided, 10 there is no baseline yet.
    """
    from autotuner.cli.console import print_json
    from autotuner.cli.gate_measured import run_gate
    from autotuner.cli.inputs import job_body, read_space, read_trial_settings
    from autotuner.cli.reports import exit_code_of, write_reports
    from autotuner.domain.wire import from_dict
    from autotuner.search.upkeep.gates.reports.report import GateReport

    if predict:
        answer = _predicted(
            model, cluster, global_batch, seq_len, stack, layout, against, tolerance=tolerance, counts_memory=dry_run
        )
    elif against is not None:
        raise InvalidInput("--against", against, "goes with --predict; what is measured is held to --baseline")
    else:
        body = {
            **job_body(model, cluster, global_batch, seq_len),
            "space": read_space(space),
            "trial": read_trial_settings(trial),
            "trainer": trainer,
            "budget": {
                "num_trials": trials,
                "wall_clock_s": None if minutes is None else minutes * 60,
                "accelerator_hours": accelerator_hours,
            },
            "baseline": baseline,
            "sets_baseline": set_baseline,
            "software": software,
            "reuses": reuse,
            "test": {"tolerance": tolerance, "loss": loss, "min_runs": min_runs, "max_runs": max_runs},
        }
        answer = run_gate(server, body, cluster=cluster, layout=layout, quiet=as_json)
    report = from_dict(GateReport, answer["report"])
    write_reports(report, junit=junit, summary=summary, badge=badge)
    if as_json:
        print_json(answer)
    else:
        _print(report)
    raise typer.Exit(exit_code_of(report))


def _predicted(
    model: str,
    cluster: str,
    global_batch: int,
    seq_len: int,
    stack: str,
    layout: str | None,
    against: str | None,
    *,
    tolerance: float,
    counts_memory: bool,
) -> dict[str, Any]:
    from autotuner.cli.gate_predicted import predicted_job, run_predicted_gate
    from autotuner.cli.said_layout import said_layout
    from autotuner.domain.wire import to_dict

    if layout is None:
        raise InvalidInput("--layout", None, "must be given with --predict: there is nothing to search without trials")
    job = predicted_job(model, cluster, global_batch, seq_len, stack)
    num_ranks = job.cluster.world_size
    found = run_predicted_gate(
        job,
        said_layout(layout, num_ranks),
        None if against is None else said_layout(against, num_ranks).layout,
        tolerance=tolerance,
        counts_memory=counts_memory,
    )
    return {**to_dict(found), "is_passed": found.is_passed, "report": to_dict(found.report(job))}


def _print(report: GateReport) -> None:
    from autotuner.cli.console import console
    from autotuner.cli.views.gate import gate_view

    console().print(gate_view(report))


def baselines(
    remove: Annotated[
        str | None,
        typer.Option("--remove", help="Forget those of this name: the next gate that sets one begins anew."),
    ] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """List what changes are held to, or accept a slower state by forgetting a baseline."""
    from autotuner.cli.client import connect
    from autotuner.cli.console import console, print_json
    from autotuner.cli.views.gate import baselines_view

    with connect(server) as client:
        items = client.get("/baselines")["items"]
        if remove is not None:
            items = _removed(client, items, remove)
    if as_json:
        print_json({"items": items})
    else:
        console().print(baselines_view(items, is_removed=remove is not None))


def _removed(client: Any, items: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    from difflib import get_close_matches

    from autotuner.errors import NotFound

    names = [item["name"] for item in items]
    if name not in names:
        raise NotFound("baseline", name, next(iter(get_close_matches(name, names, 1, cutoff=0.0)), None))
    return [client.delete(f"/baselines/{name}/{item['key']}") for item in items if item["name"] == name]
