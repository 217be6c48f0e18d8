"""The list of sweeps and what needs attention, as the first page shows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal, Self
from urllib.parse import urlencode

from markupsafe import Markup

from api.dashboard.views.figures import POINTS
from api.dashboard.words import hours
from api.schemas.sweeps import SweepPage, SweepSummary
from autotuner.core.health import Trouble, TroubleKind
from autotuner.core.run import RunState
from autotuner.report.cells import sparkline
from autotuner.store.options import NEWEST_FIRST, SweepColumn, SweepFilter, SweepOrder

# The list of sweeps as the first page shows it: its rows, what orders and filters it, and addresses of each.

Sorted = Literal["ascending", "descending"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the list is asked for: the same words in an address, in a form, and to the store."""

    where: SweepFilter
    order: SweepOrder = NEWEST_FIRST
    number: int = 1

    def query(self, **changed: str) -> str:
        """The query of an address that asks for this, but for what is changed: ``?q=llama&sort=mfu``."""
        said = {
            "q": self.where.text.strip(),
            "state": self.where.state.value if self.where.state else "",
            "owner": self.where.owner or "",
            **self.order_query,
            "number": "" if self.number == 1 else str(self.number),
        }
        return f"?{urlencode({name: value for name, value in (said | changed).items() if value})}"

    @property
    def order_query(self) -> Mapping[str, str]:
        """What says the order, beside everything else; nothing of the order that a list has by itself."""
        if self.order == NEWEST_FIRST:
            return {}
        return {"sort": self.order.column.value, "order": _direction(self.order)}

    @property
    def dropped(self) -> Iterator[tuple[str, str]]:
        """Each filter in words, and the query without it."""
        if text := self.where.text.strip():
            yield f"“{text}”", self.query(q="", number="")
        if self.where.state:
            yield f"state {self.where.state}", self.query(state="", number="")
        if self.where.owner:
            yield f"owner {self.where.owner}", self.query(owner="", number="")


def _direction(order: SweepOrder) -> Sorted:
    return "descending" if order.is_descending else "ascending"


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The head of a column."""

    label: str
    css: str = ""
    query: str = ""
    """Asks for the list in the order of the column, the other way round where it is in that order already; empty where
    nothing is ordered by it."""
    sort: Sorted | None = None
    """How the list is ordered by it now; None: it is not."""


_COLUMNS: tuple[tuple[str, str, SweepColumn | None], ...] = (
    ("sweep", "", SweepColumn.NAME),
    ("state", "", SweepColumn.STATE),
    ("best MFU, %", "number", SweepColumn.MFU),
    ("token/s", "number", SweepColumn.TOKENS_PER_S),
    ("best so far", "", None),
    ("trials", "number", SweepColumn.TRIALS),
    ("budget", "", None),
    ("accelerator-hours", "number", SweepColumn.ACCELERATOR_HOURS),
    ("owner", "", SweepColumn.OWNER),
    ("cluster", "", SweepColumn.CLUSTER),
    ("when", "", SweepColumn.CREATED),
)

_TEXTS = (SweepColumn.NAME, SweepColumn.STATE, SweepColumn.OWNER, SweepColumn.CLUSTER)


def _head(label: str, css: str, column: SweepColumn | None, asked: Asked) -> Head:
    if column is None:
        return Head(label=label, css=css)
    if column is not asked.order.column:
        first: Sorted = "ascending" if column in _TEXTS else "descending"
        return Head(label=label, css=css, query=asked.query(**_ordered(column, first)))
    now, other = _direction(asked.order), _direction(replace(asked.order, is_descending=not asked.order.is_descending))
    return Head(label=label, css=css, query=asked.query(**_ordered(column, other)), sort=now)


def _ordered(column: SweepColumn, direction: Sorted) -> dict[str, str]:
    is_usual = column is SweepColumn.CREATED and direction == "descending"
    return {"sort": "" if is_usual else column.value, "order": "" if is_usual else direction, "number": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """A sweep as a row."""

    sweep: SweepSummary
    kind: Literal["measured", "estimated", "simulated"]
    """What its figures are: of estimated ones no ± is told, which is not of the same kind."""
    mfu: float | None
    spread: str
    """Half the 95 % interval of the best MFU, as ``± 0.4``; empty where it is not known."""
    picture: Markup
    """How the best so far grew."""
    spent: str
    """Accelerator-hours spent, and of how many."""
    when: str
    """What its time is told by, in words."""
    at: float
    """The same, epoch seconds."""

    @classmethod
    def of(cls, sweep: SweepSummary, now: float) -> Self:
        """The row as it is seen now."""
        kind, mfu = _best(sweep)
        when, at = _when(sweep, now)
        known = mfu is not None and sweep.best_relative_error is not None and kind != "estimated"
        spread = POINTS.spread(mfu, (mfu or 0.0) * (sweep.best_relative_error or 0.0)) if known else ""
        picture = _picture(sweep)
        return cls(
            sweep=sweep, kind=kind, mfu=mfu, spread=spread, picture=picture, spent=_spent(sweep), when=when, at=at
        )


def _best(sweep: SweepSummary) -> tuple[Literal["measured", "estimated", "simulated"], float | None]:
    if sweep.trial_cluster is not None:
        return "estimated", sweep.best_estimated_mfu
    if sweep.engine == "simulated":
        return "simulated", sweep.best_simulated_mfu
    return "measured", sweep.best_measured_mfu


def _picture(sweep: SweepSummary) -> Markup:
    """The best so far after each trial; what came between two that were better was not."""
    if not sweep.best_so_far:
        return Markup("")
    grew = {best.number: best.value for best in sweep.best_so_far}
    num_trials = max(sweep.progress.num_trials, sweep.best_so_far[-1].number + 1)
    return sparkline([grew.get(number) for number in range(num_trials)])


def _spent(sweep: SweepSummary) -> str:
    spent, limit = sweep.progress.accelerator_hours, sweep.budget.accelerator_hours
    return f"{hours(spent)} of {hours(limit)}" if limit else hours(spent)


def _when(sweep: SweepSummary, now: float) -> tuple[str, float]:
    if sweep.finished_at is not None:
        return moment(sweep.finished_at, now), sweep.finished_at
    if sweep.progress.remaining_s is not None:
        end = now + sweep.progress.remaining_s
        return f"ends about {moment(end, now)}", end
    if sweep.state is RunState.QUEUED:
        return f"waits since {moment(sweep.created_at, now)}", sweep.created_at
    began = sweep.started_at if sweep.started_at is not None else sweep.created_at
    return f"began {moment(began, now)}", began


def moment(at: float, now: float) -> str:
    """A time in UTC as short as it can be told from now: ``14:40``, ``21 Nov 22:14``, ``21 Nov 2025``."""
    then, today = datetime.fromtimestamp(at, UTC), datetime.fromtimestamp(now, UTC)
    if then.date() == today.date():
        return f"{then:%H:%M}"
    day = f"{then.day} {then:%b}"
    return f"{day} {then:%H:%M}" if then.year == today.year else f"{day} {then.year}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepList:
    """A page of the list."""

    asked: Asked
    heads: tuple[Head, ...]
    has_owners: bool
    """Somebody was asked who they are: else a column of owners says nothing."""
    rows: tuple[SweepRow, ...]
    total: int
    """How many match."""
    first: int
    """Number of the first row among these, counted from 1."""
    last: int
    """Number of the last."""

    @classmethod
    def of(cls, found: SweepPage, asked: Asked, now: float) -> Self:
        """The rows of one page under heads that lead to other orders."""
        has_owners = any(sweep.created_by for sweep in found.items) or asked.order.column is SweepColumn.OWNER
        shown = [column for column in _COLUMNS if has_owners or column[2] is not SweepColumn.OWNER]
        return cls(
            asked=asked,
            has_owners=has_owners,
            heads=tuple(_head(*column, asked) for column in shown),
            rows=tuple(SweepRow.of(sweep, now) for sweep in found.items),
            total=found.total,
            first=found.offset + 1,
            last=found.offset + len(found.items),
        )

    @property
    def newer(self) -> str:
        """Query of the page before this; empty where this is the first."""
        return self.asked.query(number=str(self.asked.number - 1)) if self.asked.number > 1 else ""

    @property
    def older(self) -> str:
        """Query of the page behind this; empty where this is the last."""
        return self.asked.query(number=str(self.asked.number + 1)) if self.last < self.total else ""


# What needs attention, as lines that end in the next click.


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionLine:
    """One thing that needs somebody."""

    state: str
    """Class of its sign: ``failed`` or ``warned``."""
    word: str
    """What it is."""
    name: str
    """Whose it is."""
    said: str
    """What happened."""
    path: str
    """Where the click leads."""
    action: str
    """What the click says."""
    when: str
    """Its time in words."""
    at: float


_WORDS: Mapping[TroubleKind, tuple[str, str, str]] = {
    TroubleKind.NO_WORKER: ("failed", "no worker", "See what waits"),
    TroubleKind.REGRESSION: ("warned", "regression", "See the nights"),
    TroubleKind.RETUNE_COULD_NOT_RUN: ("failed", "could not run", "See the nights"),
    TroubleKind.GATE_FAILED: ("failed", "gate failed", "See the gate"),
    TroubleKind.GATE_COULD_NOT_RUN: ("failed", "gate not run", "See the gate"),
    TroubleKind.GATE_UNDECIDED: ("warned", "gate undecided", "See the gate"),
    TroubleKind.SWEEP_FAILED: ("failed", "failed", "See the sweep"),
    TroubleKind.CHECK_FAILED: ("failed", "check failed", "See the cluster"),
    TroubleKind.DELIVERIES_DEAD: ("failed", "not delivered", "See the deliveries"),
}


def attention_lines(troubles: Sequence[Trouble], now: float) -> tuple[AttentionLine, ...]:
    """A line for each, in their order."""
    return tuple(_line(trouble, now) for trouble in troubles)


def _line(trouble: Trouble, now: float) -> AttentionLine:
    state, word, action = _WORDS[trouble.kind]
    return AttentionLine(
        state=state,
        word=word,
        name=trouble.name,
        said=_said(trouble),
        path=trouble.path,
        action=action,
        when=f"since {moment(trouble.at, now)}" if trouble.kind is TroubleKind.NO_WORKER else moment(trouble.at, now),
        at=trouble.at,
    )


def _said(trouble: Trouble) -> str:
    if trouble.kind is not TroubleKind.DELIVERIES_DEAD:
        return trouble.detail
    what = "a delivery was" if trouble.count == 1 else f"{trouble.count} deliveries were"
    return f"{what} given up: {trouble.detail}"
