"""The commands. Those about models, clusters and sweeps speak to the REST service: CLI, CI and pages agree.

Exit codes: 0 done; 1 an error of ours; 2 the input is wrong; 3 nothing is stored under that name; 4 the request
contradicts what is stored; 5 the service or its database does not answer; 6 the sweep ended without a measured
layout, or no row of a table can be judged; 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import uvicorn
from rich.console import Console
from rich.text import Text

from autotuner.backtest.report import backtest as run_backtest
from autotuner.backtest.table import read_table
from autotuner.bootstrap import build
from autotuner.cli.backtest import backtest_view
from autotuner.cli.client import GRACE_S, Client, ServiceError, connect, create_api, migrate_if_embedded
from autotuner.cli.describe import is_measured, job_body, read_space, read_trial_settings
from autotuner.cli.dry_run import dry_run
from autotuner.cli.explain import explain, rules
from autotuner.cli.follow import follow
from autotuner.cli.interrupt import interruptible
from autotuner.cli.options import (
    ClusterArgument,
    GlobalBatch,
    Json,
    Model,
    SeqLen,
    Server,
    Space,
    StackName,
    SweepId,
    TrialOption,
)
from autotuner.cli.output import console, print_json
from autotuner.cli.profile import profile
from autotuner.cli.render import catalog_table, prediction_table, sweep_view
from autotuner.errors import AutotunerError, Conflict, InvalidInput, NotFound, StoreUnavailable
from autotuner.logs import configure_logs
from autotuner.settings import Settings
from autotuner.store.schema import head_revision
from autotuner.store.schema import migrate as migrate_database
from autotuner.units import format_bytes, format_rate

__all__ = ["main"]

app = typer.Typer(
    name="autotuner",
    help="Find the parallel layout that trains a transformer fastest.",
    epilog="Exit codes: 0 done, 1 our error, 2 wrong input, 3 not found, 4 conflict, 5 no service or database, "
    "6 nothing measured, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
def predict(
    model: Model,
    cluster: ClusterArgument,
    global_batch: GlobalBatch,
    seq_len: SeqLen,
    space: Space = None,
    stack: StackName = "torch",
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Rows to print.")] = 10,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Predict every legal layout and print the best, with where the time goes. Measures nothing."""
    body = job_body(model, cluster, global_batch, seq_len)
    body |= {"space": read_space(space), "limit": limit, "stack": stack}
    with connect(server, keep=is_measured(cluster)) as client:
        answer = client.post("/predictions", body)
    if as_json:
        return print_json(answer)
    fitting = f"{answer['num_fitting']:,} of {answer['num_legal']:,} legal layouts fit"
    title = f"{model} on {cluster}, {global_batch} sequences of {seq_len}: {fitting}"
    console().print(prediction_table(answer["items"], title=title))
    return None


app.command("dry-run")(dry_run)
app.command()(profile)
app.command()(explain)
app.command()(rules)


@app.command()
def sweep(
    model: Model,
    cluster: ClusterArgument,
    global_batch: GlobalBatch,
    seq_len: SeqLen,
    trials: Annotated[int, typer.Option("--trials", min=1, help="Most trials to run.")] = 20,
    minutes: Annotated[float | None, typer.Option("--minutes", help="Most wall-clock minutes.")] = None,
    accelerator_hours: Annotated[float | None, typer.Option("--accelerator-hours", help="Most of these.")] = None,
    patience: Annotated[int | None, typer.Option("--patience", help="Trials without a better one to wait.")] = None,
    min_gain: Annotated[
        float, typer.Option("--min-gain", help="Stop when less than this fraction is left to gain; 0: never.")
    ] = 0.01,
    prune_below: Annotated[
        float, typer.Option("--prune-below", help="End trials below this fraction of the best MFU; 0: never.")
    ] = 0.5,
    warmup_steps: Annotated[int, typer.Option("--warmup-steps", help="Fewest steps before timing starts.")] = 2,
    measured_steps: Annotated[int, typer.Option("--measured-steps", help="Fewest steps that are timed.")] = 5,
    target_interval: Annotated[
        float, typer.Option("--target-interval", help="Half the 95 % interval of the median to reach, as a fraction.")
    ] = 0.01,
    measuring_seconds: Annotated[
        float, typer.Option("--measuring-seconds", help="Seconds of steps to reach it in.")
    ] = 5.0,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds that a trial may take.")] = 300.0,
    trial: TrialOption = None,
    space: Space = None,
    seed: Annotated[int, typer.Option("--seed", help="Same seed, same order of trials.")] = 0,
    name: Annotated[str, typer.Option("--name", help="For people; need not be unique.")] = "",
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow the sweep to its end.")] = True,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Start a sweep of real trials and, with --wait, show it live until it ends."""
    budget = {
        "num_trials": trials,
        "wall_clock_s": None if minutes is None else minutes * 60,
        "accelerator_hours": accelerator_hours,
        "patience": patience,
        "prune_below": prune_below,
        "min_gain": min_gain,
    }
    body = {
        **job_body(model, cluster, global_batch, seq_len),
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
    }
    with connect(server, num_workers=1 if wait else 0) as client:
        created = client.post("/sweeps", body)
        if not wait:
            if as_json:
                return print_json(created)
            console().print(f"{created['id']} is queued; a service or `autotuner worker` runs it")
            return None
        ended = follow(client, created["id"], Console(stderr=True, quiet=as_json, markup=False))
        _show(client, ended["id"], as_json=as_json)
    if ended["best_measured_mfu"] is None:
        raise typer.Exit(6)
    return None


@app.command()
def show(sweep_id: SweepId, server: Server = None, as_json: Json = False) -> None:
    """Print a sweep: its state, its ranking, and why some trials have no rank."""
    with connect(server) as client:
        _show(client, sweep_id, as_json=as_json)


@app.command()
def cancel(sweep_id: SweepId, server: Server = None, as_json: Json = False) -> None:
    """Ask a sweep to end; what it measured stays."""
    with connect(server) as client:
        answer = client.post(f"/sweeps/{sweep_id}/cancel")
    if as_json:
        return print_json(answer)
    console().print(f"{answer['id']} is {answer['state']}" + (", ending" if answer["state"] == "running" else ""))
    return None


@app.command()
def backtest(
    table: Annotated[Path, typer.Argument(help="CSV file of measured runs; docs/backtest.md names its columns.")],
    calibrate: Annotated[
        int, typer.Option("--calibrate", min=0, help="Layouts of each sheet to learn from first; they are not judged.")
    ] = 0,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Searches of each sheet by each sampler.")] = 20,
    as_json: Json = False,
) -> None:
    """Predict measured runs, published or yours, and print the errors and the trials to the best layout."""
    configure_logs(Settings().log_level)
    report = run_backtest(read_table(table), num_seeds=seeds, num_given=calibrate)
    if as_json:
        print_json(report.to_dict())
    else:
        console().print(backtest_view(report))
    if not report.all.rows_used:
        raise typer.Exit(6)


@app.command()
def catalog(server: Server = None, as_json: Json = False) -> None:
    """List the accelerators, models and training software that are known by name."""
    with connect(server, keep=False) as client:
        accelerators = client.get("/catalog/accelerators")["items"]
        models = client.get("/catalog/models")["items"]
        stacks = client.get("/catalog/stacks")["items"]
    if as_json:
        return print_json({"accelerators": accelerators, "models": models, "stacks": stacks})
    console().print(catalog_table([_accelerator_row(a) for a in accelerators]))
    console().print(catalog_table([_model_row(m) for m in models]))
    console().print("training software: " + ", ".join(stack["name"] for stack in stacks))
    return None


@app.command()
def serve(
    host: Annotated[str | None, typer.Option("--host", help="Address; default AUTOTUNER_HOST.")] = None,
    port: Annotated[int | None, typer.Option("--port", help="Port; default AUTOTUNER_PORT.")] = None,
) -> None:
    """Run the REST service, the dashboard and, unless AUTOTUNER_NUM_WORKERS=0, the worker."""
    settings = Settings()
    migrate_if_embedded(settings)
    application = build(settings)
    try:
        uvicorn.run(
            create_api(application),
            host=host or settings.host,
            port=settings.port if port is None else port,
            log_level="warning",  # requests are logged by the application, once
            access_log=False,
            timeout_graceful_shutdown=GRACE_S,
        )
    finally:
        application.close()  # also where a second Ctrl-C cut the server's own shutdown short


@app.command()
def worker() -> None:
    """Run sweeps of the shared database on this machine until interrupted."""
    settings = Settings()
    migrate_if_embedded(settings)
    application = build(settings)
    with interruptible(application.request_stop):
        application.work()
    application.close()


@app.command()
def migrate(as_json: Json = False) -> None:
    """Bring the database to the newest schema."""
    settings = Settings()
    migrate_database(settings.database_url)
    database = settings.database_url.split("@")[-1]  # without a password
    if as_json:
        return print_json({"database": database, "schema_revision": head_revision()})
    console().print(f"{database} is at the newest schema")
    return None


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; errors become one line on standard error and an exit code."""
    try:
        app(arguments)
    except KeyboardInterrupt:
        sys.exit(130)
    except AutotunerError as error:
        text = Text.assemble(("error", "bold red"), f": {error}")
        Console(stderr=True).print(text, soft_wrap=True)
        sys.exit(_exit_code(error))


def _exit_code(error: AutotunerError) -> int:
    match error:
        case ServiceError(status=404) | NotFound():
            return 3
        case ServiceError(status=409) | Conflict():
            return 4
        case ServiceError(status=503) | StoreUnavailable():
            return 5
        case ServiceError(status=status) if status >= 500:
            return 1
        case ServiceError() | InvalidInput():
            return 2
    return 1


def _show(client: Client, sweep_id: str, *, as_json: bool) -> None:
    stored = client.get(f"/sweeps/{sweep_id}")
    ranking = client.pages(f"/sweeps/{sweep_id}/ranking")
    trials = client.pages(f"/sweeps/{sweep_id}/trials")
    if as_json:
        print_json({"sweep": stored, "ranking": ranking, "trials": trials})
    else:
        console().print(sweep_view(stored, ranking, trials))


def _accelerator_row(accelerator: dict[str, Any]) -> dict[str, str]:
    peaks = ("fp32_flop_per_s", "bf16_flop_per_s", "fp8_flop_per_s")
    return {
        "name": accelerator["name"],
        "memory": format_bytes(accelerator["memory_bytes"]),
        "bandwidth": format_rate(accelerator["memory_bandwidth_bytes_per_s"], "B/s"),
        **{key[:4].strip("_"): format_rate(accelerator[key], "FLOP/s") if accelerator[key] else "-" for key in peaks},
        "source": accelerator["peak_source"],
    }


def _model_row(model: dict[str, Any]) -> dict[str, str]:
    keys = ("num_layers", "hidden_size", "num_heads", "num_kv_heads", "ffn_size", "vocab_size")
    return {"name": model["name"], **{key.removeprefix("num_"): str(model[key]) for key in keys}}
