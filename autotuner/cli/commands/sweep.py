"""``autotuner sweep``, ``show`` and ``cancel``: a sweep of real trials from its start to its ranking."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from autotuner.cli.options import (
    GlobalBatch,
    Json,
    LengthsText,
    LinkHealthText,
    Measured,
    Model,
    ObjectiveName,
    OptionalCluster,
    Price,
    ProfileText,
    SeqLen,
    Server,
    Space,
    SweepId,
    TariffText,
    TrialOption,
)

if TYPE_CHECKING:
    from typing import Any

    from autotuner.cli.client import Client

__all__ = ["cancel", "see_through", "show", "sweep"]

_STOP = "When to stop"
_MEASURE = "How a trial is measured"
_GATE = "Loss gate"
_FAULTS = "Links that fail"


def sweep(
    model: Model,
    global_batch: GlobalBatch,
    seq_len: SeqLen,
    cluster: OptionalCluster = None,
    for_cluster: Annotated[
        str | None,
        typer.Option("--for", help="Cluster of the job, where --on names a smaller one; else what --cluster is."),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            "--on", help="Run trials on this smaller cluster: each stands for a layout of the job, which is estimated."
        ),
    ] = None,
    objective: ObjectiveName = "mfu",
    profile: ProfileText = None,
    price: Price = None,
    tariff: TariffText = None,
    front: Annotated[
        str,
        typer.Option(
            "--front", help="Look for all that no other beats in everything, such as mfu,tokens_per_joule,simplicity."
        ),
    ] = "",
    trials: Annotated[int, typer.Option("--trials", min=1, help="Most trials to run.", rich_help_panel=_STOP)] = 20,
    minutes: Annotated[
        float | None, typer.Option("--minutes", help="Most wall-clock minutes.", rich_help_panel=_STOP)
    ] = None,
    accelerator_hours: Annotated[
        float | None,
        typer.Option(
            "--accelerator-hours", help="Most of these, trials and loss gates together.", rich_help_panel=_STOP
        ),
    ] = None,
    patience: Annotated[
        int | None, typer.Option("--patience", help="Trials without a better one to wait.", rich_help_panel=_STOP)
    ] = None,
    min_gain: Annotated[
        float,
        typer.Option(
            "--min-gain", help="Stop when less than this fraction is left to gain; 0: never.", rich_help_panel=_STOP
        ),
    ] = 0.01,
    prune_below: Annotated[
        float,
        typer.Option(
            "--prune-below", help="End trials below this fraction of the best so far; 0: never.", rich_help_panel=_STOP
        ),
    ] = 0.5,
    warmup_steps: Annotated[
        int, typer.Option("--warmup-steps", help="Fewest steps before timing starts.", rich_help_panel=_MEASURE)
    ] = 2,
    measured_steps: Annotated[
        int, typer.Option("--measured-steps", help="Fewest steps that are timed.", rich_help_panel=_MEASURE)
    ] = 5,
    target_interval: Annotated[
        float,
        typer.Option(
            "--target-interval",
            help="Half the 95 % interval of the median to reach, as a fraction.",
            rich_help_panel=_MEASURE,
        ),
    ] = 0.01,
    measuring_seconds: Annotated[
        float, typer.Option("--measuring-seconds", help="Seconds of steps to reach it in.", rich_help_panel=_MEASURE)
    ] = 5.0,
    timeout: Annotated[
        float, typer.Option("--timeout", help="Seconds that a trial may take.", rich_help_panel=_MEASURE)
    ] = 300.0,
    fault_trace: Annotated[
        str | None,
        typer.Option(
            "--fault-trace",
            help="Rank layouts by what they reach while links fail: a file, or lines such as '7;2_3;0.06'.",
            rich_help_panel=_FAULTS,
        ),
    ] = None,
    fault_steps: Annotated[
        int | None,
        typer.Option(
            "--fault-steps", min=1, help="Steps of it; twice its last fault's if left out.", rich_help_panel=_FAULTS
        ),
    ] = None,
    parallel: Annotated[
        int, typer.Option("--parallel", min=1, help="Most trials at once, where the devices suffice for several.")
    ] = 1,
    loss_gate: Annotated[
        bool,
        typer.Option(
            "--loss-gate/--no-loss-gate",
            help="Before a layout that computes otherwise (fp8) may lead, train it beside one that does not.",
            rich_help_panel=_GATE,
        ),
    ] = True,
    gate_steps: Annotated[
        int, typer.Option("--gate-steps", help="Steps that both train, per seed.", rich_help_panel=_GATE)
    ] = 20,
    gate_lossy_steps: Annotated[
        int,
        typer.Option("--gate-lossy-steps", help="The same of what sends less or clips early.", rich_help_panel=_GATE),
    ] = 192,
    gate_seeds: Annotated[
        int, typer.Option("--gate-seeds", help="Pairs of trainings, 2 to 10.", rich_help_panel=_GATE)
    ] = 3,
    gate_tolerance: Annotated[
        float,
        typer.Option(
            "--gate-tolerance", help="How much higher its loss may end, as a fraction.", rich_help_panel=_GATE
        ),
    ] = 0.02,
    trainer: Annotated[
        str | None, typer.Option("--trainer", help="What runs as a trial: a name that `autotuner trainers` lists.")
    ] = None,
    optimizer_states: Annotated[
        Literal["fp32", "bf16"], typer.Option("--optimizer-states", help="Format of AdamW's two moments.")
    ] = "fp32",
    history: Annotated[
        bool, typer.Option("--history/--no-history", help="Whether trials of earlier sweeps teach this one.")
    ] = True,
    measured: Measured = None,
    link_health: LinkHealthText = None,
    lengths: LengthsText = None,
    trial: TrialOption = None,
    space: Space = None,
    seed: Annotated[int, typer.Option("--seed", help="Same seed, same order of trials.")] = 0,
    name: Annotated[str, typer.Option("--name", help="For people; need not be unique.")] = "",
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow the sweep to its end.")] = True,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Start a sweep of real trials and, with --wait, show it live until it ends.

    With --on SMALL --for LARGE, trials of SMALL stand for layouts of LARGE.
    """
    from autotuner.cli.client import connect
    from autotuner.cli.inputs import (
        for_service,
        job_body,
        read_fault_trace,
        read_space,
        read_trial_settings,
        the_cluster,
    )
    from autotuner.cli.measured_runs import read_measured
    from autotuner.cli.money import objective_body, price_body

    budget = {
        "num_trials": trials,
        "wall_clock_s": None if minutes is None else minutes * 60,
        "accelerator_hours": accelerator_hours,
        "patience": patience,
        "prune_below": prune_below,
        "min_gain": min_gain,
    }
    job = job_body(model, the_cluster(cluster, for_cluster), global_batch, seq_len, link_health, lengths)
    job["workload"]["optimizer_state_precision"] = optimizer_states
    body = {
        **job,
        **read_measured(measured, job["workload"]),
        "space": read_space(space),
        "budget": budget,
        "trial": {
            "warmup_steps": warmup_steps,
            "measured_steps": measured_steps,
            "target_interval": target_interval,
            "measuring_budget_s": measuring_seconds,
            "timeout_s": timeout,
            **read_trial_settings(trial),
        },
        "seed": seed,
        "name": name,
        "objective": objective_body(objective, profile, front),
        **price_body(price, tariff),
        "max_parallel_trials": parallel,
        "uses_history": history,
        "trainer": trainer,
        "fault_trace": read_fault_trace(fault_trace, fault_steps),
        "trial_cluster": None if on is None else for_service(on, kind="cluster"),
        "loss_gate": {
            "enabled": loss_gate,
            "num_steps": gate_steps,
            "num_lossy_steps": gate_lossy_steps,
            "num_seeds": gate_seeds,
            "tolerance": gate_tolerance,
        },
    }
    with connect(server, num_workers=1 if wait else 0) as client:
        see_through(client, client.post("/sweeps", body), wait=wait, as_json=as_json)


def see_through(client: Client, sweep: dict[str, Any], *, wait: bool, as_json: bool, after: int = 0) -> None:
    """Follow a sweep to its end, or to a pause, and print what came of it; or just say that it waits.

    Args:
        client: With a worker, where nobody else runs the sweep.
        sweep: As the service shows it.
        wait: Whether to follow it.
        as_json: Print JSON, nothing else.
        after: Number of the last event that is not to be told.
    """
    from autotuner.cli.console import PlainConsole, console, print_json
    from autotuner.cli.follow import follow
    from autotuner.cli.signals import terminable

    if not wait:
        if as_json:
            return print_json(sweep)
        waits = "is queued; a service or `autotuner worker` runs it"
        console().print(f"{sweep['id']} {waits if sweep['state'] == 'queued' else 'is ' + sweep['state']}")
        return None
    try:
        with terminable():
            ended = follow(client, sweep["id"], PlainConsole(stderr=True, quiet=as_json), after=after)
    except KeyboardInterrupt:
        if as_json:  # a program that ends us still learns which sweep it was, and how far it came
            _show(client, sweep["id"], as_json=True)
        raise
    _show(client, ended["id"], as_json=as_json)
    if ended["state"] != "paused" and ended["best_value"] is None:
        raise typer.Exit(6)
    return None


def show(sweep_id: SweepId, server: Server = None, as_json: Json = False) -> None:
    """Print a sweep: its state, its ranking, and why some trials have no rank."""
    from autotuner.cli.client import connect

    with connect(server) as client:
        _show(client, sweep_id, as_json=as_json)


def cancel(sweep_id: SweepId, server: Server = None, as_json: Json = False) -> None:
    """Ask a sweep to end; what it measured stays."""
    from autotuner.cli.client import connect
    from autotuner.cli.console import console, print_json

    with connect(server) as client:
        answer = client.post(f"/sweeps/{sweep_id}/cancel")
    if as_json:
        return print_json(answer)
    console().print(f"{answer['id']} is {answer['state']}" + (", ending" if answer["state"] == "running" else ""))
    return None


def _show(client: Client, sweep_id: str, *, as_json: bool) -> None:
    from autotuner.cli.console import console, print_json
    from autotuner.cli.views.answer import answer_view
    from autotuner.cli.views.front import front_view
    from autotuner.cli.views.sweeps import sweep_view

    stored = client.get(f"/sweeps/{sweep_id}")
    answer = client.get(f"/sweeps/{sweep_id}/answer")["answer"]
    ranking = client.all(f"/sweeps/{sweep_id}/ranking")
    trials = client.all(f"/sweeps/{sweep_id}/trials")
    found = {"front": client.get(f"/sweeps/{sweep_id}/front")} if stored["objective"]["front"] else {}
    if as_json:
        print_json({"sweep": stored, "answer": answer, "ranking": ranking, "trials": trials, **found})
    else:
        if answer is not None:
            console().print(answer_view(answer))
        console().print(sweep_view(stored, ranking["items"], trials["items"]))
        for front in found.values():
            console().print(front_view(front))
