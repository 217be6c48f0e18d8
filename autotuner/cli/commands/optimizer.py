"""``autotuner optimizer``: studies of optimizers, learning rates and batches, once a layout is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from autotuner.cli.options import (
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
    from typing import Any

    from autotuner.cli.client import Client

__all__ = ["optimizer"]

optimizer = typer.Typer(
    no_args_is_help=True,
    help="Find the optimizer, its numbers and the batch that come to a target loss fastest, once a layout is chosen.",
)

_NOTHING_REACHED = 6

_STOP = "When it ends"
_WHAT = "What is tried"


def _study_id(text: str) -> str:
    return stored_id(text, "study")


_StudyId = Annotated[str, typer.Argument(callback=_study_id, help="The study's id, as `optimizer tune` printed it.")]


@optimizer.command("tune")
def tune(
    model: Model,
    cluster: ClusterArgument,
    global_batch: GlobalBatch,
    seq_len: SeqLen,
    layout: LayoutText,
    target_loss: Annotated[float, typer.Option("--target-loss", help="Training is done when the loss is there.")],
    trials: Annotated[int, typer.Option("--trials", min=1, help="Most candidates.", rich_help_panel=_STOP)] = 30,
    max_samples: Annotated[
        int, typer.Option("--max-samples", min=1, help="Most sequences of one candidate.", rich_help_panel=_STOP)
    ] = 20_000,
    accelerator_hours: Annotated[
        float | None, typer.Option("--accelerator-hours", help="Most of these.", rich_help_panel=_STOP)
    ] = None,
    space: Annotated[
        str | None,
        typer.Option(
            "--space",
            help='What is tried, as JSON or a file: {"optimizers": ["adamw"], "global_batch_sizes": [64, 256]}.',
            rich_help_panel=_WHAT,
        ),
    ] = None,
    prune: Annotated[bool, typer.Option("--prune/--no-prune", help="End candidates early that lose.")] = True,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Same seed, same candidates.")] = 0,
    name: Annotated[str, typer.Option("--name", help="For people.")] = "",
    trial: TrialOption = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow the study to its end.")] = True,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Train candidates until their loss is at the target, and print those that came there fastest and for least.

    Exit code 6: none came to the target.
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import console, print_json
    from autotuner.cli.inputs import job_body, read_optimizer_space, read_trial_settings
    from autotuner.cli.layout_text import read_layout
    from autotuner.cli.views.optimizer_studies import study_view

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
    with connect(server, num_workers=1 if wait else 0) as client:
        study = client.post("/optimizer-studies", body)
        if wait:
            study = _ended(client, study["id"], quiet=as_json)
    if as_json:
        print_json(study)
    elif wait:
        console().print(study_view(study))
    else:
        console().print(f"{study['id']} is queued; a service or `autotuner worker` runs it")
    if wait and not study["front"]:
        raise typer.Exit(_NOTHING_REACHED)


@optimizer.command("list")
def list_(server: Server = None, as_json: Json = False) -> None:
    """List the studies, newest first."""
    from autotuner.cli.client import connect
    from autotuner.cli.console import console, print_json
    from autotuner.cli.views.optimizer_studies import study_table

    with connect(server) as client:
        found = client.get("/optimizer-studies")
    if as_json:
        return print_json(found)
    console().print(study_table(found["items"]))
    return None


@optimizer.command("show")
def show(study_id: _StudyId, server: Server = None, as_json: Json = False) -> None:
    """Print a study: its candidates, what each took to the target, and the front of time and accelerator-hours."""
    from autotuner.cli.client import connect
    from autotuner.cli.console import console, print_json
    from autotuner.cli.views.optimizer_studies import study_view

    with connect(server) as client:
        found = client.get(f"/optimizer-studies/{study_id}")
    if as_json:
        return print_json(found)
    console().print(study_view(found))
    return None


@optimizer.command("cancel")
def cancel(study_id: _StudyId, server: Server = None, as_json: Json = False) -> None:
    """Ask for the end of a study; its running candidate is ended first."""
    from autotuner.cli.client import connect
    from autotuner.cli.console import console, print_json

    with connect(server) as client:
        cancelled = client.post(f"/optimizer-studies/{study_id}/cancel")
    if as_json:
        return print_json(cancelled)
    state = cancelled["state"]
    console().print(f"{study_id} {'is asked to end' if state == 'running' else f'is {state}'}")
    return None


def _ended(client: Client, study_id: str, *, quiet: bool) -> dict[str, Any]:
    """The study once it is finished, with a line for each candidate that ended meanwhile."""
    import time

    from autotuner.cli.console import PlainConsole
    from autotuner.cli.views.optimizer_studies import trial_said

    told, lines = 0, PlainConsole(stderr=True, quiet=quiet)
    while True:
        study: dict[str, Any] = client.get(f"/optimizer-studies/{study_id}")
        ended = [trial for trial in study["trials"] if trial["finished_at"] is not None]
        for trial in ended[told:]:
            lines.print(trial_said(trial), soft_wrap=True)
        told = len(ended)
        if study["finished_at"] is not None:
            return study
        time.sleep(0.5)
