"""Lists of sweeps as people ask for them: searched, filtered and ordered by the database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Select, UnaryExpression, func, or_, select

from autotuner.core.trial import TrialState
from autotuner.store.options import SweepColumn, SweepFilter, SweepOrder
from autotuner.store.statements import AnySelect
from autotuner.store.tables import gates, measurements, sweeps, trials

_MOST_WORDS = 8
"""Each word of a search reads every sweep's texts once more."""

_SEARCHED = (
    *(sweeps.c.name, sweeps.c.id, sweeps.c.model_name, sweeps.c.cluster_name),
    *(sweeps.c.trial_cluster_name, sweeps.c.engine, sweeps.c.created_by),
)

BEST = measurements.alias("best")
"""The measurement of the trial that is ranked first of its sweep."""


def passing(where: SweepFilter) -> list[ColumnElement[bool]]:
    """The filter as conditions on ``sweeps``."""
    conditions = [_says(word) for word in where.text.split()[:_MOST_WORDS]]
    if where.state is not None:
        conditions.append(sweeps.c.state == where.state)
    if where.owner is not None:
        conditions.append(sweeps.c.created_by == where.owner)
    return conditions


def _says(word: str) -> ColumnElement[bool]:
    return or_(*(column.icontains(word, autoescape=True) for column in _SEARCHED))


def in_order(query: AnySelect, order: SweepOrder) -> AnySelect:
    """The query, which joins ``BEST``, in that order; newest first, that is the order of an index."""
    newest = (sweeps.c.created_at.desc(), sweeps.c.id.desc())
    if order.column is SweepColumn.CREATED:
        return query.order_by(*(newest if order.is_descending else (sweeps.c.created_at, sweeps.c.id)))
    return query.order_by(_directed(_COLUMNS[order.column], order), *newest)


def _directed(column: ColumnElement[Any], order: SweepOrder) -> UnaryExpression[Any]:
    return (column.desc() if order.is_descending else column.asc()).nulls_last()


def _num_trials() -> ColumnElement[int | None]:
    ran = trials.c.state.in_((TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAILED))
    mine = (trials.c.sweep_id == sweeps.c.id) & ran & trials.c.repeats.is_(None)
    return select(func.count()).select_from(trials).where(mine).scalar_subquery()


def _hours_ended() -> ColumnElement[float | None]:
    """Accelerator-hours of trials that have ended, and of loss gates: what an order can rest on."""
    seconds = func.coalesce(trials.c.busy_s, trials.c.finished_at - trials.c.started_at)
    of_trials = select(func.coalesce(func.sum(seconds * trials.c.world_size / 3600.0), 0.0))
    mine = of_trials.where(trials.c.sweep_id == sweeps.c.id, trials.c.finished_at.is_not(None)).scalar_subquery()
    of_gates = select(func.coalesce(func.sum(gates.c.accelerator_hours), 0.0))
    return mine + of_gates.where(gates.c.sweep_id == sweeps.c.id).scalar_subquery()


_COLUMNS: Mapping[SweepColumn, ColumnElement[Any]] = {
    SweepColumn.NAME: func.lower(func.coalesce(func.nullif(sweeps.c.name, ""), sweeps.c.id)),
    SweepColumn.STATE: sweeps.c.state,
    SweepColumn.MFU: BEST.c.mfu,
    SweepColumn.TOKENS_PER_S: BEST.c.tokens_per_s,
    SweepColumn.TRIALS: _num_trials(),
    SweepColumn.ACCELERATOR_HOURS: _hours_ended(),
    SweepColumn.OWNER: func.nullif(sweeps.c.created_by, ""),
    SweepColumn.CLUSTER: sweeps.c.cluster_name,
}


def select_best_so_far(sweep_ids: list[str]) -> AnySelect:
    """Number and value of each ranked trial that was better than all before it, by sweep: a few rows of many trials."""
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
    """Names of all who asked for a sweep, from an index alone; whoever was not asked has none."""
    return select(sweeps.c.created_by).where(sweeps.c.created_by != "").distinct().order_by(sweeps.c.created_by)
