"""``autotuner gate`` and ``baselines``: decide if a change may be merged, by its effect on MFU and memory."""

from __future__ import annotations

import time
from dataclasses import fields, replace
from functools import partial
from os.path import isfile
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from autotuner.cli.console import notes, open_service, progress, show
from autotuner.cli.files import read_text, write_text
from autotuner.cli.flags import Json, Server, flags
from autotuner.connections import door_for, patiently
from autotuner.core import documents
from autotuner.core.cluster import Cluster
from autotuner.core.errors import AutotunerError, InvalidInput, NotFound
from autotuner.core.listed import Listed
from autotuner.core.requests import JobQuestion, PredictedJobRequest
from autotuner.core.signals import interruptible, terminable
from autotuner.core.sweep_requests import Adoption, GateCreate
from autotuner.core.text import inputs_of, to_document
from autotuner.core.upkeep import GateRun, RegressionGateOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from autotuner.core.dry_run import DryRun
    from autotuner.core.job import Job
    from autotuner.core.layout import Layout
    from autotuner.core.upkeep import Baseline
    from autotuner.remote import Remote
    from autotuner.report.ci import GateCase
    from autotuner.search.upkeep.gate_prediction import PredictedGate

_PREDICT = "Without a cluster"
_FILES = "Files for CI"

_POLL_S = 0.5

_EXIT_CODES = {
    RegressionGateOutcome.PASSED: 0,
    RegressionGateOutcome.COULD_NOT_RUN: 6,
    RegressionGateOutcome.CANCELLED: 6,
    RegressionGateOutcome.FAILED: 8,
    RegressionGateOutcome.UNDECIDED: 9,
    RegressionGateOutcome.NO_BASELINE: 10,
}


def _file(option: str, what: str) -> typer.models.OptionInfo:
    info: typer.models.OptionInfo = typer.Option(option, help=f"{what} to write.", rich_help_panel=_FILES)
    return info


@flags(GateCreate, leaves_out=("layout",))
def gate(
    request: GateCreate,
    layout: Annotated[
        str | None,
        typer.Option(
            "--layout",
            help="Layout of the change: words ('fsdp8 tp4 mb1 sp'), JSON, or a trainer's configuration file. "
            "Default: the best layout that a sweep finds.",
        ),
    ] = None,
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
    stack: Annotated[
        str,
        typer.Option(
            "--stack",
            help="Training software to predict for. `autotuner stacks` lists the names.",
            rich_help_panel=_PREDICT,
        ),
    ] = "torch",
    junit: Annotated[Path | None, _file("--junit", "JUnit XML file")] = None,
    summary: Annotated[Path | None, _file("--summary", "Markdown file")] = None,
    badge: Annotated[Path | None, _file("--badge", "SVG badge")] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    r"""Check whether a change makes training slower than the stored baseline.

    It repeats runs until it can tell a slowdown from noise.
    Exit codes: 0 passed, 6 could not run or was cancelled, 8 failed, 9 undecided,
    10 no baseline is stored.

    Example: autotuner gate --model llama-demo --cluster local --seq-len 128 \
        --global-batch-size 16 --layout 'dp2 mb1 fp32' --set-baseline
    """
    from autotuner.report.ci import measured_case, predicted_case

    answer: GateRun | PredictedGate
    if predict:
        answer, job = _predicted(request, layout, against, stack, counts_memory=dry_run)
        case = predicted_case(answer, job)
    elif against is not None:
        raise InvalidInput(
            "--against",
            against,
            "can be used only together with --predict, because a measured gate compares with the --baseline",
        )
    else:
        answer, address = _measured(request, layout, server, quiet=as_json)
        case = measured_case(answer, now=time.time(), server=address)
    _write(case, junit=junit, summary=summary, badge=badge)
    show(answer, lambda _: case.report, as_json=as_json)
    assert case.outcome is not None, "a command waits for the end"
    raise typer.Exit(0 if case.is_passed else _EXIT_CODES[case.outcome])


def _write(case: GateCase, *, junit: Path | None, summary: Path | None, badge: Path | None) -> None:
    """Write the files for a CI system whose paths are given."""
    from autotuner.report.ci import badge_svg, junit_xml
    from autotuner.report.markdown import markdown

    for option, path, text in (
        ("--junit", junit, junit_xml(case)),
        ("--summary", summary, markdown(case.report)),
        ("--badge", badge, badge_svg(case)),
    ):
        if path is not None:
            write_text(path, text, option)


# ---------------------------------------------------------------- measured
def _measured(request: GateCreate, layout: str | None, server: str | None, *, quiet: bool) -> tuple[GateRun, str]:
    """Return the ended gate, and the address of the service for links; the address is empty if no browser reaches it.

    An interrupt of the command cancels the gate: after a CI system has cancelled its job, nobody waits for the gate.
    """
    from autotuner.cli.follow import follow

    console = notes(quiet=quiet)
    with open_service(server, num_workers=1) as service, terminable():
        if layout is not None:
            found, assumed = _read(layout, partial(_num_ranks, service, request.cluster))
            request = replace(request, layout=found)
            for note in assumed:
                console.print(note, highlight=False, soft_wrap=True)
        interrupted = Event()
        with progress("starting the gate"), interruptible(interrupted.set):  # a gate can only be cancelled by its id
            gate = service.create_gate(request)
        try:
            if interrupted.is_set():
                raise KeyboardInterrupt
            if gate.outcome is None and gate.child_id is not None:
                follow(service, gate.child_id, console)
            return _finished(service, gate), service.url or ""
        except KeyboardInterrupt:
            service.cancel_run(GateRun, gate.id)
            raise


def _num_ranks(service: Remote, cluster: Cluster | str) -> int:
    return (service.read_cluster(cluster) if isinstance(cluster, str) else cluster).world_size


def _finished(service: Remote, gate: GateRun) -> GateRun:
    """Return the gate after the service has concluded it, which happens soon after the end of its sweep."""
    while gate.outcome is None:
        time.sleep(_POLL_S)
        gate = patiently(partial(service.read_run, GateRun, gate.id))
    return gate


# ---------------------------------------------------------------- predicted
def _predicted(
    request: GateCreate, layout: str | None, against: str | None, stack: str, *, counts_memory: bool
) -> tuple[PredictedGate, Job]:
    """Return the predicted gate, and the job for which both layouts are predicted.

    If the memory cannot be counted in a dry run, it is predicted, and a note says why. Stored trials are not used, so
    that every machine comes to the same verdict.
    """
    from autotuner.core.rules.legality import reasons
    from autotuner.search.upkeep.gate_prediction import predicted_gate

    if layout is None:
        raise InvalidInput(
            "--layout", None, "must be given with --predict, because without trials there is no search for a layout"
        )
    asked = {one.name: getattr(request, one.name) for one in fields(PredictedJobRequest)}
    with door_for(request) as door:
        job = door.job(JobQuestion(**asked | {"uses_history": False, "stack": stack}))
    candidate, assumed = _read(layout, lambda: job.cluster.world_size)
    reference = None if against is None else _read(against, lambda: job.cluster.world_size)[0]
    if reference is not None and (broken := reasons(reference, job)):
        first = broken[0]
        hint = "" if first.nearest is None else f"; nearest legal value of {first.field}: {first.nearest}"
        raise InvalidInput("--against", str(reference), f"cannot run, because {first.message}{hint}")
    counted, why = _counted(job, candidate) if counts_memory else (None, ())
    tolerance = request.test.tolerance
    return predicted_gate(job, candidate, reference, tolerance=tolerance, dry_run=counted, notes=(*assumed, *why)), job


def _counted(job: Job, layout: Layout) -> tuple[DryRun | None, tuple[str, ...]]:
    """Return the dry run of a layout, or a note that says why there is none."""
    from autotuner.cli.questions import dry_run_of
    from autotuner.core.rules.legality import reasons
    from autotuner.launch.this_machine import dry_run

    if reasons(layout, job):
        return None, ()
    try:
        with progress("starting torch") as bar:
            return dry_run(dry_run_of(job, layout), bar.say), ()
    except AutotunerError as error:
        return None, (f"the memory was predicted, not counted in a dry run: {error}",)


# ---------------------------------------------------------------- layouts
def _read(text: str, num_ranks: Callable[[], int]) -> tuple[Layout, Iterable[str]]:
    """Read a layout from words, from JSON, from one of our JSON files, or from a trainer's configuration file.

    Args:
        text: The argument of the command.
        num_ranks: Returns the number of ranks of the job, which most configurations do not contain.

    Returns:
        The layout, and one sentence for each value that was assumed or changed.

    Raises:
        InvalidInput: The text is none of these, or the file cannot be read.
    """
    if not isfile(text) or text.endswith(".json"):
        asked = documents.read(Adoption, to_document(inputs_of(Adoption), {"layout": text}, read_file=read_text))
        assert asked.layout is not None, "a text was given"
        return asked.layout, ()
    from autotuner.exports.formats import read
    from autotuner.exports.shared.target import NoteKind

    found = read(read_text(text, "layout", errors="replace"), num_ranks=num_ranks())
    telling = [note for note in found.notes if note.kind is not NoteKind.IGNORED]
    return found.layout, [f"{note.kind} of {text}, {note.setting}: {note.detail}" for note in telling]


# ---------------------------------------------------------------- baselines
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

    A baseline is the result of an earlier run of `autotuner gate --set-baseline`.

    Example: autotuner baselines
    """
    from autotuner.report.gate import baselines_report

    with open_service(server) as service:
        found = service.list_baselines()
        if remove is not None:
            found = Listed.whole(_removed(service, found.items, remove))
    show(found, lambda one: baselines_report(one.items, is_removed=remove is not None), as_json=as_json)


def _removed(service: Remote, baselines: Sequence[Baseline], name: str) -> list[Baseline]:
    from difflib import get_close_matches

    names = [one.name for one in baselines]
    if name not in names:
        raise NotFound("baseline", name, next(iter(get_close_matches(name, names, 1, cutoff=0.0)), None))
    return [service.remove_baseline(name, one.key) for one in baselines if one.name == name]
