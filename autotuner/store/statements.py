"""The SQL statements, and the values that their rows become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TypeAlias

from sqlalchemy import (
    ColumnElement,
    Executable,
    Row,
    Select,
    Text,
    delete,
    func,
    insert,
    or_,
    select,
    type_coerce,
    update,
)

from autotuner.domain.choice import Precision
from autotuner.domain.sweep import Event, Sweep, SweepState
from autotuner.domain.trial import Measurement, StepReport, Trial, TrialFailure, TrialState
from autotuner.ports import TrialFilter
from autotuner.store.tables import events, failures, measurements, steps, sweeps, trials

AnyRow: TypeAlias = Row[*tuple[Any, ...]]
AnySelect: TypeAlias = Select[*tuple[Any, ...]]


# ---------------------------------------------------------------------- sweeps
_SWEEP_COLUMNS = [sweeps.c[field.name] for field in fields(Sweep)]

SWEEPS: AnySelect = select(*_SWEEP_COLUMNS).select_from(sweeps)


def read_sweep(row: AnyRow) -> Sweep:
    """The sweep in a row of ``SWEEPS``."""
    return Sweep(**row._mapping)


def insert_sweep(sweep: Sweep, idempotency_key: str | None) -> Executable:
    """A new row."""
    return insert(sweeps).values(idempotency_key=idempotency_key, **_sweep_values(sweep))


def update_sweep(sweep: Sweep) -> Executable:
    """The row as the sweep now is; what was asked does not change."""
    changed = {name: value for name, value in _sweep_values(sweep).items() if name != "request"}
    return update(sweeps).where(sweeps.c.id == sweep.id).values(changed)


def _sweep_values(sweep: Sweep) -> dict[str, Any]:
    return {column.name: getattr(sweep, column.name) for column in _SWEEP_COLUMNS}


def lock_sweep_of(trial_id: str) -> Select[str, str | None]:
    """Id and owner of the trial's sweep, which nobody else changes until the transaction ends."""
    sweep_id = select(trials.c.sweep_id).where(trials.c.id == trial_id).scalar_subquery()
    return select(sweeps.c.id, sweeps.c.owner).where(sweeps.c.id == sweep_id).with_for_update()


def oldest_claimable(now: float) -> AnySelect:
    """The sweep that a claim gets, locked; one that another worker is claiming is passed over."""
    lapsed = (sweeps.c.state == SweepState.RUNNING) & (sweeps.c.lease_until <= now)
    return (
        SWEEPS.where(or_(sweeps.c.state == SweepState.QUEUED, lapsed))
        .order_by(sweeps.c.created_at, sweeps.c.id)
        .limit(1)
        .with_for_update(skip_locked=True)
    )


# ---------------------------------------------------------------------- trials
_TRIAL_COLUMNS = [trials.c[field.name] for field in fields(Trial) if field.name in trials.c]

TRIALS: AnySelect = (
    select(*_TRIAL_COLUMNS, measurements.c.document.label("measurement"), failures.c.document.label("failure"))
    .select_from(trials)
    .outerjoin(measurements)
    .outerjoin(failures)
)


_EMULATED = f'"{Precision.FP8_EMULATED.label}"'


def ranking(sweep_id: str | None, where: TrialFilter) -> AnySelect:
    """Measured trials, the highest MFU first: in the order of an index of ``measurements``, so nothing is sorted.

    Layouts that are emulated have no rank. They are told by a word of their document, since few trials are and none
    needs an index.
    """
    mine = [] if sweep_id is None else [measurements.c.sweep_id == sweep_id]
    return (
        select(*_TRIAL_COLUMNS, measurements.c.document.label("measurement"))
        .select_from(measurements)
        .join(trials, trials.c.id == measurements.c.trial_id)
        .where(*mine, ~type_coerce(trials.c.layout, Text).contains(_EMULATED, autoescape=True), *passing(where))
        .order_by(measurements.c.mfu.desc(), measurements.c.trial_id)
    )


def read_trial(row: AnyRow, reports: Sequence[StepReport] = ()) -> Trial:
    """The trial in a row of ``TRIALS`` or of ``ranking``."""
    return Trial(**row._mapping, steps=tuple(reports))


def passing(where: TrialFilter) -> list[ColumnElement[bool]]:
    """The filter as conditions on ``trials``."""
    return [
        trials.c[field.name] == value for field in fields(where) if (value := getattr(where, field.name)) is not None
    ]


def insert_trial(trial: Trial) -> Executable:
    """A new row, with the columns that queries filter by."""
    degrees = {field.name: getattr(trial.layout, field.name) for field in fields(TrialFilter) if field.name != "state"}
    return insert(trials).values({column.name: getattr(trial, column.name) for column in _TRIAL_COLUMNS} | degrees)


def update_trial(trial: Trial) -> Executable:
    """The row as the trial now is; number, layout and prediction do not change."""
    changed = {name: getattr(trial, name) for name in ("state", "attempts", "started_at", "finished_at")}
    return update(trials).where(trials.c.id == trial.id).values(changed)


def insert_measurement(trial: Trial, measurement: Measurement) -> Executable:
    """How a trial ended well, with the columns that queries rank by."""
    return insert(measurements).values(
        trial_id=trial.id,
        sweep_id=trial.sweep_id,
        mfu=measurement.mfu,
        step_time_s=measurement.step_time_s,
        tokens_per_s=measurement.tokens_per_s,
        document=measurement,
    )


def insert_failure(trial: Trial, failure: TrialFailure) -> Executable:
    """How a trial ended badly."""
    return insert(failures).values(trial_id=trial.id, kind=failure.kind, document=failure)


def select_progress(trial_id: str) -> Select[int, TrialState]:
    """Number and state: what a step needs to know of its trial."""
    return select(trials.c.number, trials.c.state).where(trials.c.id == trial_id)


def insert_step(trial_id: str, step: StepReport) -> Executable:
    """A step of the running attempt."""
    return insert(steps).values(trial_id=trial_id, step=step.step, document=step)


def select_steps(trial_id: str) -> Select[StepReport]:
    """Reports in the order of their steps."""
    return select(steps.c.document).where(steps.c.trial_id == trial_id).order_by(steps.c.step)


def delete_steps(trial_id: str) -> Executable:
    """Forget the attempt's reports."""
    return delete(steps).where(steps.c.trial_id == trial_id)


# ---------------------------------------------------------------------- events
def insert_event(sweep_id: str, kind: str, data: dict[str, object], now: float) -> Executable:
    """The sweep's next event.

    Its sequence is one more than the last; that is safe because the transaction has locked the sweep or made it.
    """
    last = select(func.coalesce(func.max(events.c.sequence), 0)).where(events.c.sweep_id == sweep_id)
    sequence = last.scalar_subquery() + 1
    return insert(events).values(sweep_id=sweep_id, sequence=sequence, at=now, kind=kind, data=data)


def select_events(sweep_id: str, after: int, limit: int) -> AnySelect:
    """Rows as ``Event`` takes them, in order."""
    columns = (events.c[field.name] for field in fields(Event))
    mine = (events.c.sweep_id == sweep_id) & (events.c.sequence > after)
    return select(*columns).where(mine).order_by(events.c.sequence).limit(limit)
