"""What is removed because of its age, on SQLite and PostgreSQL."""

# ruff: noqa: D102  # the port documents every method

from __future__ import annotations

from sqlalchemy import Connection, Engine, Select, delete, exists, or_, select, update

from autotuner.core.trial import TrialState
from autotuner.ports.retention import ThinnedSweep
from autotuner.store.announcements import deliveries_of
from autotuner.store.engine import writing
from autotuner.store.tables import announcements, audit, events, measurements, runs, steps, sweeps, trials

_THINNED_KINDS = ("trial.step", "trial.link_event", "trial.note", "trial.waiting", "trial.resumed", "trial.job")
"""Events of what went on inside trials."""

_BATCH = 1000  # rows per transaction, so that nobody waits long for one


class SqlRetention:
    """The RetentionStore port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def thin_sweep(self, *, before: float, now: float) -> ThinnedSweep | None:
        with writing(self._engine) as connection:
            sweep_id = connection.scalar(select_thinnable(before).with_for_update(skip_locked=True))
            return None if sweep_id is None else _thin(connection, sweep_id, now)

    def prune_announcements(self, *, before: float) -> int:
        pending = exists().where(runs.c.parent_id == announcements.c.id, runs.c.finished_at.is_(None))
        old = select(announcements.c.id).where(announcements.c.at < before, ~pending).order_by(announcements.c.at)
        with writing(self._engine) as connection:
            ids = connection.scalars(old.limit(_BATCH)).all()
            connection.execute(delete(runs).where(deliveries_of(ids)))
            return connection.execute(delete(announcements).where(announcements.c.id.in_(ids))).rowcount

    def prune_plans(self, *, before: float) -> int:
        with writing(self._engine) as connection:
            old = select(runs.c.id).where(runs.c.kind == "plan", runs.c.created_at < before).limit(_BATCH)
            return connection.execute(delete(runs).where(runs.c.id.in_(connection.scalars(old).all()))).rowcount

    def prune_audit(self, *, before: float) -> int:
        with writing(self._engine) as connection:
            ids = connection.scalars(select(audit.c.id).where(audit.c.at < before).limit(_BATCH)).all()
            return connection.execute(delete(audit).where(audit.c.id.in_(ids))).rowcount


def select_thinnable(before: float) -> Select[str]:
    """Id of the sweep that ended first, at that time at the latest, and was not thinned since."""
    is_new = or_(sweeps.c.thinned_at.is_(None), sweeps.c.thinned_at < sweeps.c.finished_at)
    ended = sweeps.c.finished_at <= before
    return select(sweeps.c.id).where(ended, is_new).order_by(sweeps.c.finished_at).limit(1)


def _thin(connection: Connection, sweep_id: str, now: float) -> ThinnedSweep:
    measured = select(trials.c.id).where(trials.c.sweep_id == sweep_id, trials.c.state == TrialState.COMPLETE)
    inside = (events.c.sweep_id == sweep_id) & events.c.kind.in_(_THINNED_KINDS)
    num_steps = connection.execute(delete(steps).where(steps.c.trial_id.in_(measured))).rowcount
    connection.execute(update(measurements).where(measurements.c.trial_id.in_(measured)).values(timeline=None))
    num_events = connection.execute(delete(events).where(inside)).rowcount
    connection.execute(update(sweeps).where(sweeps.c.id == sweep_id).values(thinned_at=now))
    return ThinnedSweep(sweep_id=sweep_id, num_steps=num_steps, num_events=num_events)
