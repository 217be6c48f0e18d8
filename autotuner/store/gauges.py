"""What an operator watches of everything that is stored, on SQLite and PostgreSQL."""

# ruff: noqa: D102  # the port documents every method

from __future__ import annotations

from sqlalchemy import Engine, Select, func, select

from autotuner.core.run import OPEN, RunState
from autotuner.core.trial import TrialState
from autotuner.ports.gauges import Gauges
from autotuner.store.engine import reading
from autotuner.store.tables import runs, sweeps, trials

_HOUR_S = 3600.0

_UNFINISHED = [state for state in RunState if not state.is_finished]


class SqlGauges:
    """The GaugeStore port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def read(self, *, now: float) -> Gauges:
        waiting = select(func.min(sweeps.c.created_at)).where(sweeps.c.state == RunState.QUEUED)
        pending = select(func.count(), func.min(runs.c.created_at)).where(
            runs.c.kind == "delivery", runs.c.state.in_(OPEN)
        )
        with reading(self._engine) as connection:
            num_pending, oldest_pending_at = connection.execute(pending).one()
            return Gauges(
                num_sweeps=dict(connection.execute(select_sweeps()).all()),
                num_open_trials=dict(connection.execute(select_open_trials()).all()),
                num_ended_trials=dict(connection.execute(select_ended_trials(now - _HOUR_S)).all()),
                oldest_queued_at=connection.scalar(waiting),
                num_pending_deliveries=num_pending,
                oldest_pending_at=oldest_pending_at,
            )


def select_sweeps() -> Select[RunState, int]:
    """How many sweeps are in each state, from an index alone."""
    return select(sweeps.c.state, func.count()).group_by(sweeps.c.state)


def select_open_trials() -> Select[TrialState, int]:
    """How many trials of unfinished sweeps are in each state, from indexes alone."""
    query = select(trials.c.state, func.count()).join_from(sweeps, trials, trials.c.sweep_id == sweeps.c.id)
    return query.where(sweeps.c.state.in_(_UNFINISHED)).group_by(trials.c.state)


def select_ended_trials(since: float) -> Select[TrialState, int]:
    """How many trials have ended since in each state, from the newest on."""
    return select(trials.c.state, func.count()).where(trials.c.finished_at > since).group_by(trials.c.state)
