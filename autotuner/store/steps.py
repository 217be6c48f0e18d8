"""Steps of trials: each is stored once, and its event only says which it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, replace
from typing import Any

from sqlalchemy import Connection, Executable, Select, delete, insert, select

from autotuner.core import codec
from autotuner.core.measurement import StepReport
from autotuner.core.sweep import Event
from autotuner.core.trial import Trial
from autotuner.store.statements import AnySelect
from autotuner.store.tables import events, steps

STEP = "trial.step"
"""Kind of the event that a step writes."""


def insert_step(trial_id: str, step: StepReport) -> Executable:
    """A step of the running attempt."""
    return insert(steps).values(trial_id=trial_id, step=step.step, document=step)


def forget_steps(connection: Connection, trial: Trial) -> None:
    """Remove the steps of an attempt that does not count, and their events.

    What told of its end is the sweep's last event already, so that no sequence is given twice.
    """
    connection.execute(delete(steps).where(steps.c.trial_id == trial.id))
    told = (events.c.sweep_id == trial.sweep_id) & (events.c.kind == STEP)
    connection.execute(delete(events).where(told, events.c.data["trial_id"].as_string() == trial.id))


def read_events(connection: Connection, sweep_id: str, after: int, limit: int) -> list[Event]:
    """Events behind that sequence, in order, those of steps with every field of the report."""
    told = [Event(**row._mapping) for row in connection.execute(select_events(sweep_id, after, limit))]
    reports = _reports(connection, [event.data for event in told if _is_bare(event)])
    return [_whole(event, reports) if _is_bare(event) else event for event in told]


def _is_bare(event: Event) -> bool:
    """Whether its row says no more than which step it is; an older release wrote the whole report there."""
    return event.kind == STEP and event.data.keys() == {"trial_id", "number", "step"}


def select_events(sweep_id: str, after: int, limit: int) -> AnySelect:
    """Rows as ``Event`` takes them, in order."""
    columns = (events.c[field.name] for field in fields(Event))
    mine = (events.c.sweep_id == sweep_id) & (events.c.sequence > after)
    return select(*columns).where(mine).order_by(events.c.sequence).limit(limit)


def last_other_event(sweep_id: str) -> Select[int]:
    """Sequence of the sweep's last event that tells of more than a step."""
    mine = (events.c.sweep_id == sweep_id) & (events.c.kind != STEP)
    return select(events.c.sequence).where(mine).order_by(events.c.sequence.desc()).limit(1)


def _whole(event: Event, reports: Mapping[tuple[object, object], StepReport]) -> Event:
    report = reports.get((event.data["trial_id"], event.data["step"]))
    return event if report is None else replace(event, data={**event.data, **codec.to_plain(report)})


def _reports(connection: Connection, told: Sequence[dict[str, Any]]) -> dict[tuple[object, object], StepReport]:
    """Those that events name, by trial and step: each trial's lie side by side."""
    if not told:
        return {}
    found = connection.execute(select_reports({facts["trial_id"] for facts in told}, [facts["step"] for facts in told]))
    return {(trial_id, step): report for trial_id, step, report in found}


def select_reports(trial_ids: Set[str], numbers: Sequence[int]) -> Select[str, int, StepReport]:
    """Reports of those trials, from the least to the greatest of the steps."""
    between = steps.c.step.between(min(numbers), max(numbers))
    return select(steps.c.trial_id, steps.c.step, steps.c.document).where(steps.c.trial_id.in_(trial_ids), between)
