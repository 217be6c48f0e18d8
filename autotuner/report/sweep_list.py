"""The content of the first page: the list of sweeps, and everything that needs attention."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal
from urllib.parse import parse_qsl

from autotuner.core.health import Incident, IncidentKind
from autotuner.core.run import RunState
from autotuner.core.sweep import SweepOverview
from autotuner.report.charts import BarCell, GrowthCell
from autotuner.report.engine_jobs import engine_in_words
from autotuner.report.report import (
    Block,
    Cells,
    Choices,
    Column,
    Folded,
    Lines,
    Link,
    Pager,
    Quantity,
    Quiet,
    Report,
    Section,
    State,
    Table,
    measured,
)
from autotuner.report.words import num_in_all, three_digits


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPage:
    """One page of the list of sweeps, with links to other orders, filters and pages."""

    sweeps: Sequence[SweepOverview]
    total: int
    """Number of sweeps that match the filters, on all pages."""
    first: int
    """Position of the first listed sweep among them."""
    sorts: Mapping[str, tuple[Link, Literal["", "ascending", "descending"]]]
    """Link to the list in the order of each column, and its present order."""
    without: Sequence[Link]
    """Links to the list without each of its filters, and without any; empty if no filter is set."""
    pager: Pager

    @property
    def has_owners(self) -> bool:
        """True if the column of owners is shown: a sweep has an owner, or the list is sorted by owner."""
        return any(sweep.created_by for sweep in self.sweeps) or bool(self.sorts["owner"][1])


def sweep_list_report(listed: ListPage, incidents: Sequence[Incident], now: float) -> Report:
    """Return the report of the dashboard's home page: incidents that need attention, and below them the list of sweeps.

    Args:
        listed: The page of the list.
        incidents: The incidents, the worst first.
        now: Present time in epoch seconds.
    """
    section = Section(title="All sweeps", id="all-sweeps", blocks=_list(listed, now))
    return Report(headline="Sweeps", sections=(*_attention(incidents, now), section))


def sweeps_report(sweeps: Sequence[SweepOverview], total: int, now: float) -> Report:
    """Return the report of a list of sweeps with their ids, for the command line.

    Args:
        sweeps: The listed sweeps.
        total: Number of all sweeps that match the filters.
        now: Present time in epoch seconds.
    """
    has_owners = any(sweep.created_by for sweep in sweeps)
    columns = (Column("id", is_number=False), *_shown_columns(has_owners=has_owners))
    rows = [(sweep.id, *_row(sweep, now, has_owner=has_owners)) for sweep in sweeps]
    none = "No sweep matches. `autotuner sweep` starts one."
    blocks: list[Block] = [Table(columns=columns, rows=rows, if_empty=none)]
    if rows:
        blocks.append(Lines(items=(f"{len(rows)} of {num_in_all(total, 'sweep')}, times in UTC",), is_quiet=True))
    return Report(headline="Sweeps", sections=(Section(blocks=blocks),))


# ------------------------------------------------------------------ sweeps
def _list(listed: ListPage, now: float) -> tuple[Block, ...]:
    if not listed.sweeps:
        if not listed.without:
            return (Lines(items=(("This page is after the last sweep.", Link("Go to the first page", "")),)),)
        none = Lines(items=("No sweep matches all filters. Remove one of them:",), is_list=False)
        return (none, Choices(name="Remove filters", links=[(link, False) for link in listed.without]))
    shown = _shown_columns(has_owners=listed.has_owners)
    rows = [tuple(_row(sweep, now, has_owner=listed.has_owners)) for sweep in listed.sweeps]
    last = listed.first + len(rows) - 1
    counted = f"{listed.first}–{last} of {num_in_all(listed.total, 'sweep')}, times in UTC"
    table = Table(columns=[_sorting(column, listed) for column in shown], rows=rows, name="Sweeps")
    return (table, Lines(items=((counted,),), is_quiet=True), listed.pager)


_COLUMNS = (
    Column("sweep", is_number=False, may_wrap=True),
    Column("state", is_number=False),
    Column("best MFU"),
    Column("throughput", is_minor=True),
    Column("best so far", is_drawn=True, is_minor=True),
    Column("trials"),
    Column("budget", is_drawn=True, is_minor=True),
    Column("accelerator-hours", is_minor=True),
    Column("owner", is_number=False, may_wrap=True, is_minor=True),
    Column("cluster", is_number=False, may_wrap=True, is_minor=True),
    Column("when", is_number=False),
)


def _shown_columns(*, has_owners: bool) -> Sequence[Column]:
    return [column for column in _COLUMNS if has_owners or column.name != "owner"]


def _sorting(column: Column, listed: ListPage) -> Column:
    """Return the column with a head that links to the list sorted by it."""
    if column.name not in listed.sorts:
        return column
    link, order = listed.sorts[column.name]
    return replace(column, sort=link, order=order)


def _row(sweep: SweepOverview, now: float, *, has_owner: bool) -> Iterator[Cells]:
    progress = sweep.progress
    link = Link(called(sweep), "sweeps", sweep.id, key=f"link-{sweep.id}")
    tags = (Link(f"#{tag}", "", query={"tag": tag}) for tag in sweep.tags)
    yield (link, *([Quiet(sweep.model)] if sweep.name else []), *tags)
    yield _state(sweep)
    yield _best(sweep)
    yield Quantity(value=sweep.best_tokens_per_s, unit="tokens/s")
    grew = {best.number: best.value for best in sweep.best_so_far}
    num_trials = max([progress.num_trials, *(number + 1 for number in grew)])
    yield GrowthCell([grew.get(number) for number in range(num_trials)])
    yield f"{progress.num_trials} of {sweep.budget.num_trials}"
    yield "" if sweep.state.is_finished else BarCell(value=progress.fraction, most=1.0)
    spent, limit = three_digits(progress.accelerator_hours), sweep.budget.accelerator_hours
    yield f"{spent} of {three_digits(limit)}" if limit else spent
    if has_owner:
        yield sweep.created_by or None
    yield _where(sweep)
    yield when_in_words(sweep, now)


def called(sweep: SweepOverview) -> str:
    """Return the name of a sweep, or its model and cluster if it has no name."""
    return sweep.name or f"{sweep.model} on {sweep.cluster}"


def _state(sweep: SweepOverview) -> Cells:
    state = State("waiting" if sweep.waiting else sweep.state)
    if sweep.cancel_requested and not sweep.finished_at:
        return state, Quiet("is being stopped")
    return (state, Quiet("pause requested")) if sweep.pause_requested else state


def _best(sweep: SweepOverview) -> Quantity:
    """Return the best MFU; an estimate is shown without an interval, since its interval has another meaning."""
    mfu, error, source = sweep.best_mfu, sweep.best_relative_error, sweep.best_source
    if mfu is None or source == "estimated":
        return replace(measured(mfu, "share", source=source), beside="estimated" if mfu is not None else "")
    return measured(mfu, "share", None if error is None else mfu * error, source)


def _where(sweep: SweepOverview) -> Cells:
    if sweep.trial_cluster:
        return sweep.cluster, Quiet(f"tried on {sweep.trial_cluster}")
    engine = engine_in_words(sweep.engine, "")
    return (sweep.cluster, Quiet(engine)) if engine else sweep.cluster


def when_in_words(sweep: SweepOverview, now: float) -> str:
    """Describe when a sweep ended or will probably end, or since when it waits or runs.

    Args:
        sweep: The sweep.
        now: Present time in epoch seconds.
    """
    if sweep.finished_at is not None:
        return short_moment(sweep.finished_at, now)
    if sweep.progress.remaining_s is not None:
        return f"ends about {short_moment(now + sweep.progress.remaining_s, now)}"
    if sweep.state is RunState.QUEUED:
        return f"waits since {short_moment(sweep.created_at, now)}"
    return f"began {short_moment(sweep.created_at if sweep.started_at is None else sweep.started_at, now)}"


def short_moment(at: float, now: float) -> str:
    """Return a time in UTC, without the date if it is today, and without the year if it is this year.

    Examples: ``14:40``, ``21 Nov 22:14``, ``21 Nov 2025``.

    Args:
        at: The time in epoch seconds.
        now: Present time in epoch seconds.
    """
    then, today = datetime.fromtimestamp(at, UTC), datetime.fromtimestamp(now, UTC)
    if then.date() == today.date():
        return f"{then:%H:%M}"
    day = f"{then.day} {then:%b}"
    return f"{day} {then:%H:%M}" if then.year == today.year else f"{day} {then.year}"


# ------------------------------------------------------------------ attention
_WORDS: Mapping[IncidentKind, tuple[str, str, str]] = {
    IncidentKind.NO_WORKER: ("failed", "no worker", "See engines and workers"),
    IncidentKind.REGRESSION: ("warned", "regression", "See the retune"),
    IncidentKind.RETUNE_COULD_NOT_RUN: ("failed", "could not run", "See the retune"),
    IncidentKind.GATE_FAILED: ("failed", "gate failed", "See the gate"),
    IncidentKind.GATE_COULD_NOT_RUN: ("failed", "gate not run", "See the gate"),
    IncidentKind.GATE_UNDECIDED: ("warned", "gate undecided", "See the gate"),
    IncidentKind.SWEEP_FAILED: ("failed", "failed", "See the sweep"),
    IncidentKind.CHECK_FAILED: ("failed", "check failed", "See the cluster"),
    IncidentKind.DELIVERIES_DEAD: ("failed", "not delivered", "See the deliveries"),
}
"""State, words and text of the link for each kind of incident."""

_NUM_SHOWN = 6


def _attention(incidents: Sequence[Incident], now: float) -> Iterator[Section]:
    if not incidents:
        return
    first, more = _incidents(incidents[:_NUM_SHOWN], now), incidents[_NUM_SHOWN:]
    folded = [Folded(summary=f"{len(more)} more", blocks=(_incidents(more, now),), id="attention-more")] if more else []
    yield Section(title="Needs attention", id="attention", blocks=(first, *folded))


def _incidents(incidents: Sequence[Incident], now: float) -> Table:
    columns = (
        Column("", is_number=False),
        Column("", is_number=False, may_wrap=True),
        Column("", is_number=False, may_wrap=True),
        Column("", is_number=False),
        Column("", is_number=False, is_action=True),
    )
    return Table(
        columns=columns, rows=[tuple(_incident(one, now)) for one in incidents], name="What needs attention, table"
    )


def _incident(one: Incident, now: float) -> Iterator[Cells]:
    look, words, action = _WORDS[one.kind]
    yield State(words, look)
    yield one.name
    what = "a delivery was" if one.count == 1 else f"{one.count} deliveries were"
    yield f"{what} given up: {one.detail}" if one.kind is IncidentKind.DELIVERIES_DEAD else one.detail
    when = short_moment(one.at, now)
    yield f"since {when}" if one.kind is IncidentKind.NO_WORKER else when
    path, _, query = one.path.lstrip("/").partition("?")
    yield Link(action, path, key=f"attention-{one.kind}-{one.subject}", query=dict(parse_qsl(query)))
