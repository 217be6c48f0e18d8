"""Events of sweeps. The report of a step is stored once; its event only names the step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Select, delete, func, insert, select

from autotuner.core import codec
from autotuner.core.measurement import StepReport
from autotuner.core.run import RunState, StopReason
from autotuner.core.sweep import EVENT_KINDS, Event
from autotuner.core.trial import Trial
from autotuner.store.engine import AnySelect
from autotuner.store.tables import events, steps

STEP = "trial.step"
"""Kind of the event that is written for each step."""


def write_event(connection: Connection, sweep_id: str, kind: str, data: dict[str, object], now: float) -> None:
    """Append an event to the events of a sweep.

    The event gets the sequence number after the last one. No other transaction can take the same number, because this
    transaction has locked or created the sweep.
    """
    last = select(func.coalesce(func.max(events.c.sequence), 0)).where(events.c.run_id == sweep_id)
    assert kind in EVENT_KINDS, kind
    values = {"run_id": sweep_id, "sequence": last.scalar_subquery() + 1, "at": now, "kind": kind, "data": data}
    connection.execute(insert(events).values(values))


def sweep_facts(state: RunState, reason: StopReason | None = None, detail: str = "") -> dict[str, object]:
    """Return the data of an event about a sweep: its state and why it stopped.

    The worker that runs it is not included.
    """
    return {"state": state.value, "stop_reason": None if reason is None else reason.value, "stop_detail": detail}


def trial_facts(trial: Trial) -> dict[str, object]:
    """Return the data of an event about a trial: its state, attempts, figures, and how it ended.

    The figures of a proxy trial (a trial on fewer ranks or of a smaller model) are None: the figures do not describe
    the layout at full size.
    """
    measured, ran = trial.measurement, trial.ran_measurement
    return {
        "trial_id": trial.id,
        "number": trial.number,
        "state": trial.state.value,
        "attempts": trial.attempts,
        "mfu": measured.mfu if measured else None,
        "step_time_s": measured.step_time_s if measured else None,
        "is_simulated": ran.is_simulated if ran else False,
        "failure_kind": trial.failure.kind.value if trial.failure else None,
        "stop_reason": trial.stopped.reason if trial.stopped else None,
        "stop_detail": trial.stopped.detail if trial.stopped else "",
    }


def forget_steps(connection: Connection, trial: Trial) -> None:
    """Delete the step reports of a trial and their events, because the attempt that made them does not count.

    The sweep already has a later event about the end of the attempt. Therefore no sequence number is used twice.
    """
    connection.execute(delete(steps).where(steps.c.trial_id == trial.id))
    of_steps = (events.c.run_id == trial.sweep_id) & (events.c.kind == STEP)
    connection.execute(delete(events).where(of_steps, events.c.data["trial_id"].as_string() == trial.id))


def read_events(connection: Connection, sweep_id: str, after: int, limit: int) -> list[Event]:
    """Return up to ``limit`` events of a sweep with a sequence number above ``after``, in order.

    An event about a step has all fields of the step's report.
    """
    found = [Event(**row._mapping) for row in connection.execute(select_events(sweep_id, after, limit))]
    reports = _reports(connection, [event.data for event in found if event.kind == STEP])
    return [_whole(event, reports) if event.kind == STEP else event for event in found]


def select_events(sweep_id: str, after: int, limit: int) -> AnySelect:
    """Return the query for a sweep's events with a sequence number above ``after``, with the columns of ``Event``."""
    columns = (events.c.run_id.label("sweep_id"), events.c.sequence, events.c.at, events.c.kind, events.c.data)
    mine = (events.c.run_id == sweep_id) & (events.c.sequence > after)
    return select(*columns).where(mine).order_by(events.c.sequence).limit(limit)


def last_other_event(sweep_id: str) -> Select[int]:
    """Return the query for the sequence number of the last event of a sweep that is not about a training step."""
    mine = (events.c.run_id == sweep_id) & (events.c.kind != STEP)
    return select(events.c.sequence).where(mine).order_by(events.c.sequence.desc()).limit(1)


def _whole(event: Event, reports: Mapping[tuple[object, object], StepReport]) -> Event:
    report = reports.get((event.data["trial_id"], event.data["step"]))
    return event if report is None else replace(event, data={**event.data, **codec.to_plain(report)})


def _reports(connection: Connection, named: Sequence[dict[str, Any]]) -> dict[tuple[object, object], StepReport]:
    """Return the step reports that the events name, by trial and step.

    Each trial's reports lie together in the table.
    """
    if not named:
        return {}
    found = connection.execute(
        select_reports({facts["trial_id"] for facts in named}, [facts["step"] for facts in named])
    )
    return {(trial_id, step): report for trial_id, step, report in found}


def select_reports(trial_ids: Set[str], numbers: Sequence[int]) -> Select[str, int, StepReport]:
    """Return the query for the reports of these trials on their training steps, for a range of step numbers.

    The range goes from the smallest to the largest of ``numbers``, and includes both.
    """
    between = steps.c.step.between(min(numbers), max(numbers))
    return select(steps.c.trial_id, steps.c.step, steps.c.document).where(steps.c.trial_id.in_(trial_ids), between)
