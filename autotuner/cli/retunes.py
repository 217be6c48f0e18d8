"""``autotuner retune``: sweeps that a schedule repeats to look for a better layout than the present one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from autotuner.cli.console import notes, open_service, progress, show, tell
from autotuner.cli.flags import Json, Server, flags
from autotuner.core.sweep_requests import Adoption, RetuneCreate
from autotuner.core.upkeep import RetuneRun

if TYPE_CHECKING:
    from collections.abc import Callable

    from autotuner.core.upkeep import Retune
    from autotuner.remote import Remote
    from autotuner.report.report import Report

retune = typer.Typer(
    no_args_is_help=True,
    help="Measure the layout in use on a schedule, and search for a better one.",
)

_COULD_NOT_RUN, _REGRESSION = 6, 8

_Name = Annotated[str, typer.Argument(help="Name of the retune.")]


@retune.command("add")
@flags(RetuneCreate, arguments=("retune",))
def add(request: RetuneCreate, server: Server = None, as_json: Json = False) -> None:
    r"""Schedule runs that measure the layout in use and search for a better one.

    A service or `autotuner worker` starts each run when it is due.

    Example: autotuner retune add nightly --cron '0 2 * * *' --model llama-3-8b \
        --cluster h100:64 --global-batch-size 512 --seq-len 8k
    """
    _print_retune(lambda service: service.create_retune(request), server, as_json=as_json)


@retune.command("list")
def list_(server: Server = None, as_json: Json = False) -> None:
    """List the retunes, with the layout in use, the next run and the last outcome.

    A retune measures a job's layout on a schedule and searches for a better one.

    Example: autotuner retune list
    """
    from autotuner.report.retune import retunes_report

    tell(server, lambda service: service.list_retunes(), lambda found: retunes_report(found.items), as_json=as_json)


@retune.command("show")
def show_(name: _Name, server: Server = None, as_json: Json = False) -> None:
    """Print the schedule, the layout in use, the baseline and the last outcome of a retune.

    A retune measures a job's layout on a schedule and searches for a better one.

    Example: autotuner retune show nightly
    """
    _print_retune(lambda service: service.read_retune(name), server, as_json=as_json)


@retune.command("history")
def history(
    name: _Name,
    limit: Annotated[int, typer.Option("--limit", min=1, max=500, help="Largest number of runs to print.")] = 30,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Print the runs of a retune, newest first.

    A retune measures a job's layout on a schedule and searches for a better one.
    It shows the speed of the layout in use, and the range that noise explains.

    Example: autotuner retune history nightly
    """
    from autotuner.report.retune import retune_report

    with open_service(server) as service:
        retune, runs = service.read_retune(name), service.list_runs(RetuneRun, subject=name, limit=limit)
        answer = {"runs": runs, "trend": service.read_retune_trend(name)}
    show(answer, lambda _: retune_report(retune, runs.items, runs.total), as_json=as_json)


@retune.command("run")
def run(
    name: _Name,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the outcome of the run.")] = True,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Start a run of a retune now.

    The schedule stays as it is.
    Exit codes: 6 the run could not take place, 8 the layout in use is slower.

    Example: autotuner retune run nightly
    """
    from autotuner.cli.follow import follow
    from autotuner.report.retune import run_report

    with open_service(server, num_workers=1 if wait else 0) as service:
        with progress("starting the run"):
            begun = service.run_retune(name)
        if wait and begun.child_id:
            follow(service, begun.child_id, notes(quiet=as_json))
            begun = _concluded(service, begun.id)
        time_zone = service.read_retune(name).request.time_zone
    show(begun, lambda run: run_report(run, time_zone), as_json=as_json)
    if begun.result and begun.result.verdict in ("regression", "could_not_run"):
        raise typer.Exit(_REGRESSION if begun.result.verdict == "regression" else _COULD_NOT_RUN)


@retune.command("pause")
def pause(name: _Name, server: Server = None, as_json: Json = False) -> None:
    """Stop the scheduled runs of a retune until it is resumed.

    Example: autotuner retune pause nightly
    """
    _print_retune(lambda service: service.pause_retune(name), server, as_json=as_json)


@retune.command("resume")
def resume(name: _Name, server: Server = None, as_json: Json = False) -> None:
    """Start the scheduled runs of a paused retune again.

    It does not repeat the runs that it missed.

    Example: autotuner retune resume nightly
    """
    _print_retune(lambda service: service.resume_retune(name), server, as_json=as_json)


@retune.command("adopt")
@flags(Adoption)
def adopt(request: Adoption, name: _Name, server: Server = None, as_json: Json = False) -> None:
    """Put the better layout of the last run into use, or the layout after --layout.

    If you name the layout already in use, the next run sets a new baseline.
    This accepts a slowdown.

    Example: autotuner retune adopt nightly
    """
    _print_retune(lambda service: service.adopt_layout(name, request), server, as_json=as_json)


@retune.command("remove")
def remove(name: _Name, server: Server = None, as_json: Json = False) -> None:
    """Remove a retune and its runs, and keep their sweeps.

    Its schedule starts no more runs.

    Example: autotuner retune remove nightly
    """
    from autotuner.report.report import Report

    gone = Report(headline=f"{name} is removed, with its runs; their sweeps stay.", sections=())
    _print_retune(lambda service: service.remove_retune(name), server, lambda _: gone, as_json=as_json)


def _print_retune(
    ask: Callable[[Remote], Retune],
    server: str | None,
    report_of: Callable[[Retune], Report] | None = None,
    *,
    as_json: bool,
) -> None:
    """Call the service for a retuning, and print the answer."""
    from autotuner.report.retune import retune_report

    tell(server, ask, report_of or retune_report, as_json=as_json)


def _concluded(service: Remote, run_id: str) -> RetuneRun:
    """Wait until the run of a retuning has its result, and return it.

    The result comes a few seconds after the end of its sweep.
    """
    while (run := service.read_run(RetuneRun, run_id)).result is None:
        time.sleep(0.2)
    return run
