"""Overviews of sweeps: counted, summed and ranked by the database, in as many queries for a page as for one sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from sqlalchemy import ColumnElement, Connection, func, select

from autotuner.core.errors import NotFound
from autotuner.core.objective import Objective
from autotuner.core.run import Stop
from autotuner.core.sweep import BestSoFar, Interventions, SweepOverview
from autotuner.core.trial import TrialState
from autotuner.store import records, sweep_lists
from autotuner.store.options import Page, SweepFilter, SweepOrder
from autotuner.store.statements import AnyRow, AnySelect
from autotuner.store.sweep_lists import BEST
from autotuner.store.tables import gates, measurements, runs, sweeps, trials


def _first_ranked() -> ColumnElement[str | None]:
    """Id of the sweep's trial ranked first: one look into the index that ranks it."""
    mine = (measurements.c.sweep_id == sweeps.c.id) & measurements.c.is_ranked
    best_first = (measurements.c.value.desc(), measurements.c.trial_id)
    return select(measurements.c.trial_id).where(mine).order_by(*best_first).limit(1).scalar_subquery()


_OF_RUN = ("started_at", "wanted", "detail", "idle_since", "idle_s", "num_reopened", "owner", "seen_at", "lease_s")

_SAID_ONCE = ("id", "name", "state", "created_at", "finished_at", "stop_reason", "budget", "engine", "created_by")

OVERVIEWS: AnySelect = select(
    *(sweeps.c[name] for name in _SAID_ONCE),
    *(runs.c[name] for name in _OF_RUN),
    sweeps.c.model_name.label("model"),
    sweeps.c.cluster_name.label("cluster"),
    sweeps.c.trial_cluster_name.label("trial_cluster"),
    *(sweeps.c[field.name] for field in fields(Objective)),
    BEST.c.trial_id.label("best_trial_id"),
    BEST.c.value.label("best_value"),
    BEST.c.mfu.label("best_mfu"),
    BEST.c.tokens_per_s.label("best_tokens_per_s"),
    (BEST.c.step_time_interval_s / BEST.c.step_time_s).label("best_relative_error"),
).select_from(sweeps.join(runs, runs.c.id == sweeps.c.id).outerjoin(BEST, BEST.c.trial_id == _first_ranked()))
"""What a sweep's own row, that of its run and the ranking say."""


def get_overview(connection: Connection, sweep_id: str, now: float) -> SweepOverview:
    """One sweep; ``NotFound`` without it."""
    rows = connection.execute(OVERVIEWS.where(sweeps.c.id == sweep_id)).all()
    if not rows:
        raise NotFound("sweep", sweep_id)
    return _completed(connection, rows, now)[0]


def list_overviews(
    connection: Connection, where: SweepFilter, order: SweepOrder, page: Page, now: float
) -> tuple[Sequence[SweepOverview], int]:
    """A page of those that pass, and how many there are."""
    passing = sweep_lists.passing(where)
    query = sweep_lists.in_order(OVERVIEWS.where(*passing), order)
    rows, total = records.window(
        connection, query, page, counted=select(sweeps.c.id).select_from(sweeps).where(*passing)
    )
    return _completed(connection, rows, now), total


def select_progress(sweep_ids: Sequence[str], now: float) -> AnySelect:
    """How many trials, repeats and accelerator-hours each sweep has in each state, from an index alone."""
    hours = func.coalesce(func.sum(run_hours(now)), 0.0)
    return (
        select(
            trials.c.sweep_id,
            trials.c.state,
            func.count().label("num_trials"),
            func.count(trials.c.repeats).label("num_repeats"),
            hours.label("accelerator_hours"),
        )
        .where(trials.c.sweep_id.in_(sweep_ids))
        .group_by(trials.c.sweep_id, trials.c.state)
    )


def run_hours(now: float) -> ColumnElement[float | None]:
    """Accelerator-hours of a trial's row until now; null before it starts, so that it is not summed."""
    of_jobs = trials.c.busy_s + trials.c.num_busy * now  # null where an engine was given none
    of_attempt = func.coalesce(trials.c.finished_at, now) - trials.c.started_at
    return func.coalesce(of_jobs, of_attempt) * trials.c.world_size / 3600.0


def hours_spent(connection: Connection, sweep_ids: Sequence[str], now: float) -> dict[str, float]:
    """Accelerator-hours of each sweep's trials and loss gates until now."""
    hours = dict.fromkeys(sweep_ids, 0.0)
    for row in connection.execute(select_progress(sweep_ids, now)):
        hours[row.sweep_id] += row.accelerator_hours
    for sweep_id, gate_hours in connection.execute(select_gate_hours(sweep_ids)):
        hours[sweep_id] += gate_hours
    return hours


def select_gate_hours(sweep_ids: Sequence[str]) -> AnySelect:
    """Accelerator-hours of loss gates by sweep, from an index alone."""
    hours = func.sum(gates.c.accelerator_hours)
    return select(gates.c.sweep_id, hours).where(gates.c.sweep_id.in_(sweep_ids)).group_by(gates.c.sweep_id)


def _completed(connection: Connection, rows: Sequence[AnyRow], now: float) -> list[SweepOverview]:
    ids = [row.id for row in rows]
    num_trials: dict[str, dict[TrialState, int]] = {sweep_id: {} for sweep_id in ids}
    num_repeats, hours = dict.fromkeys(ids, 0), dict.fromkeys(ids, 0.0)
    for sweep_id, state, count, repeats, state_hours in connection.execute(select_progress(ids, now)):
        num_trials[sweep_id][state] = count
        num_repeats[sweep_id] += repeats if state in _RAN else 0
        hours[sweep_id] += state_hours
    for sweep_id, gate_hours in connection.execute(select_gate_hours(ids)):
        hours[sweep_id] += gate_hours
    best = _best_so_far(connection, ids)
    return [_overview(row, num_trials[row.id], num_repeats[row.id], hours[row.id], best[row.id]) for row in rows]


def _best_so_far(connection: Connection, sweep_ids: list[str]) -> dict[str, list[BestSoFar]]:
    found: dict[str, list[BestSoFar]] = {sweep_id: [] for sweep_id in sweep_ids}
    for sweep_id, number, value in connection.execute(sweep_lists.select_best_so_far(sweep_ids)):
        found[sweep_id].append(BestSoFar(number=number, value=value))
    return found


_RAN = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAILED)


def _overview(
    row: AnyRow,
    num_trials: dict[TrialState, int],
    num_repeats: int,
    accelerator_hours: float,
    best_so_far: Sequence[BestSoFar],
) -> SweepOverview:
    said = dict(row._mapping)
    wanted, owner, seen_at, lease_s = (said.pop(name) for name in ("wanted", "owner", "seen_at", "lease_s"))
    idle = {name: said.pop(name) for name in ("idle_since", "idle_s", "num_reopened")}
    return SweepOverview(
        cancel_requested=wanted is Stop.CANCEL,
        pause_requested=wanted is Stop.PAUSE,
        stop_detail=said.pop("detail"),
        interventions=Interventions(**idle),
        has_worker=owner is not None,
        lease_until=seen_at if owner is None else seen_at + lease_s,
        objective=Objective(**{field.name: said.pop(field.name) for field in fields(Objective)}),
        num_trials=num_trials,
        num_repeats=num_repeats,
        accelerator_hours=accelerator_hours,
        best_so_far=tuple(best_so_far),
        **said,
    )
