"""``autotuner pause``, ``resume``, ``extend``, ``rerun`` and ``clone``: sweeps that are steered after they began."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from autotuner.cli.options import SELDOM, Json, Server, Space, SweepId, TrialId, TrialOption
from autotuner.core.errors import InvalidInput

if TYPE_CHECKING:
    from typing import Any

_Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Follow the sweep to its end.")]
_Trials = Annotated[int | None, typer.Option("--trials", min=1, help="Largest number of trials in total.")]
_Minutes = Annotated[float | None, typer.Option("--minutes", help="Wall-clock minutes in total.")]
_Hours = Annotated[float | None, typer.Option("--accelerator-hours", help="Accelerator-hours in total.")]
_Patience = Annotated[
    int | None, typer.Option("--patience", help="Stop after this many trials in a row without a better one.")
]
_MinGain = Annotated[
    float | None, typer.Option("--min-gain", help="Stop when the expected gain is below this fraction. 0: never.")
]


def pause(sweep_id: SweepId, server: Server = None, as_json: Json = False) -> None:
    """Stop work on a sweep until it is resumed.

    A running trial is stopped, and starts again from its beginning later.

    Example: autotuner pause sw-k3v7q2mxn5
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import console, print_json
    from autotuner.core import documents
    from autotuner.core.run import RunState

    with connect(server) as client:
        found = client.pause_sweep(sweep_id)
    if as_json:
        return print_json(documents.write(found))
    said = "is paused" if found.state is RunState.PAUSED else "pauses as soon as its trial has stopped"
    console().print(f"{found.id} {said}; `autotuner resume {found.id}` has it go on")
    return None


def resume(sweep_id: SweepId, wait: _Wait = True, server: Server = None, as_json: Json = False) -> None:
    """Continue a paused sweep.

    The time of the pause does not count towards its limits.

    Example: autotuner resume sw-k3v7q2mxn5
    """
    _ask(sweep_id, f"/sweeps/{sweep_id}/resume", wait=wait, server=server, as_json=as_json)


def extend(
    sweep_id: SweepId,
    trials: _Trials = None,
    minutes: _Minutes = None,
    accelerator_hours: _Hours = None,
    patience: _Patience = None,
    min_gain: _MinGain = None,
    wait: _Wait = True,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Change the limits of a sweep, so that it can run more trials.

    The limits are totals, and include what the sweep has already used.
    A finished sweep continues where it ended.

    Example: autotuner extend sw-k3v7q2mxn5 --trials 40
    """
    budget = _limits(trials, minutes, accelerator_hours, patience, min_gain)
    if not budget:
        raise InvalidInput("--trials", None, "must be given, or another limit that is to change")
    _ask(sweep_id, f"/sweeps/{sweep_id}/budget", {"budget": budget}, wait=wait, server=server, as_json=as_json)


def rerun(trial_id: TrialId, wait: _Wait = True, server: Server = None, as_json: Json = False) -> None:
    """Run a trial again, to see how much repeated runs differ.

    A finished sweep is opened again for this run only.

    Example: autotuner rerun sw-k3v7q2mxn5-0003
    """
    sweep_id = trial_id.rpartition("-")[0]
    _ask(sweep_id, f"/trials/{trial_id}/rerun", wait=wait, server=server, as_json=as_json)


def clone(
    sweep_id: SweepId,
    name: Annotated[str | None, typer.Option("--name", help="Name for people. It need not be unique.")] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Seed of the order of trials.", rich_help_panel=SELDOM)
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="New model, as for `autotuner sweep`.")] = None,
    cluster: Annotated[str | None, typer.Option("--cluster", help="New cluster, as for `autotuner sweep`.")] = None,
    space: Space = None,
    trial: TrialOption = None,
    trials: _Trials = None,
    minutes: _Minutes = None,
    accelerator_hours: _Hours = None,
    patience: _Patience = None,
    min_gain: _MinGain = None,
    wait: _Wait = True,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Start a new sweep with the settings of another one, except for the options that you give.

    Example: autotuner clone sw-k3v7q2mxn5 --trials 40 --name longer
    """
    from api.schemas.sweeps import SweepDetail
    from autotuner.cli.client import connect
    from autotuner.cli.commands.sweep import see_through
    from autotuner.cli.inputs import for_service, read_space, read_trial_settings

    body = {
        "name": name,
        "seed": seed,
        "model": None if model is None else for_service(model, kind="model"),
        "cluster": None if cluster is None else for_service(cluster, kind="cluster"),
        "space": read_space(space),
        "trial": read_trial_settings(trial),
        "budget": _limits(trials, minutes, accelerator_hours, patience, min_gain),
    }
    with connect(server, num_workers=1 if wait else 0) as client:
        see_through(client, client.ask(f"/sweeps/{sweep_id}/clone", body, SweepDetail), wait=wait, as_json=as_json)


def _limits(
    trials: int | None, minutes: float | None, hours: float | None, patience: int | None, min_gain: float | None
) -> dict[str, Any]:
    """Those that were named, as the service calls them."""
    limits = {
        "num_trials": trials,
        "wall_clock_s": None if minutes is None else minutes * 60,
        "accelerator_hours": hours,
        "patience": patience,
        "min_gain": min_gain,
    }
    return {name: limit for name, limit in limits.items() if limit is not None}


def _ask(sweep_id: str, path: str, body: Any = None, *, wait: bool, server: str | None, as_json: bool) -> None:
    """Ask it of the service, and follow the sweep from there."""
    from api.schemas.sweeps import SweepDetail
    from autotuner.cli.client import connect
    from autotuner.cli.commands.sweep import see_through

    with connect(server, num_workers=1 if wait else 0) as client:
        before = client.events_so_far(sweep_id)
        last_event = before[-1].sequence if before else 0
        see_through(client, client.ask(path, body, SweepDetail), wait=wait, as_json=as_json, after=last_event)
