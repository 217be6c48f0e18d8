"""The SQL statements, and the values that their rows become."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any, TypeAlias

from sqlalchemy import (
    ColumnElement,
    Executable,
    Row,
    Select,
    func,
    insert,
    select,
    update,
)

from autotuner.core.convergence_gate import GateResult
from autotuner.core.errors import InvalidInput
from autotuner.core.measurement import Measurement, StepReport
from autotuner.core.objective import Objective
from autotuner.core.prediction import TrialEstimate
from autotuner.core.run import Lease, RunState, Stop
from autotuner.core.sweep import Demand, Interventions, Sweep, SweepRequest, job_key
from autotuner.core.timeline import StepTimeline
from autotuner.core.trial import RankedTime, Trial, TrialFailure, TrialState
from autotuner.store.options import TrialFilter
from autotuner.store.tables import events, failures, gates, measurements, runs, steps, sweeps, trials
from autotuner.store.tables.columns import read_document

AnyRow: TypeAlias = Row[*tuple[Any, ...]]
AnySelect: TypeAlias = Select[*tuple[Any, ...]]


# ---------------------------------------------------------------------- sweeps
_OF_RUN = (
    *("id", "state", "created_at", "started_at", "finished_at", "created_by", "wanted", "detail", "request", "demand"),
    *("idle_since", "idle_s", "num_reopened", "owner", "claim", "renewals", "lease_s"),
)

SWEEPS: AnySelect = select(*(runs.c[name] for name in _OF_RUN), sweeps.c.stop_reason, sweeps.c.prospects).select_from(
    sweeps.join(runs, runs.c.id == sweeps.c.id)
)
"""Sweeps, with what was asked of each as text: one that cannot be read does not keep the others from being read."""


def read_sweep(row: AnyRow) -> Sweep:
    """Return the sweep in a row of ``SWEEPS``. Its request has the budget that it has now.

    Raises:
        Unreadable: Another release wrote it.
    """
    asked, demand = read_document(SweepRequest, row.request), read_document(Demand, row.demand)
    return Sweep(
        id=row.id,
        request=replace(asked, budget=demand.budget),
        state=row.state,
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        cancel_requested=row.wanted is Stop.CANCEL,
        stop_reason=row.stop_reason,
        stop_detail=row.detail,
        created_by=row.created_by,
        pause_requested=row.wanted is Stop.PAUSE,
        lease=read_lease(row),
        interventions=Interventions(
            idle_since=row.idle_since,
            idle_s=row.idle_s,
            num_reopened=row.num_reopened,
            reruns=demand.reruns,
            ended=None if row.state.is_finished else demand.ended,
        ),
        prospects=row.prospects,
    )


def read_readable(rows: Sequence[AnyRow]) -> Iterator[Sweep]:
    """Return the sweeps in rows of ``SWEEPS`` but for those that another release wrote and this one cannot read."""
    for row in rows:
        with suppress(InvalidInput):
            yield read_sweep(row)


def read_lease(row: AnyRow) -> Lease | None:
    """Return the lease in a row of ``runs``, or None if nobody holds the run."""
    if row.owner is None:
        return None
    return Lease(run_id=row.id, owner=row.owner, claim=row.claim, renewals=row.renewals, lease_s=row.lease_s)


def insert_sweep(sweep: Sweep) -> Executable:
    """Return the statement for the columns that a list shows of a new sweep, beside its run."""
    request = sweep.request
    return insert(sweeps).values(
        id=sweep.id,
        created_at=sweep.created_at,
        created_by=sweep.created_by,
        state=sweep.state,
        name=request.name,
        model_name=request.job.model.name,
        cluster_name=request.job.cluster.name,
        engine=request.runs_on.engine,
        trial_cluster_name=request.trial_cluster.name if request.trial_cluster else None,
        **{field.name: getattr(request.objective, field.name) for field in fields(request.objective)},
        budget=request.budget,
        accelerator=request.runs_on.accelerator.name,
        stack=request.job.stack.name,
        job_key=job_key(request),
    )


def newest_first(query: AnySelect, state: RunState | None) -> AnySelect:
    """Sweeps in the order of a list, those of one state or all."""
    chosen = query if state is None else query.where(sweeps.c.state == state)
    return chosen.order_by(sweeps.c.created_at.desc(), sweeps.c.id.desc())


# ---------------------------------------------------------------------- trials
_TRIAL_COLUMNS = [trials.c[field.name] for field in fields(Trial) if field.name in trials.c]

_MEASURED = (measurements.c.document.label("measurement"), measurements.c.estimate)
_GATE = gates.c.document.label("gate")

TRIALS: AnySelect = (
    select(*_TRIAL_COLUMNS, *_MEASURED, failures.c.document.label("failure"), _GATE)
    .select_from(trials)
    .outerjoin(measurements, measurements.c.trial_id == trials.c.id)
    .outerjoin(failures, failures.c.trial_id == trials.c.id)
    .outerjoin(gates, gates.c.trial_id == trials.c.id)
)


def ranking(sweep_id: str | None, where: TrialFilter) -> AnySelect:
    """Trials that have a rank, the best first: in the order of an index of ``measurements``, so nothing is sorted."""
    query = (
        select(*_TRIAL_COLUMNS, *_MEASURED, _GATE)
        .select_from(measurements)
        .join(trials, trials.c.id == measurements.c.trial_id)
        .outerjoin(gates, gates.c.trial_id == measurements.c.trial_id)
        .where(*passing(where))
    )
    return _best_first(query, sweep_id)


def ranked_ids(sweep_id: str | None, where: TrialFilter) -> AnySelect:
    """The ids of the same, from an index alone where nothing is filtered."""
    query = select(measurements.c.trial_id).select_from(measurements)
    if filtered := passing(where):
        query = query.join(trials, trials.c.id == measurements.c.trial_id).where(*filtered)
    return _best_first(query, sweep_id)


def ranked_times(sweep_id: str, *, with_worths: bool) -> AnySelect:
    """Rows as ``RankedTime`` takes them, the best first, without repeats; what steps are worth, where that differs."""
    names = (field.name for field in fields(RankedTime) if field.name in measurements.c)
    worth = (measurements.c.value * measurements.c.step_time_s).label("worth_per_step")
    columns = [*(measurements.c[name] for name in names), *([worth] if with_worths else [])]
    return _best_first(select(*columns), sweep_id)


def repeated_times(sweep_id: str) -> Select[int | None, float]:
    """Step times of trials that repeat others, with the number of the one that each repeats."""
    return (
        select(trials.c.repeats, measurements.c.step_time_s)
        .join_from(trials, measurements, measurements.c.trial_id == trials.c.id)
        .where(trials.c.sweep_id == sweep_id, trials.c.repeats.is_not(None))
        .order_by(trials.c.number)
    )


def count_trials(sweep_id: str) -> Select[int]:
    """How many trials a sweep has, from an index alone."""
    return select(func.count()).select_from(trials).where(trials.c.sweep_id == sweep_id)


def _best_first(query: AnySelect, sweep_id: str | None) -> AnySelect:
    """Of what is ranked: a sweep by its objective's value, all sweeps by MFU; equal ones by id."""
    ranked = query.where(measurements.c.is_ranked)
    if sweep_id is None:
        return ranked.order_by(measurements.c.mfu.desc(), measurements.c.trial_id)
    mine = ranked.where(measurements.c.sweep_id == sweep_id)
    return mine.order_by(measurements.c.value.desc(), measurements.c.trial_id)


def read_trial(row: AnyRow, reports: Sequence[StepReport] = ()) -> Trial:
    """The trial in a row of ``TRIALS`` or of ``ranking``."""
    return Trial(**row._mapping, steps=tuple(reports))


def select_timeline(trial_id: str) -> Select[StepTimeline | None]:
    """The step that was recorded of a trial; no row where it measured nothing."""
    return select(measurements.c.timeline).where(measurements.c.trial_id == trial_id)


def passing(where: TrialFilter) -> list[ColumnElement[bool]]:
    """The filter as conditions on ``trials``."""
    return [
        trials.c[field.name] == value for field in fields(where) if (value := getattr(where, field.name)) is not None
    ]


def insert_trial(trial: Trial) -> Executable:
    """A new row, with the columns that queries filter by."""
    degrees = {field.name: getattr(trial.layout, field.name) for field in fields(TrialFilter) if field.name != "state"}
    values = {column.name: getattr(trial, column.name) for column in _TRIAL_COLUMNS}
    return insert(trials).values(values | degrees | _busy(trial) | {"world_size": trial.ran.world_size})


def update_trial(trial: Trial) -> Executable:
    """The row as the trial now is; number, layout, prediction and what stands for it do not change."""
    changed = {
        name: getattr(trial, name)
        for name in ("state", "attempts", "started_at", "finished_at", "stopped", "jobs", "waiting", "runs")
    }
    return update(trials).where(trials.c.id == trial.id).values(changed | _busy(trial))


def _busy(trial: Trial) -> dict[str, float | int | None]:
    """What tells at any time for how long its jobs had accelerators: that is ``busy_s + num_busy * now``.

    A trial without jobs that waits is told in the same way; its clock stands still.
    """
    started = [job for job in trial.jobs if job.started_at is not None]
    seconds = sum((job.ended_at or 0.0) - (job.started_at or 0.0) for job in started)
    if trial.waiting is not None and not trial.jobs:
        return {"busy_s": trial.worked_s(trial.waiting.since), "num_busy": 0}
    return {
        "busy_s": seconds if trial.jobs else None,
        "num_busy": sum(job.ended_at is None for job in started),
    }


def insert_measurement(trial: Trial, measurement: Measurement, objective: Objective) -> Executable:
    """How a trial ended well, with the columns that queries rank by."""
    return insert(measurements).values(
        trial_id=trial.id,
        sweep_id=trial.sweep_id,
        document=replace(measurement, timeline=None),
        timeline=measurement.timeline,
        noise_floor=measurement.noise_floor,
        estimate=trial.estimate,
        **_rank(trial, trial.reached or measurement, objective),
    )


def update_estimate(trial: Trial, objective: Objective) -> Executable:
    """What is estimated of a trial now, which gives it another rank."""
    assert trial.reached is not None, "an estimate is what it is ranked by"
    ranked = _rank(trial, trial.reached, objective)
    return update(measurements).where(measurements.c.trial_id == trial.id).values(estimate=trial.estimate, **ranked)


def _rank(trial: Trial, reached: Measurement | TrialEstimate, objective: Objective) -> dict[str, Any]:
    """The columns that queries rank by: those of all sweeps by healthy figures, those of one by what counts there."""
    counted = objective.counted(reached)
    return {
        "mfu": reached.mfu,
        "step_time_s": counted.step_time_s,
        "tokens_per_s": reached.tokens_per_s,
        "is_ranked": trial.is_ranked,
        "value": objective.value(reached),
        "step_time_interval_s": counted.step_time_error_s,
    }


def insert_gate(trial: Trial, result: GateResult) -> Executable:
    """What a loss gate found of a trial, with the columns that queries sum."""
    return insert(gates).values(
        trial_id=trial.id,
        sweep_id=trial.sweep_id,
        outcome=result.outcome,
        accelerator_hours=result.accelerator_hours,
        document=result,
    )


def update_rank(trial: Trial) -> Executable:
    """Whether the trial is ranked, as the trial itself says."""
    return update(measurements).where(measurements.c.trial_id == trial.id).values(is_ranked=trial.is_ranked)


def insert_failure(trial: Trial, failure: TrialFailure) -> Executable:
    """How a trial ended badly."""
    return insert(failures).values(trial_id=trial.id, kind=failure.kind, document=failure)


def select_progress(trial_id: str) -> Select[int, TrialState]:
    """Number and state: what a step needs to know of its trial."""
    return select(trials.c.number, trials.c.state).where(trials.c.id == trial_id)


def select_steps(trial_id: str) -> Select[StepReport]:
    """Reports in the order of their steps."""
    return select(steps.c.document).where(steps.c.trial_id == trial_id).order_by(steps.c.step)


# ---------------------------------------------------------------------- events
def insert_event(sweep_id: str, kind: str, data: dict[str, object], now: float) -> Executable:
    """The sweep's next event.

    Its sequence is one more than the last; that is safe because the transaction has locked the sweep or made it.
    """
    last = select(func.coalesce(func.max(events.c.sequence), 0)).where(events.c.sweep_id == sweep_id)
    sequence = last.scalar_subquery() + 1
    return insert(events).values(sweep_id=sweep_id, sequence=sequence, at=now, kind=kind, data=data)
