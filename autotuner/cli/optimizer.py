"""``autotuner optimizer``: studies optimizers, learning rates and batch sizes for a chosen layout."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from autotuner.cli.console import Bar, console, notes, open_service, print_json, progress, tell
from autotuner.cli.console import show as print_answer
from autotuner.cli.flags import Json, Server, Wait, flags, stored_id
from autotuner.core import documents
from autotuner.core.run import RunState
from autotuner.core.study import StudyRun
from autotuner.core.sweep_requests import OptimizerStudyCreate

if TYPE_CHECKING:
    from autotuner.core.listed import Listed
    from autotuner.remote import Remote

optimizer = typer.Typer(
    no_args_is_help=True,
    help="Find the optimizer, its settings and the batch size that reach a target loss fastest.",
)

_NOTHING_REACHED = 6


def _study_id(text: str) -> str:
    return stored_id(text, "study")


_StudyId = Annotated[
    str, typer.Argument(callback=_study_id, help="Id of the study, as `autotuner optimizer tune` prints it.")
]


@optimizer.command("tune")
@flags(OptimizerStudyCreate)
def tune(request: OptimizerStudyCreate, wait: Wait = True, server: Server = None, as_json: Json = False) -> None:
    r"""Train with different optimizer settings to find those that reach a target loss fastest.

    It prints the candidates that took the least time or accelerator-hours.
    Exit code 6: no candidate reached the target.

    Example: autotuner optimizer tune --model llama-demo --cluster local \
        --seq-len 128 --global-batch-size 16 --layout 'dp2 mb1 fp32' \
        --target-loss 8.5
    """
    from autotuner.report.study import study_report

    with open_service(server, num_workers=1 if wait else 0) as service:
        with progress("starting the study"):
            study = service.create_optimizer_study(request)
        if wait:
            with progress("training candidates") as bar:
                study = _ended(service, study.id, bar, quiet=as_json)
    if as_json or wait:
        print_answer(study, study_report, as_json=as_json)
    else:
        console().print(f"{study.id} is queued; a service or `autotuner worker` runs it")
    if wait and not study.front:
        raise typer.Exit(_NOTHING_REACHED)


@optimizer.command("list")
def list_(server: Server = None, as_json: Json = False) -> None:
    """List the studies of optimizers, newest first.

    A study trains with different optimizer settings to find the fastest ones.

    Example: autotuner optimizer list
    """
    from autotuner.report.study import studies_report

    def read(service: Remote) -> Listed[StudyRun]:
        return service.list_runs(StudyRun)

    tell(server, read, lambda found: studies_report(found.items, found.total), as_json=as_json)


@optimizer.command("show")
def show(study_id: _StudyId, server: Server = None, as_json: Json = False) -> None:
    """Print the candidates of a study, with the time and accelerator-hours that each one took.

    A candidate is an optimizer with its settings and a batch size.
    It lists first those that no other one beats in both.

    Example: autotuner optimizer show os-k3v7q2mxn5
    """
    from autotuner.report.study import study_report

    tell(server, lambda service: service.read_run(StudyRun, study_id), study_report, as_json=as_json)


@optimizer.command("cancel")
def cancel(study_id: _StudyId, server: Server = None, as_json: Json = False) -> None:
    """End a study and the candidate that it is training.

    The candidates that have ended stay in the study.

    Example: autotuner optimizer cancel os-k3v7q2mxn5
    """
    with open_service(server) as service:
        study = service.cancel_run(StudyRun, study_id)
    if as_json:
        print_json(documents.write(study))
    else:
        state = "is being cancelled" if study.state is RunState.RUNNING else f"is {study.state}"
        console().print(f"{study_id} {state}")


def _ended(service: Remote, study_id: str, bar: Bar, *, quiet: bool) -> StudyRun:
    """Wait until the study is finished and return it; print a line for each candidate that ends meanwhile."""
    from autotuner.report.study import candidate_line

    num_printed, lines = 0, notes(quiet=quiet)
    while True:
        study = service.read_run(StudyRun, study_id)
        ended = [trial for trial in study.trials if trial.finished_at is not None]
        for trial in ended[num_printed:]:
            lines.print(candidate_line(trial), soft_wrap=True)
        num_printed = len(ended)
        bar.say(f"training candidates: {num_printed} ended")
        if study.finished_at is not None:
            return study
        time.sleep(0.5)
