"""``autotuner gate``: whether a change may be merged, by what it does to MFU and memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotuner.cli.options import ClusterArgument, GlobalBatch, Json, Model, SeqLen, StackName
from autotuner.errors import InvalidInput

if TYPE_CHECKING:
    from autotuner.search.upkeep.gate_reports.report import GateReport

__all__ = ["gate"]

_STRICT = "How strictly"
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
    tolerance: Annotated[
        float, typer.Option("--tolerance", help="Loss that is accepted, as a fraction.", rich_help_panel=_STRICT)
    ] = 0.02,
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
    as_json: Json = False,
) -> None:
    """Gate a change: whether its layout can run, fits in memory, and is predicted to be no slower than the baseline's.

    Exit codes: 0 passed, 8 failed, 9 undecided.
    """
    from autotuner.cli.console import print_json
    from autotuner.cli.gate_predicted import predicted_job, run_predicted_gate
    from autotuner.cli.reports import exit_code_of
    from autotuner.cli.said_layout import said_layout
    from autotuner.domain.wire import to_dict

    if not predict:
        raise InvalidInput("--predict", False, "must be given", "--predict")
    if layout is None:
        raise InvalidInput("--layout", None, "must be given with --predict: there is nothing to search without trials")
    job = predicted_job(model, cluster, global_batch, seq_len, stack)
    num_ranks = job.cluster.world_size
    found = run_predicted_gate(
        job,
        said_layout(layout, num_ranks),
        None if against is None else said_layout(against, num_ranks).layout,
        tolerance=tolerance,
        counts_memory=dry_run,
    )
    report = found.report(job)
    _write(report, junit=junit, summary=summary, badge=badge)
    if as_json:
        print_json({**to_dict(found), "is_passed": found.is_passed})
    else:
        _print(report)
    raise typer.Exit(exit_code_of(found.outcome, is_passed=found.is_passed))


def _print(report: GateReport) -> None:
    from autotuner.cli.console import console
    from autotuner.cli.views.gate import gate_view

    console().print(gate_view(report))


def _write(report: GateReport, *, junit: Path | None, summary: Path | None, badge: Path | None) -> None:
    from autotuner.cli.reports import write_file
    from autotuner.search.upkeep.gate_reports.badge import badge_svg
    from autotuner.search.upkeep.gate_reports.junit import junit_xml
    from autotuner.search.upkeep.gate_reports.markdown import markdown

    write_file("--junit", junit, junit_xml(report))
    write_file("--summary", summary, markdown(report))
    write_file("--badge", badge, badge_svg(report))
