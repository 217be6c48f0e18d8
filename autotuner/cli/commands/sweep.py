"""``autotuner sweep``, ``show`` and ``cancel``: a sweep of real trials from its start to its ranking."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from autotuner.cli.options import (
    SELDOM,
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
    from collections.abc import Sequence
    from typing import Any

    from api.schemas.sweeps import SweepDetail
    from autotuner.cli.client import Client

_STOP = "When to stop"
_SMALLER = "Trials on a smaller cluster"
_MEASURE = "Measuring a trial"
_GATE = "Convergence gate"
_FAULTS = "Injected link faults"


def sweep(
    model: Model,
    global_batch: GlobalBatch,
    seq_len: SeqLen,
    cluster: OptionalCluster = None,
    objective: ObjectiveName = "mfu",
    trials: Annotated[int, typer.Option("--trials", min=1, help="Largest number of trials to run.")] = 20,
    trainer: Annotated[
        str | None,
        typer.Option("--trainer", help="Trainer that trials run. `autotuner trainers` lists the names."),
    ] = None,
    name: Annotated[str, typer.Option("--name", help="Name for people. It need not be unique.")] = "",
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Show the sweep live until it ends.")] = True,
    minutes: Annotated[
        float | None, typer.Option("--minutes", help="Wall-clock minutes of the sweep.", rich_help_panel=_STOP)
    ] = None,
    accelerator_hours: Annotated[
        float | None,
        typer.Option(
            "--accelerator-hours",
            help="Accelerator-hours of trials and convergence gates together.",
            rich_help_panel=_STOP,
        ),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(
            "--patience", help="Stop after this many trials in a row without a better one.", rich_help_panel=_STOP
        ),
    ] = None,
    min_gain: Annotated[
        float,
        typer.Option(
            "--min-gain", help="Stop when the expected gain is below this fraction. 0: never.", rich_help_panel=_STOP
        ),
    ] = 0.01,
    prune_below: Annotated[
        float,
        typer.Option(
            "--prune-below",
            help="End a trial early below this fraction of the best one so far. 0: never.",
            rich_help_panel=_STOP,
        ),
    ] = 0.5,
    for_cluster: Annotated[
        str | None,
        typer.Option("--for", help="Cluster of the job, instead of --cluster.", rich_help_panel=_SMALLER),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            help="Smaller cluster to run trials on. The result for the job's cluster is estimated.",
            rich_help_panel=_SMALLER,
        ),
    ] = None,
    warmup_steps: Annotated[
        int,
        typer.Option(
            "--warmup-steps", help="Smallest number of steps before the timing starts.", rich_help_panel=_MEASURE
        ),
    ] = 2,
    measured_steps: Annotated[
        int,
        typer.Option("--measured-steps", help="Smallest number of steps to time.", rich_help_panel=_MEASURE),
    ] = 5,
    target_interval: Annotated[
        float,
        typer.Option(
            "--target-interval",
            help="Precision to reach: half the 95 % interval of the median step time, as a fraction.",
            rich_help_panel=_MEASURE,
        ),
    ] = 0.01,
    measuring_seconds: Annotated[
        float,
        typer.Option(
            "--measuring-seconds",
            help="Largest number of seconds to time steps for.",
            rich_help_panel=_MEASURE,
        ),
    ] = 5.0,
    timeout: Annotated[
        float, typer.Option("--timeout", help="Seconds after which a trial is ended.", rich_help_panel=_MEASURE)
    ] = 300.0,
    loss_gate: Annotated[
        bool,
        typer.Option(
            "--loss-gate/--no-loss-gate",
            help="Compare the loss of a layout that is not numerically equivalent (fp8) before it may rank first.",
            rich_help_panel=_GATE,
        ),
    ] = True,
    gate_steps: Annotated[
        int,
        typer.Option(
            "--gate-steps", help="Steps to train the layout and its reference, per seed.", rich_help_panel=_GATE
        ),
    ] = 20,
    gate_lossy_steps: Annotated[
        int,
        typer.Option(
            "--gate-lossy-steps",
            help="Steps for layouts that send compressed gradients or clip them early.",
            rich_help_panel=_GATE,
        ),
    ] = 192,
    gate_seeds: Annotated[
        int, typer.Option("--gate-seeds", help="Number of seeds, 2 to 10.", rich_help_panel=_GATE)
    ] = 3,
    gate_tolerance: Annotated[
        float,
        typer.Option(
            "--gate-tolerance", help="Increase of the final loss to accept, as a fraction.", rich_help_panel=_GATE
        ),
    ] = 0.02,
    fault_trace: Annotated[
        str | None,
        typer.Option(
            "--fault-trace",
            help="Rank layouts by their speed while links fail: a file, or lines such as '7;2_3;0.06'.",
            rich_help_panel=_FAULTS,
        ),
    ] = None,
    fault_steps: Annotated[
        int | None,
        typer.Option(
            "--fault-steps",
            min=1,
            help="Steps of the trace. Default: twice the steps up to its last fault.",
            rich_help_panel=_FAULTS,
        ),
    ] = None,
    space: Space = None,
    front: Annotated[
        str,
        typer.Option(
            "--front",
            help="Search for the Pareto front of these metrics: mfu,tokens_per_joule,simplicity.",
            rich_help_panel=SELDOM,
        ),
    ] = "",
    profile: ProfileText = None,
    price: Price = None,
    tariff: TariffText = None,
    parallel: Annotated[
        int,
        typer.Option(
            "--parallel",
            min=1,
            help="Largest number of trials at once, if there are devices for them.",
            rich_help_panel=SELDOM,
        ),
    ] = 1,
    optimizer_states: Annotated[
        Literal["fp32", "bf16"],
        typer.Option("--optimizer-states", help="Number format of the two moments of AdamW.", rich_help_panel=SELDOM),
    ] = "fp32",
    history: Annotated[
        bool,
        typer.Option("--history/--no-history", help="Learn from trials of earlier sweeps.", rich_help_panel=SELDOM),
    ] = True,
    measured: Measured = None,
    link_health: LinkHealthText = None,
    lengths: LengthsText = None,
    trial: TrialOption = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the order of trials.", rich_help_panel=SELDOM)] = 0,
    server: Server = None,
    as_json: Json = False,
) -> None:
    r"""Find the best layout of a job by running trials of the most promising layouts.

    With --on SMALL --for LARGE, trials on SMALL estimate the layouts of LARGE.
    Exit code 6: no layout was measured.

    Example: autotuner sweep --model llama-demo --cluster local \
        --global-batch 16 --seq-len 128 --trials 8
    """
    from api.schemas.sweeps import SweepDetail
    from autotuner.cli.client import connect
    from autotuner.cli.inputs import (
        for_service,
        job_body,
        read_fault_trace,
        read_measured,
        read_space,
        read_trial_settings,
        the_cluster,
    )
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
        see_through(client, client.ask("/sweeps", body, SweepDetail), wait=wait, as_json=as_json)


def see_through(client: Client, sweep: SweepDetail, *, wait: bool, as_json: bool, after: int = 0) -> None:
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
    from autotuner.core import documents
    from autotuner.core.run import RunState

    if not wait:
        if as_json:
            return print_json(documents.write(sweep))
        waits = "is queued; a service or `autotuner worker` runs it"
        console().print(f"{sweep.id} {waits if sweep.state is RunState.QUEUED else f'is {sweep.state}'}")
        return None
    try:
        with terminable():
            ended = follow(client, sweep.id, PlainConsole(stderr=True, quiet=as_json), after=after)
    except KeyboardInterrupt:
        if as_json:  # a program that ends us still learns which sweep it was, and how far it came
            _show(client, sweep.id, as_json=True)
        raise
    _show(client, ended.id, as_json=as_json)
    if ended.state is not RunState.PAUSED and ended.best_value is None:
        raise typer.Exit(6)
    return None


def show(sweep_id: SweepId, server: Server = None, as_json: Json = False) -> None:
    """Print the state and the ranking of a sweep.

    It also says why some trials have no rank.

    Example: autotuner show sw-k3v7q2mxn5
    """
    from autotuner.cli.client import connect

    with connect(server) as client:
        _show(client, sweep_id, as_json=as_json)


def cancel(sweep_id: SweepId, server: Server = None, as_json: Json = False) -> None:
    """End a sweep, and keep its measurements.

    Example: autotuner cancel sw-k3v7q2mxn5
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import console, print_json
    from autotuner.core import documents
    from autotuner.core.run import RunState

    with connect(server) as client:
        found = client.cancel_sweep(sweep_id)
    if as_json:
        return print_json(documents.write(found))
    console().print(f"{found.id} is {found.state}" + (", ending" if found.state is RunState.RUNNING else ""))
    return None


def _show(client: Client, sweep_id: str, *, as_json: bool) -> None:
    from autotuner.cli.console import console, print_json
    from autotuner.cli.views.sweeps import sweep_view
    from autotuner.core import documents
    from autotuner.report.sweep_answer import answer_report, front_report
    from autotuner.report.terminal import render

    stored = client.read_sweep(sweep_id)
    answer = client.read_answer(sweep_id).answer
    ranking = client.whole_ranking(sweep_id)
    trials = client.all_trials(sweep_id)
    front = client.read_front(sweep_id) if stored.objective.front else None
    if as_json:
        found = {} if front is None else {"front": documents.write(front)}
        told = None if answer is None else documents.write(answer)
        lists = {"ranking": _listed(ranking), "trials": _listed(trials)}
        return print_json({"sweep": documents.write(stored), "answer": told, **lists, **found})
    if answer is not None:
        console().print(render(answer_report(answer, is_finished=stored.finished_at is not None)))
    console().print(sweep_view(stored, ranking, trials))
    if front is not None:
        console().print(render(front_report(front)))
    return None


def _listed(items: Sequence[object]) -> dict[str, Any]:
    from autotuner.core import documents

    return {"items": [documents.write(one) for one in items], "total": len(items)}
