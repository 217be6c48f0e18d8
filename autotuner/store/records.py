"""Sweeps, trials and events, read and written on a connection; the transaction around them is the caller's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

from sqlalchemy import Connection, Select, func, literal, select, update

from autotuner.core.errors import InvalidInput, NotFound
from autotuner.core.objective import Objective
from autotuner.core.sweep import Sweep
from autotuner.core.trial import RankedTime, Stopped, Trial, TrialState
from autotuner.store import statements, transitions
from autotuner.store.identity import trial_id as id_of
from autotuner.store.options import COUNTED_BEHIND, Page
from autotuner.store.statements import AnyRow, AnySelect
from autotuner.store.steps import forget_steps
from autotuner.store.tables import sweeps, trials

_UNFINISHED = tuple(state for state in TrialState if not state.finished)


def get_sweep(connection: Connection, sweep_id: str) -> Sweep:
    """As it stands now; ``NotFound`` without it."""
    row = connection.execute(statements.SWEEPS.where(sweeps.c.id == sweep_id)).one_or_none()
    if row is None:
        raise NotFound("sweep", sweep_id)
    return statements.read_sweep(row)


def check_sweep(connection: Connection, sweep_id: str) -> None:
    """It is stored, or ``NotFound``."""
    if connection.scalar(select(sweeps.c.id).where(sweeps.c.id == sweep_id)) is None:
        raise NotFound("sweep", sweep_id)


def objective_of(connection: Connection, sweep_id: str) -> Objective:
    """What a stored sweep maximises."""
    columns = [sweeps.c[field.name] for field in fields(Objective)]
    said = connection.execute(select(*columns).where(sweeps.c.id == sweep_id)).one()
    return Objective(**said._mapping)


def get_trial(connection: Connection, trial_id: str) -> Trial:
    """With how it ended, its steps and its timeline; ``NotFound`` without it."""
    row = connection.execute(statements.TRIALS.where(trials.c.id == trial_id)).one_or_none()
    if row is None:
        raise NotFound("trial", trial_id)
    trial = statements.read_trial(row, connection.scalars(statements.select_steps(trial_id)).all())
    if trial.measurement is None:
        return trial
    timeline = connection.scalars(statements.select_timeline(trial_id)).one()
    return replace(trial, measurement=replace(trial.measurement, timeline=timeline))


def get_trials(connection: Connection, sweep_id: str, *states: TrialState) -> list[Trial]:
    """Those of a sweep in one of the states, by number, without steps."""
    mine = statements.TRIALS.where(trials.c.sweep_id == sweep_id, trials.c.state.in_(states))
    return [statements.read_trial(row) for row in connection.execute(mine.order_by(trials.c.number))]


def has_jobs(connection: Connection, sweep_id: str) -> bool:
    """Whether engines may still run jobs of trials of the sweep that have not ended."""
    unfinished = get_trials(connection, sweep_id, *_UNFINISHED)
    return any(trial.job_goes_on for trial in unfinished)


def ranked_times(connection: Connection, sweep_id: str) -> list[RankedTime]:
    """What the order of a sweep's ranked trials rests on, in that order."""
    repeated: dict[str, list[float]] = {}
    for number, step_time_s in connection.execute(statements.repeated_times(sweep_id)):
        assert number is not None, "the query asks for those that repeat one"
        repeated.setdefault(id_of(sweep_id, number), []).append(step_time_s)
    with_worths = objective_of(connection, sweep_id).reads_footprint
    rows = connection.execute(statements.ranked_times(sweep_id, with_worths=with_worths)).all()
    return [RankedTime(**row._mapping, repeated_s=tuple(repeated.get(row.trial_id, ()))) for row in rows]


def end_trials(connection: Connection, sweep_id: str, stopped: Stopped, now: float) -> None:
    """Cancel the trials that have not finished of a sweep that has: by columns alone where one cannot be read."""
    try:
        for trial in get_trials(connection, sweep_id, *_UNFINISHED):
            connection.execute(statements.update_trial(transitions.finish_trial(trial, stopped, now=now)))
    except InvalidInput:
        unfinished = (trials.c.sweep_id == sweep_id) & trials.c.state.in_(_UNFINISHED)
        ended = {"state": TrialState.CANCELLED, "finished_at": now, "waiting": None}
        connection.execute(update(trials).where(unfinished).values(ended))


def save_trial(connection: Connection, trial: Trial, event_kind: str, now: float) -> Trial:
    """Store what a transition changed, and its event."""
    connection.execute(statements.update_trial(trial))
    write_event(connection, trial.sweep_id, event_kind, transitions.trial_facts(trial), now)
    if trial.state is TrialState.QUEUED and not trial.runs:  # steps are of the first run
        forget_steps(connection, trial)
    return trial


def write_event(connection: Connection, sweep_id: str, kind: str, data: dict[str, object], now: float) -> None:
    """Append to the sweep's events."""
    connection.execute(statements.insert_event(sweep_id, kind, data, now))


def window(
    connection: Connection, query: AnySelect, page: Page, *, counted: AnySelect | None = None
) -> tuple[Sequence[AnyRow], int]:
    """The rows of that page, and how many the query has without it.

    Args:
        connection: To the database.
        query: In the order of the list.
        page: The window on it.
        counted: What has as many rows and is counted instead, since it reads less.
    """
    rows = connection.execute(query.limit(page.limit).offset(page.offset)).all()
    if len(rows) < page.limit and (rows or not page.offset):  # it is the last page
        return rows, page.offset + len(rows)
    return rows, connection.scalars(select_total(query if counted is None else counted, page)).one()


def select_total(query: AnySelect, page: Page) -> Select[int]:
    """How many rows the query has, of which no more are counted behind a page than a page's reader cares about."""
    some = query.with_only_columns(literal(1)).limit(page.offset + page.limit + COUNTED_BEHIND)
    return select(func.count()).select_from(some.subquery())
