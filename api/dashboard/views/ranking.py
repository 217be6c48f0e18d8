"""The ranking of a sweep as its page shows it: heads that sort, rows of cells, and what there is to choose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from api.dashboard.views.address import Address
from api.dashboard.views.ranking_fields import DEGREES, Axes, Cell, Field, Head, fields_of
from autotuner.core.convergence_gate import GateOutcome
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.core.objective import Metric
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import Trial
from autotuner.report.charts import is_tight
from autotuner.report.layouts import chips, shared_chips
from autotuner.search.results.trial_query import TableQuery
from autotuner.search.results.trial_table import COLUMNS, Column, TableRow
from autotuner.search.text.sentences import gate_in_words
from autotuner.search.text.trials import has_own_peak

PAGE = 50
"""Rows on a page."""

ANCHOR = "#ranking"

_SORTS = (
    "mfu",
    "predicted_mfu",
    "tokens_per_s",
    "peak_bytes",
    "price_per_million_tokens",
    "probability_best",
    *DEGREES,
    "trial",
)
"""Columns that the list of orders names, for who sees no heads."""

_ROBUST = ("robust_mfu", "predicted_robust_mfu")
"""Those that it names first where a sweep has a fault trace."""

_COUNTED = {
    Metric.TOKENS_PER_S: "tokens_per_s",
    Metric.TOKENS_PER_DOLLAR: "price_per_million_tokens",
    Metric.TOKENS_PER_JOULE: "kwh_per_million_tokens",
    Metric.TOKENS_PER_KG_CO2: "co2_kg_per_million_tokens",
    Metric.SIMPLICITY: "complexity",
    Metric.ROBUSTNESS: "robustness",
}
"""What says a metric of a row; MFU has a column in every ranking."""

RowsOf = Literal["ranked", "untried"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A chip that says something of a row's figures."""

    look: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedRow:
    """A row."""

    trial_id: str | None
    """None where nothing ran."""
    number: int | None
    """Likewise."""
    href: str
    """Where it is explored that nothing ran; empty of a trial."""
    is_best: bool
    is_tied: bool
    """It cannot be told from the first."""
    chips: tuple[str, ...]
    """What the layout says that not all do."""
    notes: tuple[Note, ...]
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A column or an order that may be chosen, or a condition that may be dropped."""

    name: str
    label: str
    meaning: str = ""
    """Of a column, in words."""
    is_chosen: bool = False
    is_usual: bool = False
    """A column that is shown unless somebody chooses."""
    href: str = ""
    """The page without the condition; empty of a column."""
    num_rows: int = 0
    """Rows that there are without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What of an address could not be read."""

    field: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The table."""

    kind: str
    """What its figures are called."""
    rows_of: RowsOf
    """Trials that have a rank, or layouts that no trial tried."""
    heads: tuple[Head, ...]
    """Of the degrees and what else identifies a layout, then of everything behind its chips."""
    rows: tuple[RankedRow, ...]
    shared: tuple[str, ...]
    """What every row shown says, to be said once."""
    first: int
    """Number of the first row shown, from 1."""
    total: int
    """Rows that meet the conditions."""
    num_rows: int
    """Rows without any."""
    where: str
    sort: str
    filters: tuple[Choice, ...]
    """What the rows meet."""
    columns: tuple[Choice, ...]
    sorts: tuple[Choice, ...]
    problem: Problem | None
    """None where all of the address could be read."""
    previous: str
    """Address of the page before; empty on the first, as ``next`` is on the last."""
    next: str
    other: str
    """Address of the rows of the other kind; empty where there are none."""
    address: Address

    @property
    def last(self) -> int:
        """Number of the last row shown."""
        return self.first + len(self.rows) - 1

    @property
    def api_query(self) -> str:
        """What the REST service is asked for the same rows."""
        wanted = {"where": self.where, "sort": self.sort, "columns": self.address.get("columns")}
        asked = wanted | ({"rows": self.rows_of} if self.rows_of == "untried" else {})
        return Address(chosen=tuple((name, value) for name, value in asked.items() if value)).query

    @property
    def has_ties(self) -> bool:
        """Whether some row beside the first cannot be told from it."""
        return any(row.is_tied and not row.is_best for row in self.rows)

    @property
    def identifying(self) -> int:
        """How many of the columns stand before the chips: the rank and the degrees."""
        return sum(1 for head in self.heads if head.kind in ("rank", "deg"))


def read_query(address: Address) -> tuple[TableQuery, Problem | None]:
    """What an address asks for; the usual table beside what could not be read of it."""
    try:
        return TableQuery.read(address.get("where"), address.get("sort"), address.get("columns")), None
    except InvalidInput as error:
        nearest = "" if error.nearest is None else f"; the nearest that can be is {error.nearest}"
        return TableQuery(), Problem(field=error.field, text=f"{error.value}: {error.rule}{nearest}")


def ranking(
    request: SweepRequest,
    every: Sequence[TableRow],
    address: Address,
    *,
    rows_of: RowsOf,
    kind: str,
    best: TableRow | None,
    explored: Callable[[Layout], str],
) -> Ranking:
    """The page of the table that an address asks for.

    Args:
        request: Of the sweep.
        every: All rows, the best first.
        address: What was chosen.
        rows_of: Which rows these are.
        kind: What figures of trials are called.
        best: The first of the ranking; None before there is one.
        explored: Where a layout is explored that nothing ran.
    """
    query, problem = read_query(address)
    met = query.rows(every)
    number = min(_page_number(address), max(1, -(-len(met) // PAGE)))
    shown = met[PAGE * (number - 1) : PAGE * number]
    limit_bytes = float(request.trial_job.cluster.accelerator.memory_bytes)
    axes = Axes.of(shown, best, limit_bytes)
    chosen = bool(address.get("columns"))
    has_gates = any(not row.layout.is_equivalent for row in every if row.trial is not None)
    usual = _usual(rows_of, request, has_gates=has_gates)
    columns = query.columns if chosen else usual
    fields = fields_of(columns, every, axes, chosen=chosen, heads=_heads(query, address))
    in_order = sorted(fields, key=lambda field: field.head.kind not in ("rank", "deg"))
    shared = shared_chips(row.layout for row in shown)
    return Ranking(
        kind=kind,
        rows_of=rows_of,
        heads=tuple(field.head for field in in_order),
        rows=tuple(_row(row, in_order, shared, axes, request, explored) for row in shown),
        shared=shared,
        first=PAGE * (number - 1) + 1 if shown else 0,
        total=len(met),
        num_rows=len(every),
        where=address.get("where"),
        sort=address.get("sort"),
        filters=tuple(_filters(query, every, address)),
        columns=tuple(
            Choice(
                name=each.name,
                label=each.label,
                meaning=each.meaning,
                is_chosen=each in columns,
                is_usual=each in usual,
            )
            for each in COLUMNS.values()
        ),
        sorts=tuple(_sorts(query, request)),
        problem=problem,
        previous=_to(address, page=number - 1 if number > 2 else "") if number > 1 else "",
        next=_to(address, page=number + 1) if PAGE * number < len(met) else "",
        other=_other(address, rows_of, has_ranked=best is not None),
        address=address,
    )


def _other(address: Address, rows_of: RowsOf, *, has_ranked: bool) -> str:
    """Address of the rows of the other kind; empty where there can be none."""
    if rows_of == "ranked":
        return _to(address, rows="untried", page="", sort="", columns="")
    return _to(address, rows="", page="", sort="", columns="") if has_ranked else ""


def _sorts(query: TableQuery, request: SweepRequest) -> Iterator[Choice]:
    """Every order that a list offers: each figure with its best end first, each degree with its least."""
    value = () if request.objective.is_speed else ("value",)
    robust = _ROBUST if request.fault_trace is not None else ()
    for column in (COLUMNS[name] for name in (*value, *robust, *_SORTS)):
        name = f"{'-' if column.best_is_high else ''}{column.name}"
        words = "" if column.best_is_high is None else ", best first"
        is_chosen = column is query.sort and query.is_descending == bool(column.best_is_high)
        yield Choice(name=name, label=f"by {column.label}{words}", is_chosen=is_chosen)


def _page_number(address: Address) -> int:
    given = address.get("page")
    return max(1, int(given)) if given.isdecimal() and len(given) < 7 else 1


def _usual(rows_of: RowsOf, request: SweepRequest, *, has_gates: bool) -> tuple[Column, ...]:
    """Columns that are shown unless somebody chooses; under a fault trace, first what it ranks by.

    Where more than speed counts, its value stands first; rate, price and a prediction that is drawn anyway make room
    for what counts. Where something was ranked that changes the mathematics, how long each takes to a loss stands
    behind the speed.
    """
    objective = request.objective
    is_speed = objective.is_speed
    counted = [_COUNTED[metric] for metric in objective.metrics if metric in _COUNTED]
    value, rate = ((), ("tokens_per_s",)) if is_speed else (("value",), ())
    beside = ["price_per_million_tokens", *counted] if is_speed else counted
    names = {
        "ranked": (
            "rank",
            *DEGREES,
            *value,
            "mfu",
            *(("predicted_mfu",) if is_speed else ()),
            *(("time_to_loss_s",) if has_gates else ()),
            *rate,
            "peak_bytes",
            *beside,
            "trial",
        ),
        "untried": (*DEGREES, *value, "predicted_mfu", *rate, "predicted_peak_bytes", "fit_probability", *beside),
    }
    robust = {"ranked": {"mfu": "robust_mfu"}, "untried": {"predicted_mfu": "predicted_robust_mfu"}}[rows_of]
    before = robust if request.fault_trace is not None else {}
    both = [each for name in names[rows_of] for each in (before.get(name, name), name)]
    return tuple(COLUMNS[name] for name in dict.fromkeys(both))


def _to(address: Address, **changes: str | int) -> str:
    return f"{address.with_(**changes)}{ANCHOR}"


def _heads(query: TableQuery, address: Address) -> Callable[[Column], Head]:
    """Heads whose link sorts by the column: the best end first, the other end where that is so already."""

    def head(column: Column) -> Head:
        is_sorted = column is query.sort
        downwards = not query.is_descending if is_sorted else bool(column.best_is_high)
        return Head(
            name=column.name,
            label=column.label,
            meaning=column.meaning,
            kind=_kind(column),
            href=_to(address, sort=f"{'-' if downwards else ''}{column.name}", page=""),
            direction=("descending" if query.is_descending else "ascending") if is_sorted else "",
        )

    return head


def _kind(column: Column) -> str:
    if column.name in DEGREES:
        return "deg"
    if column.name in ("rank", "trial"):
        return column.name
    return "word" if column.unit in ("word", "text") else "number"


def _filters(query: TableQuery, every: Sequence[TableRow], address: Address) -> Iterator[Choice]:
    for condition in query.conditions:
        others = [other for other in query.conditions if other is not condition]
        num_rows = sum(1 for row in every if all(other(row) for other in others))
        where = " ".join(dict.fromkeys(other.said for other in others))
        yield Choice(
            name=condition.said, label=condition.said, href=_to(address, where=where, page=""), num_rows=num_rows
        )


def _row(
    row: TableRow,
    fields: Sequence[Field],
    shared: tuple[str, ...],
    axes: Axes,
    request: SweepRequest,
    explored: Callable[[Layout], str],
) -> RankedRow:
    return RankedRow(
        trial_id=None if row.trial is None else row.trial.id,
        number=None if row.trial is None else row.trial.number,
        href="" if row.trial else explored(row.layout),
        is_best=row.rank == 1,
        is_tied=bool(row.standing and row.standing.tied_with_best),
        chips=chips(row.layout, shared),
        notes=tuple(_notes(row, axes, request)),
        cells=tuple(field.cell(row) for field in fields),
    )


def _notes(row: TableRow, axes: Axes, request: SweepRequest) -> Iterator[Note]:
    if request.challenge is not None and request.challenge.incumbent == row.layout:
        yield Note(look="yours", text="in use")
    if is_tight(row.peak_bytes or row.prediction.memory.total_bytes, axes.limit_bytes):
        yield Note(look="tight", text="tight")
    if row.trial is not None:
        yield from _notes_of_trial(row.trial)


def _notes_of_trial(trial: Trial) -> Iterator[Note]:
    measured = trial.measurement
    if not trial.layout.is_equivalent:
        outcome = trial.gate.outcome if trial.gate else GateOutcome.NOT_GATED
        look = "tie" if outcome is GateOutcome.PASSED else "tight"
        yield Note(look=look, text=gate_in_words(outcome))
    if measured is None:
        return
    if trial.scaled is not None:
        yield Note(look="", text=f"tried as {trial.scaled.layout}, {trial.scaled.num_layers} layers")
    elif has_own_peak(measured.mfu, measured.precision_utilization):
        yield Note(look="", text=f"{100 * (measured.precision_utilization or 0):.1f} % of {trial.layout.precision}")
    if measured.extrapolated_from:
        layers = " and ".join(str(number) for number in measured.extrapolated_from)
        yield Note(look="", text=f"extrapolated from {layers} layers per stage")
