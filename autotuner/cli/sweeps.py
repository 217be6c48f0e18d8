"""``autotuner sweep`` and its follow-up commands: ``list``, ``show``, ``comment``, ``study``, ``pause`` and others."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotuner.cli.console import console, notes, open_service, print_error, print_json, progress, tell
from autotuner.cli.files import write_text
from autotuner.cli.flags import Json, Server, SweepId, TrialId, Wait, flags, stored_id
from autotuner.cli.folder import SaveDir, save_of_trial
from autotuner.connections import whole
from autotuner.core import documents
from autotuner.core.comment import CommentCreate
from autotuner.core.errors import AutotunerError, InvalidInput
from autotuner.core.listed import Listed
from autotuner.core.run import Run, RunState
from autotuner.core.signals import terminable
from autotuner.core.sweep_requests import BudgetChange, SweepClone, SweepCreate
from autotuner.trackers import Target, Tracker

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from autotuner.core.comment import Comment
    from autotuner.core.sweep import SweepStanding
    from autotuner.core.trial import Trial
    from autotuner.remote import Remote
    from autotuner.report.report import Report
    from autotuner.search.results.sweep_answer import SweepAnswer
    from autotuner.search.results.sweep_front import SweepFront

_NOTHING_MEASURED = 6

_TARGETS = "mlflow:URI or wandb:PROJECT"


@flags(SweepCreate, also={"cluster": "--for"})
def sweep(
    request: SweepCreate,
    wait: Wait = True,
    fault_steps: Annotated[
        int | None,
        typer.Option(
            "--fault-steps",
            min=1,
            help="Steps of the trace. Default: twice the steps up to its last fault.",
            rich_help_panel="Injected link faults",
        ),
    ] = None,
    track: Annotated[
        list[str] | None,
        typer.Option(
            "--track", help=f"Tracker that gets each trial as a run: {_TARGETS}. May be repeated.", metavar="TARGET"
        ),
    ] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    r"""Find the best layout of a job by running trials of the most promising layouts.

    With --on SMALL --for LARGE, trials on SMALL estimate the layouts of LARGE.
    Exit code 6: no layout was measured.

    Example: autotuner sweep --model llama-demo --cluster local \
        --global-batch-size 16 --seq-len 128 --trials 8
    """
    if fault_steps is not None:
        if request.fault_trace is None:
            raise InvalidInput(
                "--fault-steps",
                fault_steps,
                "can be used only together with --fault-trace, because it is the length of that trace",
            )
        request = replace(request, fault_trace=replace(request.fault_trace, num_steps=fault_steps))
    targets = [Target.read(text, "--track") for text in track or ()]
    if targets and not wait:
        rule = "cannot be used together with --no-wait; start `autotuner track` for the queued sweep instead"
        raise InvalidInput("--track", str(targets[0]), rule)
    with progress("loading the trackers"):
        trackers = [target.open() for target in targets]
    _start(lambda client: client.create_sweep(request), wait=wait, server=server, as_json=as_json, trackers=trackers)


@flags(SweepClone)
def clone(
    request: SweepClone, sweep_id: SweepId, wait: Wait = True, server: Server = None, as_json: Json = False
) -> None:
    """Start a new sweep with the settings of another one, except for the options that you give.

    Example: autotuner clone sw-k3v7q2mxn5 --trials 40 --name longer
    """
    _start(lambda client: client.clone_sweep(sweep_id, request), wait=wait, server=server, as_json=as_json)


@flags(BudgetChange)
def extend(
    request: BudgetChange, sweep_id: SweepId, wait: Wait = True, server: Server = None, as_json: Json = False
) -> None:
    """Change the limits of a sweep, so that it can run more trials.

    The limits are totals, and include what the sweep has already used.
    A finished sweep continues where it ended.

    Example: autotuner extend sw-k3v7q2mxn5 --trials 40
    """
    _go_on(sweep_id, lambda client: client.change_budget(sweep_id, request), wait=wait, server=server, as_json=as_json)


def resume(sweep_id: SweepId, wait: Wait = True, server: Server = None, as_json: Json = False) -> None:
    """Continue a paused sweep.

    The time of the pause does not count towards its limits.

    Example: autotuner resume sw-k3v7q2mxn5
    """
    _go_on(sweep_id, lambda client: _resumed(client, sweep_id), wait=wait, server=server, as_json=as_json)


def _resumed(client: Remote, sweep_id: str) -> SweepStanding:
    client.resume_run(Run, sweep_id)
    return client.read_sweep(sweep_id)


def rerun(trial_id: TrialId, wait: Wait = True, server: Server = None, as_json: Json = False) -> None:
    """Run a trial again, to see how much repeated runs differ.

    A finished sweep is opened again for this run only.

    Example: autotuner rerun sw-k3v7q2mxn5-0003
    """
    sweep_id = trial_id.rpartition("-")[0]
    _go_on(sweep_id, lambda client: client.rerun_trial(trial_id), wait=wait, server=server, as_json=as_json)


def pause(sweep_id: SweepId, server: Server = None, as_json: Json = False) -> None:
    """Stop work on a sweep until it is resumed.

    A running trial is stopped, and starts again from its beginning later.

    Example: autotuner pause sw-k3v7q2mxn5
    """
    with open_service(server) as client:
        found = client.pause_run(Run, sweep_id)
    said = "is paused" if found.state is RunState.PAUSED else "pauses as soon as its trial has stopped"
    _say(found, f"{said}; `autotuner resume {found.id}` continues it", as_json=as_json)


def cancel(sweep_id: SweepId, server: Server = None, as_json: Json = False) -> None:
    """End a sweep, and keep its measurements.

    Example: autotuner cancel sw-k3v7q2mxn5
    """
    with open_service(server) as client:
        found = client.cancel_run(Run, sweep_id)
    _say(found, f"is {found.state}" + (", ending" if found.state is RunState.RUNNING else ""), as_json=as_json)


def _say(sweep: SweepStanding | Run, said: str, *, as_json: bool) -> None:
    if as_json:
        print_json(documents.write(sweep))
    else:
        console().print(f"{sweep.id} {said}")


# ---------------------------------------------------------------- following a sweep
def _start(
    begin: Callable[[Remote], SweepStanding],
    *,
    wait: bool,
    server: str | None,
    as_json: bool,
    trackers: Sequence[Tracker] = (),
) -> None:
    from autotuner.tracking import tracked

    with open_service(server, num_workers=1 if wait else 0) as client:
        with progress("starting the sweep"):
            sweep = begin(client)
        with tracked(client, sweep.id, trackers, _heard(as_json=as_json)):
            _see_through(client, sweep, wait=wait, as_json=as_json)


def _heard(*, as_json: bool) -> Callable[[object], None]:
    """Return a function that prints the result of a tracker as a note, and its errors as errors."""
    said = notes(quiet=as_json)

    def hear(heard: object) -> None:
        if isinstance(heard, AutotunerError):
            print_error(str(heard))
        else:
            said.print(str(heard), highlight=False, soft_wrap=True)

    return hear


def _go_on(
    sweep_id: str, ask: Callable[[Remote], SweepStanding], *, wait: bool, server: str | None, as_json: bool
) -> None:
    """Send a request about a sweep, and follow the sweep from there."""
    with open_service(server, num_workers=1 if wait else 0) as client:
        before = client.events_so_far(sweep_id)
        after = before[-1].sequence if before else 0
        _see_through(client, ask(client), wait=wait, as_json=as_json, after=after)


def _see_through(client: Remote, sweep: SweepStanding, *, wait: bool, as_json: bool, after: int = 0) -> None:
    """Follow a sweep until it ends or pauses, and print the result; without ``wait``, only print that it is queued.

    Args:
        client: Client of the service; it needs a worker if no other process runs the sweep.
        sweep: The sweep as the service shows it.
        wait: True if the sweep is followed.
        as_json: True if only JSON is printed.
        after: Number of the last event that is not printed.
    """
    from autotuner.cli.follow import follow

    if not wait:
        waits = "is queued; a service or `autotuner worker` runs it"
        return _say(sweep, waits if sweep.state is RunState.QUEUED else f"is {sweep.state}", as_json=as_json)
    try:
        with terminable():
            ended = follow(client, sweep.id, notes(quiet=as_json), after=after)
    except KeyboardInterrupt:
        if as_json:  # a program that interrupts the command still gets the sweep's id and state
            _show(client, sweep.id, as_json=True)
        raise
    _show(client, ended.id, as_json=as_json)
    if ended.state is not RunState.PAUSED and ended.best_value is None:
        raise typer.Exit(_NOTHING_MEASURED)
    return None


# ---------------------------------------------------------------- results
def list_(
    words: Annotated[
        str, typer.Argument(help="Words of the sweep's name, id, model, cluster, engine or owner. Default: all sweeps.")
    ] = "",
    state: Annotated[RunState | None, typer.Option("--state", help="List only sweeps in this state.")] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="List only sweeps with this tag on them or a trial.")] = None,
    owner: Annotated[str | None, typer.Option("--owner", help="List only sweeps of this caller.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=500, help="Largest number of sweeps to print.")] = 20,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """List sweeps with their state, best MFU and tags, newest first.

    Example: autotuner list llama --state complete --tag paper
    """
    from autotuner.report.sweep_list import sweeps_report

    tell(
        server,
        lambda client: client.list_sweeps(q=words or None, state=state, tag=tag, owner=owner, limit=limit),
        lambda found: sweeps_report(found.items, found.total, time.time()),
        as_json=as_json,
    )


def show(
    sweep_id: SweepId,
    html: Annotated[
        Path | None, typer.Option("--html", help="File to write the report to: one page that needs no network.")
    ] = None,
    save_dir: SaveDir = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Print the state and the ranking of a sweep.

    It also says why some trials have no rank.

    Example: autotuner show sw-k3v7q2mxn5 --html report.html
    """
    with open_service(server) as client:
        if save_dir is not None:
            _save_best(client, sweep_id, save_dir)
        if html is None:
            return _show(client, sweep_id, as_json=as_json)
        with progress("writing the report"):
            _write_html(client, sweep_id, html)
    return console().print(f"The report of {sweep_id} is in {html}.")


def _show(client: Remote, sweep_id: str, *, as_json: bool) -> None:
    from autotuner.report.terminal import render

    with progress("reading the sweep"):
        found = _Shown.read(client, sweep_id)
    if as_json:
        print_json(found.document(client))
    else:
        for report in found.reports():
            console().print(render(report))


def _save_best(client: Remote, sweep_id: str, folder: Path) -> None:
    """Write the folder of the sweep's recommended layout.

    Raises:
        InvalidInput: No trial of the sweep has a rank yet, or a file cannot be written.
    """
    ranked = client.rank_sweep(sweep_id, limit=1).items
    if not ranked:
        raise InvalidInput("--save-dir", str(folder), f"cannot be written, because {sweep_id} has no ranked trial yet")
    save_of_trial(folder, client, ranked[0].id)


def _write_html(client: Remote, sweep_id: str, file: Path) -> None:
    """Write what ``show`` prints, and the charts of the sweep's page, into one HTML file."""
    from autotuner.api.dashboard.style import style_sheet
    from autotuner.report.file import html_file
    from autotuner.report.sweep import charts_report

    found = _Shown.read(client, sweep_id)
    charts = charts_report(
        found.sweep.request,
        found.trials,
        source=found.sweep.best_source,
        choices=client.read_choices(sweep_id).choices,
        accuracy=client.read_accuracy(sweep_id),
        root=client.url or "",
    )
    first, *others = found.reports()
    page = html_file(
        f"Sweep {sweep_id}",
        [first, charts, *others],
        data=found.document(client),
        style=style_sheet(),
        url=client.url,
    )
    write_text(file, page, "--html")


@dataclass(frozen=True, kw_only=True)
class _Shown:
    """The data about a sweep that the command ``show`` prints or writes to a file."""

    sweep: SweepStanding
    answer: SweepAnswer
    trials: Sequence[Trial]
    comments: Sequence[Comment]
    front: SweepFront | None

    @classmethod
    def read(cls, client: Remote, sweep_id: str) -> _Shown:
        sweep = client.read_sweep(sweep_id)
        return cls(
            sweep=sweep,
            answer=client.read_answer(sweep_id),
            trials=whole(client.list_trials, sweep_id),
            comments=whole(client.list_comments, sweep_id),
            front=client.read_front(sweep_id) if sweep.objective.front else None,
        )

    def document(self, client: Remote) -> dict[str, Any]:
        """Return everything as JSON data."""
        lists = {"ranking": _listed(whole(client.rank_sweep, self.sweep.id)), "trials": _listed(self.trials)}
        lists["comments"] = _listed(self.comments)
        lists |= {} if self.front is None else {"front": documents.write(self.front)}
        return {"sweep": documents.write(self.sweep), **documents.write(self.answer), **lists}

    def reports(self) -> Iterator[Report]:
        """Yield the reports for people: the answer, the state and the ranking, the Pareto front, and comments."""
        from autotuner.report.comments import comments_report
        from autotuner.report.sweep_answer import answer_report, front_report
        from autotuner.report.sweep_standing import sweep_report

        sweep, found = self.sweep, self.answer
        if found.answer is not None:
            is_finished = sweep.finished_at is not None
            yield answer_report(
                found.answer,
                sweep.request,
                sweep_id=sweep.id,
                expected_improvement=found.expected_improvement,
                is_finished=is_finished,
            )
        yield sweep_report(sweep, self.trials, time.time())
        if self.front is not None:
            yield front_report(self.front, sweep_id=sweep.id)
        if self.comments:
            yield comments_report(self.comments, sweep.id)


def _listed(items: Sequence[object]) -> dict[str, Any]:
    return {"items": [documents.write(one) for one in items], "total": len(items)}


@flags(CommentCreate)
def comment(
    request: CommentCreate,
    sweep_id: SweepId,
    text: Annotated[str, typer.Argument(help="Text of the comment. It may be left out if a tag is given.")] = "",
    tag: Annotated[
        list[str] | None, typer.Option("--tag", help="Tag by which the list of sweeps finds it. May be repeated.")
    ] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Write a comment or tags on a sweep, or on one of its trials.

    Example: autotuner comment sw-k3v7q2mxn5 "with NCCL 2.28" --tag paper
    """
    from autotuner.report.comments import comment_written_report

    del text, tag  # the request holds both
    tell(server, lambda client: client.create_comment(sweep_id, request), comment_written_report, as_json=as_json)


def comments(
    sweep_id: SweepId,
    remove: Annotated[str | None, typer.Option("--remove", help="Id of a comment to remove.")] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """List the comments on a sweep and on its trials, newest first, or remove one.

    Example: autotuner comments sw-k3v7q2mxn5
    """
    from autotuner.report.comments import comment_removed_report, comments_report

    if remove is not None:
        removed = stored_id(remove, "comment")
        return tell(server, lambda client: client.remove_comment(removed), comment_removed_report, as_json=as_json)
    return tell(
        server,
        lambda client: Listed.whole(whole(client.list_comments, sweep_id)),
        lambda found: comments_report(found.items, sweep_id),
        as_json=as_json,
    )


def front(
    sweep_id: SweepId,
    metrics: Annotated[
        str,
        typer.Option("--metrics", help="Metrics to compare: mfu,tokens_per_joule. Default: the metrics of the sweep."),
    ] = "",
    profile: Annotated[
        str, typer.Option("--profile", help="Weight of each metric, to mark one layout: mfu=2,tokens_per_joule=1.")
    ] = "",
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Print the layouts of a sweep that no other layout beats in every metric.

    These layouts are called the Pareto front.

    Example: autotuner front sw-k3v7q2mxn5 --metrics mfu,tokens_per_joule
    """
    from autotuner.report.sweep_answer import front_report

    def read(client: Remote) -> SweepFront:
        return client.read_front(sweep_id, metrics=metrics, profile=profile)

    tell(server, read, partial(front_report, sweep_id=sweep_id), as_json=as_json)


def study(
    sweep_id: SweepId,
    file: Annotated[Path, typer.Argument(help="SQLite file to write.", metavar="FILE")],
    server: Server = None,
) -> None:
    """Write a sweep to a file as an Optuna study, for optuna-dashboard or a notebook.

    Example: autotuner study sw-k3v7q2mxn5 study.db
    """
    from autotuner.cli.optuna_study import write_study

    with open_service(server) as client, progress("writing the study"):
        number = write_study(file, client.read_sweep(sweep_id), whole(client.list_trials, sweep_id))
    console().print(f"{number} trials of {sweep_id} in {file}; look at them with `optuna-dashboard sqlite:///{file}`")


def track(
    sweep_id: SweepId,
    to: Annotated[str, typer.Option("--to", help=f"Tracker that gets the runs: {_TARGETS}.", metavar="TARGET")],
    server: Server = None,
) -> None:
    """Send the trials of a sweep to MLflow or Weights & Biases, as they end.

    Each trial becomes a run, and the sweep becomes one with the ranking.
    If you run it again, it sends only what is new.

    Example: autotuner track sw-k3v7q2mxn5 --to mlflow:sqlite:///mlflow.db
    """
    from autotuner.tracking import track as follow_and_send

    target = Target.read(to, "--to")
    with progress("loading the tracker"):
        tracker = target.open()
    with open_service(server) as client, terminable(), progress(f"following {sweep_id}"):
        found = follow_and_send(client, sweep_id, tracker, _heard(as_json=False))
    console().print(str(found), highlight=False, soft_wrap=True)
