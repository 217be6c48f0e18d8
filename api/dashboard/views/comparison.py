"""A comparison as its page shows it: differences first, then figures, pictures, and what is the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlencode

from markupsafe import Markup

from api.contenders import Asked
from api.dashboard.views.figures import POINTS
from api.dashboard.words import short
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.units import format_bytes, format_seconds
from autotuner.report.cells import draw_memory, draw_range, draw_range_axis
from autotuner.report.charts import MemoryCell, RangeAxis, RangeCell, Spread
from autotuner.report.comparison import comparison_report
from autotuner.report.layouts import chips, degrees
from autotuner.report.report import Report
from autotuner.search.results.comparison import LETTERS, Beside, Figures, SideBySide
from autotuner.search.text.sentences import value_in_words

_DEGREES: Mapping[str, str] = {
    "tensor_parallel_degree": "tp",
    "pipeline_parallel_degree": "pp",
    "data_parallel_degree": "dp",
    "context_parallel_degree": "cp",
    "expert_parallel_degree": "ep",
    "micro_batch_size": "mb",
}
"""Fields by the letters that columns have, in their order."""


def address_of(asked: Sequence[str]) -> str:
    """Address of the page that compares these, below the service's address."""
    return f"/compare?{urlencode([('of', one) for one in asked])}" if asked else "/compare"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A value, and whether it is another than the first layout's."""

    text: str
    differs: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One thing in which layouts, or their jobs, differ."""

    label: str
    cells: tuple[Cell, ...]

    @classmethod
    def of(cls, label: str, values: Sequence[str]) -> Self:
        """The row of such values."""
        first, *others = values
        return cls(
            label=label, cells=(Cell(text=first, differs=True), *(Cell(text=v, differs=v != first) for v in others))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One layout that is compared."""

    letter: str
    asked: Asked
    is_fastest: bool
    source: str
    """What its figures are called."""
    mfu: str
    """In percent, with half its interval in ``spread``."""
    spread: str
    beside: str
    """Its rate beside that of the fastest; empty in the fastest's own column."""
    step: str
    tokens_per_s: str
    peak: str
    mfu_picture: Markup
    """On one axis with the others."""
    memory_picture: Markup
    """On one axis with the others."""
    died: str
    """Why it has no figures of its own but predicted ones; empty where it ran, or nobody tried."""
    without: str
    """Address of the page without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The page."""

    found: SideBySide
    columns: tuple[Column, ...]
    axis: Markup
    jobs: tuple[Row, ...]
    """Rows in which the jobs differ."""
    options: tuple[Row, ...]
    """Rows in which the layouts differ."""
    same: tuple[str, ...]
    """What all of them have."""
    report: Report
    """Where the time of each goes."""
    permalink: str
    """Address of this very comparison."""

    @property
    def is_robust(self) -> bool:
        """Whether all figures are of steps under a fault trace."""
        return all(one.is_robust for one in self.found.figures)

    @classmethod
    def of(cls, asked: Sequence[Asked], found: SideBySide) -> Self:
        """The page of what was asked and what was found."""
        layouts = [one.contender.layout for one in asked]
        axis = _axis(asked, found)
        return cls(
            found=found,
            columns=tuple(_column(number, asked, found, axis) for number in range(len(asked))),
            axis=draw_range_axis(axis),
            jobs=tuple(_jobs([one.contender.job for one in asked])),
            options=tuple(_options(found.options, layouts)),
            same=tuple(_same(found.options, layouts)),
            report=comparison_report(found),
            permalink=address_of([one.of for one in asked]),
        )

    @property
    def fastest(self) -> str:
        """Letter of the one that it ends at."""
        return LETTERS[self.found.fastest]


# ---------------------------------------------------------------- columns
def _axis(asked: Sequence[Asked], found: SideBySide) -> RangeAxis:
    spreads = [_reached(one) for one in found.figures if one.source != "predicted"]
    spreads += [_predicted(one) for one in asked]
    return RangeAxis.around(spreads, found.figures[found.fastest].mfu)


def _reached(figures: Figures) -> Spread:
    return Spread.within(figures.mfu, figures.mfu * (figures.relative_error or 0.0))


def _predicted(asked: Asked) -> Spread:
    prediction = asked.contender.prediction
    return Spread.within_factor(prediction.mfu, prediction.relative_error)


def _column(number: int, asked: Sequence[Asked], found: SideBySide, axis: RangeAxis) -> Column:
    one, figures, beside = asked[number], found.figures[number], found.beside[number]
    is_predicted = figures.source == "predicted"
    reached = None if is_predicted else _reached(figures)
    predicted_bytes = one.contender.prediction.memory.total_bytes
    return Column(
        letter=LETTERS[number],
        asked=one,
        is_fastest=number == found.fastest,
        source=str(figures.source),
        mfu=f"{100 * figures.mfu:.1f}",
        spread="" if (error := figures.relative_error) is None else POINTS.spread(figures.mfu, figures.mfu * error),
        beside="" if beside is None else _beside(beside),
        step=format_seconds(figures.step_time_s),
        tokens_per_s=short(figures.tokens_per_s),
        peak="–" if figures.peak_bytes is None else format_bytes(figures.peak_bytes),
        mfu_picture=draw_range(
            RangeCell(axis=axis, predicted=_predicted(one), reached=reached, is_simulated=figures.source == "simulated")
        ),
        memory_picture=draw_memory(
            MemoryCell(
                limit_bytes=max(found.limit_bytes),
                predicted_bytes=predicted_bytes,
                reached_bytes=None if is_predicted else figures.peak_bytes,
            )
        ),
        died=_died(one) or _too_large(figures, found.limit_bytes[number]),
        without=address_of([other.of for other in asked if other is not one]),
    )


def _beside(beside: Beside) -> str:
    """By how much it is slower than the fastest: the gain seen from the other side."""
    lost = beside.gain / (1 + beside.gain)
    error = beside.gain_error / (1 + beside.gain) ** 2
    return f"−{100 * lost:.1f} % ± {100 * error:.1f}, {'beyond' if beside.is_beyond_noise else 'within'} the noise"


def _too_large(figures: Figures, limit_bytes: float) -> str:
    if figures.source == "measured" or (figures.peak_bytes or 0.0) <= limit_bytes:
        return ""
    return (
        f"it is {figures.source} not to fit: {format_bytes((figures.peak_bytes or 0.0) - limit_bytes)} over the limit"
    )


def _died(one: Asked) -> str:
    trial = one.contender.trial
    if trial is None or trial.reached is not None:
        return ""
    if trial.failure is not None:
        return f"its trial died of {str(trial.failure.kind).replace('_', ' ')}: {trial.failure.message}"
    return f"its trial is {trial.state}, so this is predicted"


# ---------------------------------------------------------------- what differs
def _jobs(jobs: Sequence[Job]) -> Iterator[Row]:
    said = {
        "model": [job.model.name for job in jobs],
        "cluster": [job.cluster.name for job in jobs],
        "sequence length": [f"{job.workload.seq_len:,}" for job in jobs],
        "global batch": [f"{job.workload.global_batch_size:,}" for job in jobs],
        "software": [job.stack.name for job in jobs],
    }
    for label, values in said.items():
        if len(set(values)) > 1:
            yield Row.of(label, values)


def _options(differing: Sequence[str], layouts: Sequence[Layout]) -> Iterator[Row]:
    for field, letters in _DEGREES.items():
        if field in differing:
            yield Row.of(letters, [f"{getattr(layout, field):,}" for layout in layouts])
    for field in differing:
        if field in {"shard_level", "data_parallel_shard_degree"}:
            yield Row.of("sharding", [_sharding(layout) for layout in layouts])
        elif field not in _DEGREES:
            yield Row.of(OPTIONS[field].label, [_value(layout, field) for layout in layouts])


def _sharding(layout: Layout) -> str:
    known = [chip for chip in chips(layout) if chip.startswith(("ZeRO", "FSDP", "HSDP"))]
    return known[0] if known else "none"


def _value(layout: Layout, field: str) -> str:
    value: Any = getattr(layout, field)
    return f"{value:,}" if type(value) is int else value_in_words(value)


def _same(differing: Sequence[str], layouts: Sequence[Layout]) -> Iterator[str]:
    for field, degree in zip(_DEGREES, degrees(layouts[0]), strict=True):
        if field not in differing:
            yield f"{degree.letters} {degree.value}"
    others = [frozenset(chips(layout)) for layout in layouts[1:]]
    yield from (chip for chip in chips(layouts[0]) if all(chip in other for other in others))
