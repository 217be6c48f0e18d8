"""The ranking of a sweep as a sortable table: its trials, the best first, or layouts that no trial has tried.

A page shows some rows, with pictures and with the degrees of layouts as columns. A terminal and Markdown show all rows,
with layouts in words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from autotuner.core.convergence_gate import GateOutcome
from autotuner.core.measurement import Measurement
from autotuner.core.objective import Metric, Objective
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import Trial
from autotuner.report.charts import Glyph, MemoryCell, RangeAxis, RangeCell, Spread, Unit, is_tight
from autotuner.report.layouts import chips, shared_chips
from autotuner.report.report import (
    Cells,
    Chip,
    Column,
    Lines,
    Link,
    Quantity,
    Rank,
    Report,
    Section,
    Source,
    Table,
    Words,
    measured,
    predicted,
)
from autotuner.report.scale import Scale
from autotuner.report.sweep_answer import METRIC_UNITS
from autotuner.report.trial_facts import has_own_peak
from autotuner.report.words import counted, gate_in_words, number, percent, ranges, sentence
from autotuner.search.results.trial_query import TableQuery
from autotuner.search.results.trial_table import COLUMNS, TableRow
from autotuner.search.results.trial_table import Column as Data

PAGE_SIZE = 50
"""Number of rows on a page."""

_DEGREES = ("tp", "pp", "dp", "cp", "ep", "mb")
_MAIN = ("value", "robust_mfu", "mfu")
"""Main columns of the table."""

_MINOR = ("price_per_million_tokens", "time_to_loss_s")
"""Columns that a phone and a narrow terminal leave out, unless the user chose them."""

_SECONDARY = ("step_time_s", "probability_best")
"""Columns that a page leaves out by default, because it shows rates and marks ties."""

_WITH_INTERVAL = ("robust_mfu", "predicted_robust_mfu", "mfu", "predicted_mfu", "step_time_s", "predicted_step_time_s")
"""Columns with an interval. Rates have none, because it would equal the relative interval of the MFU."""

_DRAWN = (("mfu", "predicted_mfu"), ("peak_bytes", "predicted_peak_bytes"))
"""Groups of columns; the first shown column of each group has a picture beside it."""

_IF_KNOWN = ("ep", "cp", *_MINOR, "mfu", "peak_bytes", "rank", "trial", "probability_best")
"""Columns that are left out, unless the user chose them, if all rows have the same value or none."""

_UNITS: Mapping[str, Unit] = {"share": "share", "s": "s", "bytes": "bytes", "per_s": "tokens/s", "dollars": "$"}
_CHANCES = ("fit_probability", "probability_best")

_COUNTED = {
    Metric.TOKENS_PER_S: "tokens_per_s",
    Metric.TOKENS_PER_DOLLAR: "price_per_million_tokens",
    Metric.TOKENS_PER_JOULE: "kwh_per_million_tokens",
    Metric.TOKENS_PER_KG_CO2: "co2_kg_per_million_tokens",
    Metric.SIMPLICITY: "complexity",
    Metric.ROBUSTNESS: "robustness",
}
"""Column that shows a metric; MFU is not listed because every ranking has it."""

_SORTS = ("mfu", "predicted_mfu", "tokens_per_s", "peak_bytes", "price_per_million_tokens", "probability_best")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The choices of a reader on the page of a ranking: filters, order, columns, page number and kind of rows.

    The rows are ranked trials, or predicted layouts that no trial tried.
    """

    query: TableQuery = field(default_factory=TableQuery)
    are_columns_chosen: bool = False
    is_untried: bool = False
    """True if the page shows layouts that no trial has tried."""
    page: int | None = None
    """Number of the page, from 1; a number past the last page means the last page. None: all rows."""
    address: Link = field(default_factory=lambda: Link("", "sweeps"))
    """Address of the page with all its parameters."""
    explored: Callable[[TableRow], Link] | None = None
    """Function that returns a link to the page that explores the layout of an untried row; None: no links."""

    def to(self, **changes: str | int) -> Link:
        """Return a link to the same page with some query parameters replaced; an empty text removes a parameter."""
        query = {name: value for name, value in {**self.address.query, **changes}.items() if value != ""}
        return replace(self.address, query=query, part="ranking")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The rows of a ranking that a page shows, with links to other orders, filters and pages."""

    title: str
    table: Table
    notes: Lines
    glyphs: Sequence[tuple[Glyph, str]]
    """Each kind of mark with its meaning."""
    shared: Sequence[str]
    """Choices that all shown rows share; they are said once above the table."""
    first: int
    """Position of the first shown row, counted from 1."""
    total: int
    """Number of rows that meet the filters."""
    num_rows: int
    """Number of rows without filters."""
    columns: Sequence[tuple[Data, bool, bool]]
    """Every column with two flags: whether it is shown, and whether it is shown by default."""
    sorts: Sequence[tuple[str, str, bool]]
    """Orders to choose from, each with its value in the address, its words, and whether it is the present order."""
    filters: Sequence[tuple[str, Link, int]]
    """The filters, each with a link to the page without it and the number of rows of that page."""
    previous: Link | None
    next: Link | None
    other: Link | None
    """Link to the other kind of rows (tried or untried layouts); None if there are none."""


def ranking_report(request: SweepRequest, rows: Sequence[TableRow], source: Source) -> Report:
    """Return the report with the whole ranking of a sweep.

    Args:
        request: The request of the sweep.
        rows: Trials that have a rank, the best first.
        source: Source of the results: measured, simulated or estimated.
    """
    found = ranking(request, rows, source=source)
    section = Section(title="", id="ranking", blocks=(found.table, found.notes))
    return Report(headline=f"Ranking by {source} {request.objective.noun}", sections=(section,))


def ranking(
    request: SweepRequest,
    rows: Sequence[TableRow],
    *,
    source: Source,
    asked: Asked = Asked(),
    best: TableRow | None = None,
) -> Ranking:
    """Return the part of a ranking that a page asks for.

    Args:
        request: The request of the sweep.
        rows: All rows before filters, the best first: trials that have a rank, or predicted layouts that no trial
            tried.
        source: Source of the results of trials: measured, simulated or estimated.
        asked: Filters, order, columns and page that the reader chose.
        best: First row of the ranking of trials; None if no trial has a rank yet.
    """
    met = asked.query.rows(rows)
    size = PAGE_SIZE if asked.page is not None else max(1, len(met))
    page = min(max(1, asked.page or 1), max(1, -(-len(met) // size)))
    shown = met[size * (page - 1) : size * page]
    usual = _usual(request, rows, is_untried=asked.is_untried)
    table = _Rows(request, rows, shown, "predicted" if asked.is_untried else source, asked, best)
    other = {"rows": "" if asked.is_untried else "untried", "page": "", "sort": "", "columns": ""}
    return Ranking(
        title="Predicted, not tried" if asked.is_untried else "Ranking",
        table=table.table,
        notes=Lines(items=[*map(sentence, _notes(shown, rows))], is_quiet=True),
        glyphs=[*_glyphs(shown, source, table.limit, is_untried=asked.is_untried)],
        shared=table.shared,
        first=size * (page - 1) + 1 if shown else 0,
        total=len(met),
        num_rows=len(rows),
        columns=[(one, one in table.columns, one in usual) for one in COLUMNS.values()],
        sorts=[*_sorts(asked.query, request)],
        filters=[*_filters(asked, rows)],
        previous=asked.to(page=page - 1 if page > 2 else "") if page > 1 else None,
        next=asked.to(page=page + 1) if size * page < len(met) else None,
        other=asked.to(**other) if best is not None or not asked.is_untried else None,
    )


def value_unit(objective: Objective) -> Unit:
    """Return the unit of the value that a sweep maximises. A weighted sum of several metrics has no unit."""
    return "" if objective.profile else METRIC_UNITS.get(objective.metric, "")


# ---------------------------------------------------------------- which columns
def _usual(request: SweepRequest, rows: Sequence[TableRow], *, is_untried: bool) -> list[Data]:
    """Return the columns that are shown by default.

    If the objective is not speed alone, its value comes first, and the columns of its parts replace rate and price.
    With a fault trace, the robust MFU comes before the MFU without faults. If a ranked layout is not numerically
    equivalent, the time to a loss follows the MFU.
    """
    objective = request.objective
    counted = [_COUNTED[metric] for metric in objective.metrics if metric in _COUNTED]
    is_gated = any(not row.layout.is_equivalent for row in rows if row.trial is not None)
    value, rate = ([], ["tokens_per_s"]) if objective.is_speed else (["value"], [])
    beside = ["price_per_million_tokens", *counted] if objective.is_speed else counted
    robust = request.fault_trace is not None
    if is_untried:
        mfu = [*["predicted_robust_mfu"] * robust, "predicted_mfu"]
        names = [*_DEGREES, *value, *mfu, *rate, "predicted_peak_bytes", "fit_probability", *beside]
    else:
        mfu = [*["robust_mfu"] * robust, "mfu", *["predicted_mfu"] * objective.is_speed]
        names = ["rank", *_DEGREES, *value, *mfu, *["time_to_loss_s"] * is_gated, *rate, "peak_bytes", *beside, "trial"]
    return [COLUMNS[name] for name in dict.fromkeys(names)]


def _says_something(one: Data, rows: Sequence[TableRow]) -> bool:
    if not rows or one.name not in _IF_KNOWN:
        return True
    if one.name == "probability_best":
        return sum(map(_is_tied, rows)) > 1
    return {one.value(row) for row in rows} != ({1} if one.name in ("ep", "cp") else {None})


def _sorts(query: TableQuery, request: SweepRequest) -> Iterator[tuple[str, str, bool]]:
    """Yield the orders that a list offers; figures have their best end first, degrees their lowest."""
    value = () if request.objective.is_speed else ("value",)
    robust = ("robust_mfu", "predicted_robust_mfu") if request.fault_trace is not None else ()
    for one in (COLUMNS[name] for name in (*value, *robust, *_SORTS, *_DEGREES, "trial")):
        words = f"by {one.label}{'' if one.best_is_high is None else ', best first'}"
        is_chosen = one is query.sort and query.is_descending == bool(one.best_is_high)
        yield f"{'-' if one.best_is_high else ''}{one.name}", words, is_chosen


def _filters(asked: Asked, rows: Sequence[TableRow]) -> Iterator[tuple[str, Link, int]]:
    for condition in asked.query.conditions:
        others = [other for other in asked.query.conditions if other is not condition]
        left = sum(all(other(row) for other in others) for row in rows)
        yield condition.said, asked.to(where=" ".join(dict.fromkeys(other.said for other in others)), page=""), left


# ---------------------------------------------------------------- the table
class _Rows:
    """The table of the shown rows.

    All rows of the ranking share the digits of a column; shown rows share picture axes.
    """

    def __init__(
        self,
        request: SweepRequest,
        rows: Sequence[TableRow],
        shown: Sequence[TableRow],
        source: Source,
        asked: Asked,
        best: TableRow | None,
    ) -> None:
        self._request, self._rows, self._shown, self._asked = request, rows, shown, asked
        self._source, self._explored = source, asked.explored
        self._limit_bytes = limit_bytes = float(request.trial_job.cluster.accelerator.memory_bytes)
        self.shared = shared_chips(row.layout for row in shown)
        chosen = asked.are_columns_chosen
        self.columns = asked.query.columns if chosen else _usual(request, rows, is_untried=asked.is_untried)
        """The columns that the reader chose, or the usual ones; those that say nothing are not shown."""
        self._columns = [one for one in self.columns if chosen or _says_something(one, rows)]
        spreads = [one for row in shown for one in (_predicted_mfu(row), _reached_mfu(row)) if one is not None]
        self._axis = RangeAxis.around(spreads, best.reached.mfu if best and best.reached else None)
        peaks = [row.peak_bytes or row.prediction.memory.total_bytes for row in shown]
        has_memory = chosen or max(peaks, default=0.0) >= 0.1 * limit_bytes
        names = {one.name for one in self._columns}
        drawn = _DRAWN if has_memory else _DRAWN[:1]
        self._drawn = {next((name for name in those if name in names), "") for those in drawn}

    @property
    def limit(self) -> str:
        """Return the memory limit of a rank if pictures show it; else empty."""
        return number(self._limit_bytes, "bytes") if len(self._drawn) > 1 else ""

    @property
    def table(self) -> Table:
        """Return the table; its column heads are links that sort it."""
        fields = [*self._fields()]
        is_closer = [Column("", look="trial", is_action=True)] * (self._explored is not None and self._asked.is_untried)
        ranks = [row.rank for row in self._shown]
        return Table(
            columns=[*(column for column, _ in fields), *is_closer],
            rows=[
                (*(cell(row) for _, cell in fields), *([self._explored(row)] if is_closer and self._explored else []))
                for row in self._shown
            ],
            caption=_caption(self._shown, self._source),
            name="Ranking, table",
            look="untried" if self._asked.is_untried else "ranking",
            trials=[None if row.trial is None else row.trial.number for row in self._shown],
            best_row=ranks.index(1) if 1 in ranks else None,
            source=self._source,
        )

    def _fields(self) -> Iterator[tuple[Column, Callable[[TableRow], Cells]]]:
        """Yield each column of the table with the function that makes its cells."""
        first = [one for one in self._columns if one.name in ("rank", *_DEGREES)]
        for one in first:
            yield self._head(one), lambda row, one=one: self._cell(one, row)  # type: ignore[misc]
        yield Column("choices", look="choices"), self._choices
        yield Column("layout", is_number=False, is_long=True), lambda row: (row.layout, *self._remarks(row))
        secondary = [] if self._asked.are_columns_chosen else [COLUMNS[name] for name in _SECONDARY]
        secondary = [one for one in secondary if _says_something(one, self._rows)]
        rest = [one for one in self._columns if one not in first]
        for one in sorted((*rest, *secondary), key=lambda one: one.name == "trial" and bool(secondary)):
            yield replace(self._head(one), is_long=one in secondary), lambda row, one=one: self._cell(one, row)  # type: ignore[misc]
            if one.name in self._drawn:
                yield self._picture(one)

    def _head(self, one: Data) -> Column:
        query = self._asked.query
        is_sorted = one is query.sort
        downwards = not query.is_descending if is_sorted else bool(one.best_is_high)
        to = self._asked.to(sort=f"{'-' if downwards else ''}{one.name}", page="")
        scale = self._scale(one)
        return Column(
            "" if scale and one.unit == "per_s" else self._request.objective.noun if one.name == "value" else one.label,
            is_number=one.unit not in ("word", "text"),
            is_minor=one.name in _MINOR and not self._asked.are_columns_chosen,
            scale=scale,
            look="degree" if one.name in _DEGREES else "main" if one.name in _MAIN else _LOOKS.get(one.name, ""),
            sort=replace(to, key=f"by-{one.name}", says=one.meaning, swaps="ranking"),
            order=("descending" if query.is_descending else "ascending") if is_sorted else "",
        )

    def _scale(self, one: Data) -> Scale | None:
        if not one.is_figure or one.name in _CHANCES or (one.unit == "value" and value_unit(self._request.objective)):
            return None
        return Scale.around(_UNITS.get(one.unit, one.unit), (_number(one.value(row)) for row in self._rows))

    def _picture(self, one: Data) -> tuple[Column, Callable[[TableRow], Cells]]:
        if "mfu" in one.name:
            is_simulated = self._source == "simulated"
            return Column("MFU, drawn", is_drawn=True, axis=self._axis), lambda row: RangeCell(
                axis=self._axis, predicted=_predicted_mfu(row), reached=_reached_mfu(row), is_simulated=is_simulated
            )
        return Column("memory, drawn", is_drawn=True, is_minor=True), lambda row: MemoryCell(
            limit_bytes=self._limit_bytes,
            predicted_bytes=row.prediction.memory.total_bytes,
            reached_bytes=row.peak_bytes,
        )

    def _cell(self, one: Data, row: TableRow) -> Cells:
        value, trial = one.value(row), row.trial
        if one.name == "rank" and row.rank is not None:
            return Rank(row.rank, is_tied=row.rank != 1 and _is_tied(row))
        if one.name == "trial" and trial is not None:
            return Link(str(trial.number), "trials", trial.id, key=f"trial-{trial.id}")
        if one.name == "layout":
            return Words(str(row.layout))
        if not one.is_figure or value is None:
            return None if value is None else str(value)
        return self._quantity(one, row)

    def _quantity(self, one: Data, row: TableRow) -> Quantity:
        value, prediction = _number(one.value(row)), row.prediction
        if one.name in _CHANCES:
            return Quantity(value=value, unit="chance", source="predicted" if one.name == _CHANCES[0] else None)
        unit = value_unit(self._request.objective) if one.unit == "value" else _UNITS.get(one.unit, "")
        source = _source(one, row)
        half = one.error(row) if one.error is not None and one.name in _WITH_INTERVAL else None
        if source != "predicted":
            return measured(value, unit, half, source) if source else Quantity(value=value, unit=unit)
        highest = prediction.highest_mfu if unit == "share" else None
        return predicted(value, unit, prediction.relative_error if half is not None else None, highest)

    def _choices(self, row: TableRow) -> Cells:
        return (*map(Chip, chips(row.layout, self.shared)), *self._remarks(row))

    def _remarks(self, row: TableRow) -> Iterator[Chip]:
        challenge = self._request.challenge
        if challenge is not None and challenge.incumbent == row.layout:
            yield Chip("in use", "yours")
        if is_tight(row.peak_bytes or row.prediction.memory.total_bytes, self._limit_bytes):
            yield Chip("tight", "tight")
        if row.trial is not None:
            yield from _remarks_of(row.trial)


_LOOKS: Mapping[str, Literal["rank", "trial"]] = {"rank": "rank", "trial": "trial"}


def _remarks_of(trial: Trial) -> Iterator[Chip]:
    if not trial.layout.is_equivalent:
        outcome = trial.gate.outcome if trial.gate else GateOutcome.NOT_GATED
        yield Chip(gate_in_words(outcome), "tie" if outcome is GateOutcome.PASSED else "tight")
    found = trial.ran_measurement
    if trial.proxy is not None:
        ran = f"tried as {trial.proxy.layout}, {trial.proxy.num_layers} layers"
        share = f", {percent(trial.estimate.full_size.measured_share)} of the step as it is" if trial.estimate else ""
        yield Chip(f"{ran}{share}")
    elif found is not None and has_own_peak(found.mfu, found.precision_utilization):
        yield Chip(f"{100 * (found.precision_utilization or 0):.1f} % of {trial.layout.precision}")
    if found is not None and found.extrapolated_from:
        layers = " and ".join(map(str, found.extrapolated_from))
        yield Chip(f"extrapolated from {layers} layers per stage")


def _source(one: Data, row: TableRow) -> Source | None:
    """Return the source of a figure; None for figures that are no result, such as the share of padding."""
    if one.name.startswith("predicted") or (row.trial is None and one.name != "price_per_million_tokens"):
        return "predicted"
    return row.source if one.unit in ("share", "s", "per_s", "value") else None


def _is_tied(row: TableRow) -> bool:
    return bool(row.standing and row.standing.tied_with_best)


def _predicted_mfu(row: TableRow) -> Spread:
    return Spread.within_factor(row.prediction.mfu, row.prediction.relative_error)


def _reached_mfu(row: TableRow) -> Spread | None:
    return None if row.reached is None else Spread.within(row.reached.mfu, row.reached.mfu * (row.step_error or 0.0))


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


# ---------------------------------------------------------------- notes
_CAPTIONS: Mapping[str, str] = {
    "predicted": "Predicted; no trial ran these layouts. ± is the 80 % interval.",
    "estimated": "Estimated from trials on fewer ranks, not measured at this size. ± is the 80 % interval, also of "
    "predictions.",
    "simulated": "Simulated: no trial ran, and times are those of the cost model with random noise (fixed seed). ± is "
    "the 95 % interval of the median, and of predictions the 80 % interval.",
    "measured": "Measured in real trials. ± is the 95 % interval of the median, and of predictions the 80 % interval.",
}


def _caption(shown: Sequence[TableRow], source: Source) -> str:
    tied = [row.rank for row in shown if row.rank is not None and _is_tied(row)]
    ties = f" Ranks {ranges(sorted(tied))} (=) are tied: noise can explain the difference." if len(tied) > 1 else ""
    return f"{_CAPTIONS[source]}{ties}"


def _glyphs(shown: Sequence[TableRow], source: Source, limit: str, *, is_untried: bool) -> Iterator[tuple[Glyph, str]]:
    if not shown:
        return
    if is_untried:
        yield from (("predicted", "predicted, 80 % interval"), ("best", "best layout that ran"))
    else:
        interval = 80 if source == "estimated" else 95
        yield ("simulated" if source == "simulated" else "measured"), f"{source}, {interval} % interval"
        yield from (("predicted", "predicted before the trial, 80 % interval"), ("best", "best"))
    if limit:
        yield "limit", f"memory limit, {limit}"
    if any(_is_tied(row) and row.rank != 1 for row in shown):
        yield "tie", "not distinguishable from rank 1"


def _notes(shown: Sequence[TableRow], rows: Sequence[TableRow]) -> Iterator[str]:
    """Yield notes on how the numbers were obtained."""
    found = [ran for row in rows if row.trial is not None and (ran := row.trial.ran_measurement) is not None]
    yield from _of_measurements(found)
    num_ungated = sum(not row.layout.is_equivalent and row.trial.gate is None for row in rows if row.trial is not None)
    if num_ungated:
        yield f"{num_ungated} not gated: the losses of such layouts were not compared with a reference"
    names = dict.fromkeys(name for row in shown for name in row.prediction.never_compared)
    if names:
        yield f"intervals of predictions were never compared with a measured run: {', '.join(names)}"
    elif any(not row.prediction.validated for row in shown):
        yield "intervals of predictions that were not validated on this stack and device are assumptions"


def _of_measurements(found: Sequence[Measurement]) -> Iterator[str]:
    floors = [one.noise_floor for one in found if one.noise_floor is not None]
    if floors:
        yield f"repeats of one trial differ by up to {percent(max(floors))}"
    if num_extrapolated := sum(bool(one.extrapolated_from) for one in found):
        yield f"{num_extrapolated} results are extrapolated from fewer layers"
    if num_disturbed := sum(one.num_disturbed for one in found):
        yield f"{counted(num_disturbed, 'run')} were not counted, because other programs used the machine"
