"""``autotuner gate`` and ``baselines``: whether a change may be merged, by what it does to MFU and memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotuner.cli.options import (
    SELDOM,
    ClusterArgument,
    GlobalBatch,
    Json,
    Model,
    SeqLen,
    Server,
    Space,
    StackName,
    TrainerName,
    TrialOption,
)
from autotuner.core.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autotuner.core.upkeep import Baseline
    from autotuner.remote import Remote
    from autotuner.report.ci import GateCase
    from autotuner.search.upkeep.gate_prediction import PredictedGate

_PREDICT = "Without a cluster"
_TEST = "Statistical test"
_STOP = "When to stop"
_FILES = "Files for CI"


def gate(
    model: Model,
    cluster: ClusterArgument,
    global_batch: GlobalBatch,
    seq_len: SeqLen,
    layout: Annotated[
        str | None,
        typer.Option(
            "--layout",
            help="Layout of the change: words ('fsdp8 tp4 mb1 sp'), JSON, or a trainer's configuration file. "
            "Default: the best layout that a sweep finds.",
        ),
    ] = None,
    baseline: Annotated[
        str, typer.Option("--baseline", help="Name of the baseline to compare with, such as a branch.")
    ] = "main",
    set_baseline: Annotated[
        bool, typer.Option("--set-baseline", help="Store the measurement as the baseline, unless the gate fails.")
    ] = False,
    software: Annotated[
        str,
        typer.Option("--software", help="Version under test, such as a commit. A new version is measured again."),
    ] = "",
    predict: Annotated[
        bool,
        typer.Option(
            "--predict",
            help="Predict instead of measuring, and count memory with a dry run.",
            rich_help_panel=_PREDICT,
        ),
    ] = False,
    against: Annotated[
        str | None,
        typer.Option("--against", help="Layout to compare with, written as for --layout.", rich_help_panel=_PREDICT),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run/--no-dry-run", help="Count memory with torch.", rich_help_panel=_PREDICT)
    ] = True,
    tolerance: Annotated[
        float, typer.Option("--tolerance", help="Slowdown to accept, as a fraction.", rich_help_panel=_TEST)
    ] = 0.02,
    loss: Annotated[
        float,
        typer.Option("--loss", help="Slowdown that the test must detect, as a fraction.", rich_help_panel=_TEST),
    ] = 0.05,
    min_runs: Annotated[
        int, typer.Option("--min-runs", min=1, help="Smallest number of runs of the change.", rich_help_panel=_TEST)
    ] = 3,
    max_runs: Annotated[
        int,
        typer.Option(
            "--max-runs",
            min=1,
            help="Largest number of runs. Without a result by then, the gate is undecided.",
            rich_help_panel=_TEST,
        ),
    ] = 40,
    trials: Annotated[
        int,
        typer.Option(
            "--trials", min=1, help="Largest number of layouts to try without --layout.", rich_help_panel=_STOP
        ),
    ] = 20,
    minutes: Annotated[
        float | None, typer.Option("--minutes", help="Wall-clock minutes for trials.", rich_help_panel=_STOP)
    ] = None,
    accelerator_hours: Annotated[
        float | None,
        typer.Option("--accelerator-hours", help="Accelerator-hours for trials.", rich_help_panel=_STOP),
    ] = None,
    junit: Annotated[
        Path | None, typer.Option("--junit", help="JUnit XML file to write.", rich_help_panel=_FILES)
    ] = None,
    summary: Annotated[
        Path | None, typer.Option("--summary", help="Markdown file to write.", rich_help_panel=_FILES)
    ] = None,
    badge: Annotated[Path | None, typer.Option("--badge", help="SVG badge to write.", rich_help_panel=_FILES)] = None,
    reuse: Annotated[
        bool,
        typer.Option(
            "--reuse/--no-reuse",
            help="Use the runs of an earlier gate with the same layout and software.",
            rich_help_panel=SELDOM,
        ),
    ] = True,
    trainer: TrainerName = None,
    trial: TrialOption = None,
    space: Space = None,
    stack: StackName = "torch",
    server: Server = None,
    as_json: Json = False,
) -> None:
    r"""Check whether a change makes training slower than the stored baseline.

    It repeats runs until it can tell a slowdown from noise.
    Exit codes: 0 passed, 6 could not run or was cancelled, 8 failed, 9 undecided,
    10 no baseline is stored.

    Example: autotuner gate --model llama-demo --cluster local \
        --global-batch 16 --seq-len 128 --layout 'dp2 mb1 fp32' --set-baseline
    """
    import time

    from autotuner.cli.console import show
    from autotuner.cli.gates import run_gate
    from autotuner.cli.inputs import job_body, read_space, read_trial_settings
    from autotuner.cli.reports import exit_code_of, write_reports
    from autotuner.core.upkeep import MfuGate
    from autotuner.report.ci import measured_case

    answer: MfuGate | PredictedGate
    if predict:
        answer, case = _predicted(
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
        answer, address = run_gate(server, body, cluster=cluster, layout=layout, quiet=as_json)
        case = measured_case(answer, now=time.time(), server=address)
    write_reports(case, junit=junit, summary=summary, badge=badge)
    show(answer, lambda _: case.report, as_json=as_json)
    raise typer.Exit(exit_code_of(case))


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
) -> tuple[PredictedGate, GateCase]:
    from autotuner.cli.gates import predicted_job, run_predicted_gate
    from autotuner.cli.said_layout import said_layout
    from autotuner.report.ci import predicted_case

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
    return found, predicted_case(found, job)


def baselines(
    remove: Annotated[
        str | None,
        typer.Option(
            "--remove", help="Remove the baselines of this name. The next gate with --set-baseline starts a new one."
        ),
    ] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """List the baselines that the gate compares with, or remove one to accept a slowdown.

    Example: autotuner baselines
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import show
    from autotuner.core.listed import Listed
    from autotuner.report.gate import baselines_report

    with connect(server) as service:
        found = service.list_baselines()
        if remove is not None:
            found = Listed.whole(_removed(service, found.items, remove))
    show(found, lambda one: baselines_report(one.items, is_removed=remove is not None), as_json=as_json)


def _removed(service: Remote, baselines: Sequence[Baseline], name: str) -> list[Baseline]:
    from difflib import get_close_matches

    from autotuner.core.errors import NotFound

    names = [one.name for one in baselines]
    if name not in names:
        raise NotFound("baseline", name, next(iter(get_close_matches(name, names, 1, cutoff=0.0)), None))
    return [service.remove_baseline(name, one.key) for one in baselines if one.name == name]
