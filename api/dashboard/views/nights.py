"""Runs of a retune as a calendar: a row per week, a column per day."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from autotuner.core.upkeep import RetuneRun

_MOST_WEEKS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """A day, and the run that was due on it; the last one where there were several."""

    day: date
    word: str
    """How the run ended, or its state where it has not; empty of a day without one."""
    run: RetuneRun | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Week:
    """Seven days from a Monday, in UTC."""

    nights: tuple[Night, ...]


def weeks(runs: Sequence[RetuneRun]) -> tuple[Week, ...]:
    """The weeks of the runs, the oldest first; no more than a quarter of a year, and none without a run."""
    by_day = {_day(run): run for run in sorted(runs, key=lambda run: run.due_at)}
    if not by_day:
        return ()
    last = max(by_day) - timedelta(days=max(by_day).weekday())
    first = max(min(by_day), last - timedelta(weeks=_MOST_WEEKS - 1))
    first -= timedelta(days=first.weekday())
    mondays = (first + timedelta(weeks=week) for week in range((last - first).days // 7 + 1))
    return tuple(
        Week(nights=tuple(_night(monday + timedelta(days=day), by_day) for day in range(7))) for monday in mondays
    )


def _day(run: RetuneRun) -> date:
    return datetime.fromtimestamp(run.due_at, UTC).date()


def _night(day: date, by_day: dict[date, RetuneRun]) -> Night:
    run = by_day.get(day)
    return Night(day=day, run=run, word="" if run is None else str(run.outcome.verdict if run.outcome else run.state))
