"""Overviews of sweeps: the database searches, sorts, counts, sums and ranks them.

A page of sweeps takes as many queries as a single sweep.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Text, UnaryExpression, exists, func, or_, select, type_coerce

from autotuner.core.objective import Objective
from autotuner.core.run import RunState, Stop
from autotuner.core.sweep import BestSoFar, Interventions, Progress, SweepOverview
from autotuner.core.trial import TrialState, Waiting
from autotuner.store.engine import AnyRow, AnySelect, one_row, window
from autotuner.store.options import Page, SweepColumn, SweepFilter, SweepOrder
from autotuner.store.tables import comments, measurements, runs, sweeps, trials

_MOST_WORDS = 8
"""Maximum number of words in a search, since each word reads the texts of every sweep once more."""

_SEARCHED = (
    *(sweeps.c.name, sweeps.c.id, sweeps.c.model, sweeps.c.cluster),
    *(sweeps.c.trial_cluster, sweeps.c.engine, sweeps.c.created_by),
)

_RAN = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAILED)

BEST = measurements.alias("best")
"""The measurement of the trial that is ranked first in its sweep."""


def _first_ranked() -> ColumnElement[str | None]:
    """Return a query for the id of the sweep's best-ranked trial; it needs one look-up in the ranking index."""
    mine = (measurements.c.sweep_id == sweeps.c.id) & measurements.c.is_ranked
    best_first = (measurements.c.value.desc(), measurements.c.trial_id)
    return select(measurements.c.trial_id).where(mine).order_by(*best_first).limit(1).scalar_subquery()


_OF_RUN = ("started_at", "wanted", "detail", "idle_since", "idle_s", "num_reopened", "owner", "seen_at", "lease_s")

_SAID_ONCE = (
    *("id", "name", "state", "created_at", "finished_at", "stop_reason", "budget", "engine", "created_by"),
    *("model", "cluster", "trial_cluster"),
)

OVERVIEWS: AnySelect = select(
    *(sweeps.c[name] for name in _SAID_ONCE),
    *(runs.c[name] for name in _OF_RUN),
    *(sweeps.c[field.name] for field in fields(Objective)),
    BEST.c.trial_id.label("best_trial_id"),
    BEST.c.value.label("best_value"),
    BEST.c.mfu.label("best_mfu"),
    BEST.c.tokens_per_s.label("best_tokens_per_s"),
    (BEST.c.step_time_interval_s / BEST.c.step_time_s).label("best_relative_error"),
).select_from(sweeps.join(runs, runs.c.id == sweeps.c.id).outerjoin(BEST, BEST.c.trial_id == _first_ranked()))
"""Query of overviews, from the sweep's own row, the row of its run, and its best trial."""


def get_overview(connection: Connection, sweep_id: str, now: float) -> SweepOverview:
    """Return the overview of one sweep: its state, progress and best trial. Raise ``NotFound`` if it is not stored."""
    row = one_row(connection, OVERVIEWS.where(sweeps.c.id == sweep_id), "sweep", sweep_id)
    return _completed(connection, [row], now)[0]


def list_overviews(
    connection: Connection, where: SweepFilter, order: SweepOrder, page: Page, now: float
) -> tuple[Sequence[SweepOverview], int]:
    """Return one page of the overviews of sweeps that match the filter, and the total number of sweeps that match."""
    conditions = passing(where)
    query = in_order(OVERVIEWS.where(*conditions), order)
    counted = select(sweeps.c.id).select_from(sweeps).where(*conditions)
    rows, total = window(connection, query, page, counted=counted)
    return _completed(connection, rows, now), total


def select_progress(sweep_ids: Sequence[str], now: float) -> AnySelect:
    """Return the query that counts the trials of each sweep, and sums their accelerator-hours, by the trials' state.

    In a row, ``num_repeats`` is the number of trials that repeat another trial, ``hours`` are the accelerator-hours of
    trials until ``now``, and ``gate_hours`` are the accelerator-hours of their convergence gates. The query reads only
    an index.
    """
    return (
        select(
            trials.c.sweep_id,
            trials.c.state,
            func.count().label("num_trials"),
            func.count(trials.c.repeats).label("num_repeats"),
            func.coalesce(func.sum(run_hours(now)), 0.0).label("hours"),
            func.coalesce(func.sum(trials.c.gate_hours), 0.0).label("gate_hours"),
        )
        .where(trials.c.sweep_id.in_(sweep_ids))
        .group_by(trials.c.sweep_id, trials.c.state)
        .order_by(trials.c.sweep_id, trials.c.state)  # so that equal hours are summed equally in a list and alone
    )


def run_hours(now: float) -> ColumnElement[float | None]:
    """Return the SQL expression for a trial's accelerator-hours until ``now``; null if the trial has not started."""
    of_jobs = trials.c.busy_s + trials.c.num_busy * now  # null where an engine was given none
    of_attempt = func.coalesce(trials.c.finished_at, now) - trials.c.started_at
    return func.coalesce(of_jobs, of_attempt) * trials.c.world_size / 3600.0


def hours_spent(connection: Connection, sweep_ids: Sequence[str], now: float) -> dict[str, float]:
    """Return the accelerator-hours that each sweep used until ``now``, by sweep id.

    They include the hours of its trials and of their convergence gates.
    """
    hours = dict.fromkeys(sweep_ids, 0.0)
    for row in connection.execute(select_progress(sweep_ids, now)):
        hours[row.sweep_id] += row.hours + row.gate_hours
    return hours


def _completed(connection: Connection, rows: Sequence[AnyRow], now: float) -> list[SweepOverview]:
    ids = [row.id for row in rows]
    counted: dict[str, list[AnyRow]] = {sweep_id: [] for sweep_id in ids}
    for found in connection.execute(select_progress(ids, now)):
        counted[found.sweep_id].append(found)
    best: dict[str, list[BestSoFar]] = {sweep_id: [] for sweep_id in ids}
    for sweep_id, number, value in connection.execute(select_best_so_far(ids)):
        best[sweep_id].append(BestSoFar(number=number, value=value))
    tags: dict[str, dict[str, str]] = {sweep_id: {} for sweep_id in ids}
    for sweep_id, written in connection.execute(_select_tags(ids)):
        tags[sweep_id] |= {tag.lower(): tag for tag in written}
    return [
        replace(
            _overview(row, counted[row.id], now),
            best_so_far=tuple(best[row.id]),
            tags=tuple(tag for _, tag in sorted(tags[row.id].items())),
        )
        for row in rows
    ]


def _select_tags(sweep_ids: Sequence[str]) -> AnySelect:
    """Return the query for the tags of each comment on the sweeps and on their trials, oldest first."""
    mine = comments.c.sweep_id.in_(sweep_ids)
    return select(comments.c.sweep_id, comments.c.tags).where(mine).order_by(comments.c.created_at, comments.c.id)


def _overview(row: AnyRow, counted: Sequence[AnyRow], now: float) -> SweepOverview:
    """Return the overview of a sweep from its row and from its trials, which are counted in one row per state."""
    num_trials = {found.state: found.num_trials for found in counted}
    num_repeats = sum(found.num_repeats for found in counted if found.state in _RAN)
    said = dict(row._mapping)
    wanted, owner, seen_at, lease_s = (said.pop(name) for name in ("wanted", "owner", "seen_at", "lease_s"))
    idle = Interventions(**{name: said.pop(name) for name in ("idle_since", "idle_s", "num_reopened")})
    progress = Progress.of(
        row.budget,
        row.state,
        num_trials=sum(num_trials.get(state, 0) for state in _RAN) - num_repeats,
        elapsed_s=idle.worked_s(row.started_at, row.finished_at or now),
        accelerator_hours=sum(found.hours + found.gate_hours for found in counted),
    )
    return SweepOverview(
        cancel_requested=wanted is Stop.CANCEL,
        pause_requested=wanted is Stop.PAUSE,
        stop_detail=said.pop("detail"),
        num_reopened=idle.num_reopened,
        waiting=_waiting(row.state, seen_at if owner is None else seen_at + lease_s, now, has_worker=owner is not None),
        objective=Objective(**{field.name: said.pop(field.name) for field in fields(Objective)}),
        num_trials=num_trials,
        num_repeats=num_repeats,
        progress=progress,
        **said,
    )


def _waiting(state: RunState, until: float | None, now: float, *, has_worker: bool) -> Waiting | None:
    """Return why a running sweep has no worker: its lease expired at ``until``. None if the lease is valid."""
    if state is not RunState.RUNNING or until is None or now < until:
        return None
    given_up = "its worker gives no sign of life" if has_worker else "its worker has given it up"
    return Waiting(reason=f"waits for a worker: {given_up}, and the next free worker continues it", since=until)


# ---------------------------------------------------------------------- lists
def passing(where: SweepFilter) -> list[ColumnElement[bool]]:
    """Return the SQL conditions on ``sweeps`` for the sweeps that match the filter."""
    conditions = [_says(word) for word in where.text.split()[:_MOST_WORDS]]
    if where.state is not None:
        conditions.append(sweeps.c.state == where.state)
    if where.owner is not None:
        conditions.append(sweeps.c.created_by == where.owner)
    if where.tag is not None:
        has_tag = type_coerce(comments.c.tags, Text).icontains(f'"{where.tag}"', autoescape=True)
        conditions.append(exists().where(comments.c.sweep_id == sweeps.c.id, has_tag))
    return conditions


def _says(word: str) -> ColumnElement[bool]:
    return or_(*(column.icontains(word, autoescape=True) for column in _SEARCHED))


def in_order(query: AnySelect, order: SweepOrder) -> AnySelect:
    """Return the query with its rows in the given order. The query must join ``BEST``, the best trial of each sweep."""
    newest = (sweeps.c.created_at.desc(), sweeps.c.id.desc())
    if order.column is SweepColumn.CREATED:
        return query.order_by(*(newest if order.is_descending else (sweeps.c.created_at, sweeps.c.id)))
    return query.order_by(_directed(_COLUMNS[order.column], order), *newest)


def _directed(column: ColumnElement[Any], order: SweepOrder) -> UnaryExpression[Any]:
    return (column.desc() if order.is_descending else column.asc()).nulls_last()


def _num_trials() -> ColumnElement[int | None]:
    mine = (trials.c.sweep_id == sweeps.c.id) & trials.c.state.in_(_RAN) & trials.c.repeats.is_(None)
    return select(func.count()).select_from(trials).where(mine).scalar_subquery()


def _hours_ended() -> ColumnElement[float | None]:
    """Return a query for the accelerator-hours of a sweep's ended trials and convergence gates.

    Running trials are left out, so that sweeps can be sorted by this number.
    """
    seconds = func.coalesce(trials.c.busy_s, trials.c.finished_at - trials.c.started_at)
    hours = seconds * trials.c.world_size / 3600.0 + func.coalesce(trials.c.gate_hours, 0.0)
    ended = (trials.c.sweep_id == sweeps.c.id) & trials.c.finished_at.is_not(None)
    return select(func.coalesce(func.sum(hours), 0.0)).where(ended).scalar_subquery()


_COLUMNS: Mapping[SweepColumn, ColumnElement[Any]] = {
    SweepColumn.NAME: func.lower(func.coalesce(func.nullif(sweeps.c.name, ""), sweeps.c.id)),
    SweepColumn.STATE: sweeps.c.state,
    SweepColumn.MFU: BEST.c.mfu,
    SweepColumn.TOKENS_PER_S: BEST.c.tokens_per_s,
    SweepColumn.TRIALS: _num_trials(),
    SweepColumn.ACCELERATOR_HOURS: _hours_ended(),
    SweepColumn.OWNER: func.nullif(sweeps.c.created_by, ""),
    SweepColumn.CLUSTER: sweeps.c.cluster,
}


def select_best_so_far(sweep_ids: list[str]) -> AnySelect:
    """Return the query for the trials of each sweep that were better than every ranked trial with a lower number.

    A row has the sweep of the trial, its number and its value of the objective. Rows are ordered by sweep and number.
    """
    before = func.max(measurements.c.value).over(
        partition_by=measurements.c.sweep_id, order_by=trials.c.number, rows=(None, -1)
    )
    ranked = (
        select(measurements.c.sweep_id, trials.c.number, measurements.c.value, before.label("before"))
        .join_from(measurements, trials, trials.c.id == measurements.c.trial_id)
        .where(measurements.c.sweep_id.in_(sweep_ids), measurements.c.is_ranked)
        .subquery()
    )
    better = ranked.c.before.is_(None) | (ranked.c.value > ranked.c.before)
    columns = (ranked.c.sweep_id, ranked.c.number, ranked.c.value)
    return select(*columns).where(better).order_by(ranked.c.sweep_id, ranked.c.number)


def select_owners() -> Select[str]:
    """Return the query for the names of all callers who own a sweep, in alphabetical order. It reads only an index.

    Sweeps of anonymous callers have no owner.
    """
    return select(sweeps.c.created_by).where(sweeps.c.created_by != "").distinct().order_by(sweeps.c.created_by)
