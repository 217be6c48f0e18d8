"""Retention: removes records older than the retention periods that an operator sets."""

from __future__ import annotations

from dataclasses import dataclass, fields

from sqlalchemy import ColumnElement, Connection, Select, Table, delete, exists, or_, select, update

from autotuner.core.access import DAY_S
from autotuner.core.trial import TrialState
from autotuner.store.announcements import deliveries_of
from autotuner.store.engine import writing
from autotuner.store.options import Ages
from autotuner.store.runs import Part
from autotuner.store.tables import announcements, audit, events, measurements, runs, steps, sweeps, trials

_THINNED_KINDS = ("trial.step", "trial.link_event", "trial.note", "trial.waiting", "trial.resumed", "trial.job")
"""Kinds of events that happen inside trials."""

_BATCH = 1000  # rows per transaction, so that others do not wait long


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinned:
    """The numbers of records that were removed because they were too old, by kind.

    ``num_sweeps`` counts sweeps that lost their steps.
    """

    num_sweeps: int = 0
    num_steps: int = 0
    num_events: int = 0
    num_announcements: int = 0
    num_plans: int = 0
    num_audit_entries: int = 0

    def __add__(self, other: Thinned) -> Thinned:
        names = [field.name for field in fields(self)]
        return Thinned(**{name: getattr(self, name) + getattr(other, name) for name in names})


class Retention(Part):
    """Removes records that are older than their retention period. Every method except ``run`` is one transaction."""

    def run(self, ages: Ages, *, now: float) -> Thinned:
        """Remove all records that are older than their retention period, and return how many were removed."""
        done = Thinned()
        while (more := self.step(ages, now=now)) is not None:
            done += more
        return done

    def step(self, ages: Ages, *, now: float) -> Thinned | None:
        """Remove one batch of old records in one short transaction. Return None if there were none."""
        if ages.steps is not None and (done := self.thin_sweep(before=now - ages.steps * DAY_S, now=now)):
            return done
        for days, prune, counted in (
            (ages.announcements, self.prune_announcements, "num_announcements"),
            (ages.plans, self.prune_plans, "num_plans"),
            (ages.audit, self.prune_audit, "num_audit_entries"),
        ):
            if days is not None and (num := prune(before=now - days * DAY_S)):
                return Thinned(**{counted: num})
        return None

    def thin_sweep(self, *, before: float, now: float) -> Thinned | None:
        """Remove the details of one sweep that ended at ``before`` or earlier; return None if no such sweep is left.

        It is the sweep that ended first, among the sweeps that still have their details. The details are the steps and
        timelines of its measured trials, and the events about steps, notes and jobs of all its trials. Everything from
        which later sweeps learn stays: the other results of measurements, the beginning and the end of the trials and
        the sweep, and the steps of trials that were ended early.
        """
        with writing(self._engine) as connection:
            sweep_id = connection.scalar(select_thinnable(before).with_for_update(skip_locked=True))
            return None if sweep_id is None else _thin(connection, sweep_id, now)

    def prune_announcements(self, *, before: float) -> int:
        """Remove one batch of announcements that are older than ``before``, with their deliveries.

        Return their number; 0 if no more are left. An announcement whose delivery is not finished stays.
        """
        pending = exists().where(runs.c.parent_id == announcements.c.id, runs.c.finished_at.is_(None))
        old = select(announcements.c.id).where(announcements.c.at < before, ~pending).order_by(announcements.c.at)
        with writing(self._engine) as connection:
            ids = connection.scalars(old.limit(_BATCH)).all()
            connection.execute(delete(runs).where(deliveries_of(ids)))
            return connection.execute(delete(announcements).where(announcements.c.id.in_(ids))).rowcount

    def prune_plans(self, *, before: float) -> int:
        """Remove one batch of plans that were first requested before ``before``.

        Return their number; 0 if no more are left.
        """
        with writing(self._engine) as connection:
            return _prune(connection, runs, (runs.c.kind == "plan") & (runs.c.created_at < before))

    def prune_audit(self, *, before: float) -> int:
        """Remove one batch of audit log entries that are older than ``before``.

        Return their number; 0 if no more are left.
        """
        with writing(self._engine) as connection:
            return _prune(connection, audit, audit.c.at < before)


def _prune(connection: Connection, table: Table, is_old: ColumnElement[bool]) -> int:
    """Remove a batch of the old rows and return how many were removed; 0 means that no old rows are left."""
    ids = connection.scalars(select(table.c.id).where(is_old).limit(_BATCH)).all()
    return connection.execute(delete(table).where(table.c.id.in_(ids))).rowcount


def select_thinnable(before: float) -> Select[str]:
    """Return the query for the sweep to remove details of next: it ended first, at ``before`` or earlier.

    The query gives the id of the sweep. Sweeps without details are left out.
    """
    is_new = or_(sweeps.c.thinned_at.is_(None), sweeps.c.thinned_at < sweeps.c.finished_at)
    ended = sweeps.c.finished_at <= before
    return select(sweeps.c.id).where(ended, is_new).order_by(sweeps.c.finished_at).limit(1)


def _thin(connection: Connection, sweep_id: str, now: float) -> Thinned:
    measured = select(trials.c.id).where(trials.c.sweep_id == sweep_id, trials.c.state == TrialState.COMPLETE)
    inside = (events.c.run_id == sweep_id) & events.c.kind.in_(_THINNED_KINDS)
    num_steps = connection.execute(delete(steps).where(steps.c.trial_id.in_(measured))).rowcount
    connection.execute(update(measurements).where(measurements.c.trial_id.in_(measured)).values(timeline=None))
    num_events = connection.execute(delete(events).where(inside)).rowcount
    connection.execute(update(sweeps).where(sweeps.c.id == sweep_id).values(thinned_at=now))
    return Thinned(num_sweeps=1, num_steps=num_steps, num_events=num_events)
