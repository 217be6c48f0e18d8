"""Links, faults and nights of retunes, as pages show them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Self

from markupsafe import Markup

from api.dashboard.charts.bandwidth import bandwidth_picture
from api.dashboard.charts.drawing import for_both
from api.dashboard.charts.step_series import fault_strip
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.link import LinkHealth, latest
from autotuner.core.measurement import LinkEvent
from autotuner.core.units import format_rate, format_seconds
from autotuner.core.upkeep import RetuneRun
from autotuner.search.explain.bandwidth import BandwidthCurve
from autotuner.search.text.links import event_in_words, trace_in_words

# Links that are not healthy, and what befalls links in the course of a run, as pages show them.

_CLASSES = {"intra_node": "within nodes", "inter_node": "between nodes"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRow:
    """One link that is not healthy, by column; a dash where the cluster's own word holds."""

    name: str
    delay: str
    bandwidth: str
    is_dead: bool

    @classmethod
    def of_all(cls, links: Iterable[LinkHealth]) -> tuple[Self, ...]:
        """Of several of one link the last counts."""
        return tuple(map(cls._of, latest(links)))

    @classmethod
    def _of(cls, link: LinkHealth) -> Self:
        jitter = f" ± {format_seconds(link.jitter_s)}" if link.jitter_s else ""
        rate = link.bandwidth_bytes_per_s
        return cls(
            name=str(link) if link.ends else _CLASSES[str(link.link_class)],
            delay=f"{format_seconds(link.delay_s)}{jitter}" if link.delay_s or jitter else "–",
            bandwidth="–" if rate is None else format_rate(rate, "B/s"),
            is_dead=link.is_dead,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """What a pipeline found out, or did about it, at a step, counted from 1 as steps of a page are."""

    step: int
    what: str
    more: str

    @classmethod
    def of(cls, event: LinkEvent) -> Self:
        """The event in words."""
        what, more = event_in_words(event)
        return cls(step=event.step + 1, what=what, more=more)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceView:
    """A fault trace, drawn and in words."""

    picture: Markup
    words: str


def trace_view(trace: FaultTrace | None, wide: int) -> TraceView | None:
    """The trace drawn so wide, and for a phone; None where there is none."""
    if trace is None:
        return None
    picture = for_both(lambda width: fault_strip(trace, width), wide=wide)
    return TraceView(picture=picture, words=trace_in_words(trace))


# What pages show of the bandwidth curve of a layout.


@dataclass(frozen=True, slots=True, kw_only=True)
class BandwidthView:
    """The picture, and what it says, in sentences without full stops."""

    picture: Markup
    sentences: tuple[str, ...]

    @classmethod
    def of(cls, curve: BandwidthCurve, width: int) -> Self | None:
        """None where the curve has no ways: on a single node there is nothing to see."""
        if not curve.ways:
            return None
        sentences = tuple(f"{sentence[0].upper()}{sentence[1:]}" for sentence in curve.sentences)
        return cls(picture=bandwidth_picture(curve, width), sentences=sentences)


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
