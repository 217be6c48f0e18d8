"""``autotuner optimizer``: studies of optimizers, learning rates and batches, once a layout is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from autotuner.cli.options import (
    SELDOM,
    ClusterArgument,
    GlobalBatch,
    Json,
    LayoutText,
    Model,
    SeqLen,
    Server,
    TrialOption,
    stored_id,
)

if TYPE_CHECKING:
    from autotuner.core.study import OptimizerStudy
    from autotuner.remote import Remote

optimizer = typer.Typer(
    no_args_is_help=True,
    help="Find the optimizer, its settings and the batch size that reach a target loss fastest.",
)

_NOTHING_REACHED = 6

_STOP = "When to stop"


def _study_id(text: str) -> str:
    return stored_id(text, "study")


_StudyId = Annotated[
    str, typer.Argument(callback=_study_id, help="Id of the study, as `autotuner optimizer tune` prints it.")
]


@optimizer.command("tune")
def tune(
    model: Model,
    cluster: ClusterArgument,
    global_batch: GlobalBatch,
    seq_len: SeqLen,
    layout: LayoutText,
    target_loss: Annotated[float, typer.Option("--target-loss", help="Loss at which training is done.")],
    trials: Annotated[int, typer.Option("--trials", min=1, help="Largest number of candidates to train.")] = 30,
    space: Annotated[
        str | None,
        typer.Option(
            "--space",
            help='Settings to try, as JSON or a JSON file: {"optimizers": ["adamw"], "global_batch_sizes": [64, 256]}.',
        ),
    ] = None,
    name: Annotated[str, typer.Option("--name", help="Name for people. It need not be unique.")] = "",
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the study ends.")] = True,
    max_samples: Annotated[
        int,
        typer.Option("--max-samples", min=1, help="Largest number of sequences per candidate.", rich_help_panel=_STOP),
    ] = 20_000,
    accelerator_hours: Annotated[
        float | None,
        typer.Option("--accelerator-hours", help="Accelerator-hours of the study.", rich_help_panel=_STOP),
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune/--no-prune", help="End poor candidates early.", rich_help_panel=SELDOM)
    ] = True,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the candidates.", rich_help_panel=SELDOM)] = 0,
    trial: TrialOption = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    r"""Train with different optimizer settings to find those that reach a target loss fastest.

    It prints the candidates that took the least time or accelerator-hours.
    Exit code 6: no candidate reached the target.

    Example: autotuner optimizer tune --model llama-demo --cluster local \
        --global-batch 16 --seq-len 128 --layout 'dp2 mb1 fp32' --target-loss 8.5
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import console
    from autotuner.cli.console import show as print_answer
    from autotuner.cli.inputs import job_body, read_optimizer_space, read_trial_settings
    from autotuner.cli.layout_text import read_layout
    from autotuner.core.documents import read
    from autotuner.core.sweep_requests import OptimizerStudyCreate
    from autotuner.report.study import study_report

    body = {
        **job_body(model, cluster, global_batch, seq_len),
        "layout": read_layout(layout),
        "target_loss": target_loss,
        "space": read_optimizer_space(space),
        "budget": {"num_trials": trials, "max_samples": max_samples, "accelerator_hours": accelerator_hours},
        "prunes": prune,
        "trial": read_trial_settings(trial),
        "seed": seed,
        "name": name,
    }
    with connect(server, num_workers=1 if wait else 0) as service:
        study = service.create_optimizer_study(read(OptimizerStudyCreate, body))
        if wait:
            study = _ended(service, study.id, quiet=as_json)
    if as_json or wait:
        print_answer(study, study_report, as_json=as_json)
    else:
        console().print(f"{study.id} is queued; a service or `autotuner worker` runs it")
    if wait and not study.front:
        raise typer.Exit(_NOTHING_REACHED)


@optimizer.command("list")
def list_(server: Server = None, as_json: Json = False) -> None:
    """List the studies of optimizers, newest first.

    Example: autotuner optimizer list
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import show as print_answer
    from autotuner.report.study import studies_report

    with connect(server) as service:
        found = service.list_optimizer_studies()
    print_answer(found, lambda one: studies_report(one.items, one.total), as_json=as_json)


@optimizer.command("show")
def show(study_id: _StudyId, server: Server = None, as_json: Json = False) -> None:
    """Print the candidates of a study, with the time and accelerator-hours that each one took.

    It lists first those that no other one beats in both.

    Example: autotuner optimizer show os-k3v7q2mxn5
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import show as print_answer
    from autotuner.report.study import study_report

    with connect(server) as service:
        print_answer(service.read_optimizer_study(study_id), study_report, as_json=as_json)


@optimizer.command("cancel")
def cancel(study_id: _StudyId, server: Server = None, as_json: Json = False) -> None:
    """End a study and the candidate that it is training.

    Example: autotuner optimizer cancel os-k3v7q2mxn5
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import console, print_json
    from autotuner.core import documents
    from autotuner.core.run import RunState

    with connect(server) as service:
        study = service.cancel_optimizer_study(study_id)
    if as_json:
        print_json(documents.write(study))
    else:
        told = "is asked to end" if study.state is RunState.RUNNING else f"is {study.state}"
        console().print(f"{study_id} {told}")


def _ended(service: Remote, study_id: str, *, quiet: bool) -> OptimizerStudy:
    """The study once it is finished, with a line for each candidate that ended meanwhile."""
    import time

    from autotuner.cli.console import PlainConsole
    from autotuner.report.study import candidate_line

    told, lines = 0, PlainConsole(stderr=True, quiet=quiet)
    while True:
        study = service.read_optimizer_study(study_id)
        ended = [trial for trial in study.trials or () if trial.finished_at is not None]
        for trial in ended[told:]:
            lines.print(candidate_line(trial), soft_wrap=True)
        told = len(ended)
        if study.finished_at is not None:
            return study
        time.sleep(0.5)
