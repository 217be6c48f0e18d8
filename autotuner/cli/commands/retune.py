"""``autotuner retune``: sweeps that come back by the clock and challenge the layout in use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from autotuner.cli.options import (
    SELDOM,
    ClusterArgument,
    GlobalBatch,
    Json,
    Model,
    OptionalLayoutText,
    SeqLen,
    Server,
    Space,
    TrainerName,
    TrialOption,
)

if TYPE_CHECKING:
    from typing import Any

    from autotuner.cli.client import Client

retune = typer.Typer(
    no_args_is_help=True,
    help="Measure the layout in use on a schedule, and search for a better one.",
)

_COULD_NOT_RUN, _REGRESSION = 6, 8

_STOP = "Limits of a run"
_TEST = "Statistical test"

_Name = Annotated[str, typer.Argument(help="Name of the retune.")]


@retune.command("add")
def add(
    name: _Name,
    cron: Annotated[
        str,
        typer.Option(
            "--cron", help="Schedule: minute, hour, day of month, month, day of week. '0 2 * * *' is 2 a.m. every day."
        ),
    ],
    model: Model,
    cluster: ClusterArgument,
    global_batch: GlobalBatch,
    seq_len: SeqLen,
    time_zone: Annotated[str, typer.Option("--time-zone", help="Time zone of the schedule: Europe/Berlin.")] = "UTC",
    layout: Annotated[
        str | None,
        typer.Option(
            "--layout",
            help="Layout in use. Default: the fastest measured layout of the job, or the best of the first run.",
        ),
    ] = None,
    trials: Annotated[int, typer.Option("--trials", min=1, help="Largest number of layouts to try per run.")] = 20,
    adopts: Annotated[bool, typer.Option("--adopt", help="Put a better layout into use without asking.")] = False,
    minutes: Annotated[
        float | None, typer.Option("--minutes", help="Wall-clock minutes per run.", rich_help_panel=_STOP)
    ] = None,
    accelerator_hours: Annotated[
        float | None,
        typer.Option("--accelerator-hours", help="Accelerator-hours per run.", rich_help_panel=_STOP),
    ] = None,
    search: Annotated[
        bool,
        typer.Option(
            "--search/--no-search", help="Try other layouts, or only measure the one in use.", rich_help_panel=_STOP
        ),
    ] = True,
    tolerance: Annotated[
        float, typer.Option("--tolerance", help="Slowdown to accept, as a fraction.", rich_help_panel=_TEST)
    ] = 0.02,
    loss: Annotated[
        float,
        typer.Option("--loss", help="Slowdown that the test must detect, as a fraction.", rich_help_panel=_TEST),
    ] = 0.05,
    min_runs: Annotated[
        int,
        typer.Option("--min-runs", help="Smallest number of measurements of the layout in use.", rich_help_panel=_TEST),
    ] = 3,
    max_runs: Annotated[
        int,
        typer.Option("--max-runs", help="Largest number of measurements of the layout in use.", rich_help_panel=_TEST),
    ] = 40,
    on_new_environment: Annotated[
        bool,
        typer.Option(
            "--on-new-environment",
            help="Also run when the torch, driver or kernel version here has changed.",
            rich_help_panel=SELDOM,
        ),
    ] = False,
    on_new_links: Annotated[
        bool,
        typer.Option(
            "--on-new-links", help="Also run when the links of the stored cluster have changed.", rich_help_panel=SELDOM
        ),
    ] = False,
    trainer: TrainerName = None,
    trial: TrialOption = None,
    space: Space = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    r"""Schedule runs that measure the layout in use and search for a better one.

    A service or `autotuner worker` starts each run when it is due.

    Example: autotuner retune add nightly --cron '0 2 * * *' --model llama-3-8b \
        --cluster h100:64 --global-batch 512 --seq-len 8k
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import console, print_json
    from autotuner.cli.inputs import job_body, read_space, read_trial_settings
    from autotuner.cli.layout_text import read_layout
    from autotuner.cli.views.upkeep import due_in_words, layout_in_words

    body = {
        "name": name,
        "cron": cron,
        "time_zone": time_zone,
        "sweep": {
            **job_body(model, cluster, global_batch, seq_len),
            "space": read_space(space),
            "budget": {
                "num_trials": trials,
                "wall_clock_s": None if minutes is None else minutes * 60,
                "accelerator_hours": accelerator_hours,
            },
            "trial": read_trial_settings(trial),
            "trainer": trainer,
        },
        "incumbent": None if layout is None else read_layout(layout),
        "searches": search,
        "test": {"tolerance": tolerance, "loss": loss, "min_runs": min_runs, "max_runs": max_runs},
        "on_new_environment": on_new_environment,
        "on_new_links": on_new_links,
        "adopts": adopts,
    }
    with connect(server) as client:
        added = client.post("/retunes", body)
    if as_json:
        return print_json(added)
    console().print(f"{name} is stored: {due_in_words(added)}; a service or `autotuner worker` runs it")
    if layout is not None:
        console().print(f"in use: {layout_in_words(added['incumbent'])}; what --layout left out is at its default")
    return None


@retune.command("list")
def list_(server: Server = None, as_json: Json = False) -> None:
    """List the retunes, with the layout in use, the next run and the last outcome.

    Example: autotuner retune list
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import console, print_json
    from autotuner.cli.views.upkeep import retune_table

    with connect(server) as client:
        found = client.get("/retunes")
    if as_json:
        return print_json(found)
    console().print(retune_table(found["items"]))
    return None


@retune.command("show")
def show(name: _Name, server: Server = None, as_json: Json = False) -> None:
    """Print the schedule, the layout in use, the baseline and the last outcome of a retune.

    Example: autotuner retune show nightly
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import console, print_json
    from autotuner.cli.views.upkeep import retune_view

    with connect(server) as client:
        found = client.get(f"/retunes/{name}")
    if as_json:
        return print_json(found)
    console().print(retune_view(found))
    return None


@retune.command("history")
def history(
    name: _Name,
    limit: Annotated[int, typer.Option("--limit", min=1, max=500, help="Largest number of runs to print.")] = 30,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Print the runs of a retune, newest first.

    It shows the speed of the layout in use, and the range that noise explains.

    Example: autotuner retune history nightly
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import console, print_json
    from autotuner.cli.views.upkeep import history_view

    with connect(server) as client:
        runs = client.get(f"/retunes/{name}/runs", limit=limit)
        points = client.get(f"/retunes/{name}/trend")
        zone = client.get(f"/retunes/{name}")["time_zone"]
    if as_json:
        return print_json({"runs": runs, "trend": points})
    console().print(history_view(runs["items"], points["items"], zone))
    return None


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
    from autotuner.cli.client import connect
    from autotuner.cli.console import PlainConsole, console, print_json
    from autotuner.cli.follow import follow
    from autotuner.cli.views.upkeep import outcome_view

    with connect(server, num_workers=1 if wait else 0) as client:
        begun = client.post(f"/retunes/{name}/runs")
        if wait:
            follow(client, begun["sweep_id"], PlainConsole(stderr=True, quiet=as_json))
            begun = _concluded(client, begun["id"])
    if as_json:
        print_json(begun)
    elif wait:
        console().print(outcome_view(begun["outcome"]))
    else:
        console().print(f"{begun['id']} has begun; a service or `autotuner worker` runs its sweep {begun['sweep_id']}")
    verdict = (begun["outcome"] or {}).get("verdict")
    if verdict in ("regression", "could_not_run"):
        raise typer.Exit(_REGRESSION if verdict == "regression" else _COULD_NOT_RUN)


@retune.command("pause")
def pause(name: _Name, server: Server = None, as_json: Json = False) -> None:
    """Stop the scheduled runs of a retune until it is resumed.

    Example: autotuner retune pause nightly
    """
    _changed(f"/retunes/{name}/pause", None, server, as_json=as_json)


@retune.command("resume")
def resume(name: _Name, server: Server = None, as_json: Json = False) -> None:
    """Start the scheduled runs of a paused retune again.

    It does not repeat the runs that it missed.

    Example: autotuner retune resume nightly
    """
    _changed(f"/retunes/{name}/resume", None, server, as_json=as_json)


@retune.command("adopt")
def adopt(name: _Name, layout: OptionalLayoutText = None, server: Server = None, as_json: Json = False) -> None:
    """Put the better layout of the last run into use, or the layout after --layout.

    If you name the layout already in use, the next run sets a new baseline.
    This accepts a slowdown.

    Example: autotuner retune adopt nightly
    """
    from autotuner.cli.layout_text import read_layout

    body = {"layout": None if layout is None else read_layout(layout)}
    _changed(f"/retunes/{name}/adopt", body, server, as_json=as_json)


@retune.command("remove")
def remove(name: _Name, server: Server = None, as_json: Json = False) -> None:
    """Remove a retune and its runs, and keep their sweeps.

    Example: autotuner retune remove nightly
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import console, print_json

    with connect(server) as client:
        removed = client.delete(f"/retunes/{name}")
    if as_json:
        return print_json(removed)
    console().print(f"{name} is forgotten, with its runs; their sweeps stay")
    return None


def _changed(path: str, body: Any, server: str | None, *, as_json: bool) -> None:
    from autotuner.cli.client import connect
    from autotuner.cli.console import console, print_json
    from autotuner.cli.views.upkeep import retune_view

    with connect(server) as client:
        changed = client.post(path, body)
    if as_json:
        return print_json(changed)
    console().print(retune_view(changed))
    return None


def _concluded(client: Client, run_id: str) -> dict[str, Any]:
    """The run, once it has its outcome: its sweep is finished, and whoever runs retunes looks every few seconds."""
    import time

    while True:
        found: dict[str, Any] = client.get(f"/retune-runs/{run_id}")
        if found["outcome"] is not None:
            return found
        time.sleep(0.2)
