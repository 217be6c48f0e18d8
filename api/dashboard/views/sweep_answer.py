"""What a sweep answers, and two of its choices at a time, as its page shows them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from markupsafe import Markup

from api.dashboard.charts.drawing import picture, rect, text
from api.dashboard.views.figures import Scaled
from api.dashboard.words import token_rate
from autotuner.search.results.reached import Reached
from autotuner.search.results.sensitivity import Cell, Grid
from autotuner.search.results.sweep_answer import Certainty
from autotuner.search.results.trial_table import TableRow, Unit

# The answer card of a sweep: its figures, and how likely each of the first is the best, drawn as one bar.


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number of the card: what it is called, its value with its unit, what it may be off by, what it comes from."""

    name: str
    value: str
    spread: str = ""
    kind: str = "measured"


def figures_of_answer(best: Reached) -> tuple[Figure, ...]:
    """MFU first, then what else people ask; under a fault trace, that of healthy links beside it."""
    error = best.relative_error
    healthy = (
        () if best.healthy_mfu is None else (_figure("healthy MFU", "share", best.healthy_mfu, None, best.source),)
    )
    return (
        _figure("robust MFU" if healthy else "MFU", "share", best.mfu, best.mfu * error, best.source),
        *healthy,
        Figure(name="throughput", value=token_rate(best.tokens_per_s), kind=best.source),
        _figure("step", "s", best.step_time_s, best.step_time_s * error, best.source),
        *_memory(best.peak_bytes, best.limit_bytes, best.source),
        *_price(best.price_per_million_tokens, best.source),
    )


def figures_of_prediction(row: TableRow, limit_bytes: float) -> tuple[Figure, ...]:
    """The same of a layout that nothing has measured."""
    error = row.prediction.relative_error or 0.0
    peak_bytes = row.prediction.memory.total_bytes
    healthy = _figure("MFU", "share", row.prediction.mfu, row.prediction.mfu * error, "predicted")
    robust = row.prediction.robust_mfu
    return (
        *(() if robust is None else (_figure("robust MFU", "share", robust, robust * error, "predicted"),)),
        healthy if robust is None else replace(healthy, name="healthy MFU"),
        Figure(name="throughput", value=token_rate(row.tokens_per_s), kind="predicted"),
        _figure("step", "s", row.step_time_s, row.step_time_s * error, "predicted"),
        *_memory(peak_bytes, limit_bytes, "predicted"),
        *_price(row.price_per_million_tokens, "predicted"),
    )


def _figure(name: str, unit: Unit, value: float, half: float | None, kind: str) -> Figure:
    scaled = Scaled.of(unit, [value])
    with_unit = f"{scaled(value)} {scaled.unit}".strip()
    return Figure(name=name, value=with_unit, spread=scaled.spread(value, half) if half else "", kind=kind)


def _memory(peak_bytes: float | None, limit_bytes: float, kind: str) -> tuple[Figure, ...]:
    if peak_bytes is None:
        return ()
    peak, limit = Scaled.of("bytes", [peak_bytes]), Scaled.of("bytes", [limit_bytes])
    unit = "" if peak.unit == limit.unit else f" {limit.unit}"
    return (
        Figure(
            name="peak memory",
            value=f"{peak(peak_bytes)} {peak.unit}",
            spread=f"of {limit(limit_bytes)}{unit}",
            kind=kind,
        ),
    )


def _price(price: float | None, kind: str) -> tuple[Figure, ...]:
    if price is None:
        return ()
    value = Scaled.of("dollars", [price])(price)
    return (Figure(name="price", value=f"$ {value}", spread="per M tokens", kind=kind),)


_WIDTH, _HEIGHT = 380.0, 18.0
_GAP = 2.0
_NAMED = 0.12
"""Share of the bar from which on it has room for its number."""


def chances(sure: Certainty) -> Markup:
    """One bar, split by how likely the first, those tied with it and all others are the best."""
    ties = [tie.probability_best for tie in sure.ties[:2]]
    rest = max(0.0, 1 - sure.probability_best - sum(ties))
    shares = [(sure.probability_best, "m-dot win"), *((tie, "mem") for tie in ties), (rest, "p-band")]
    parts, at = [], 0.0
    for share, look in shares:
        width = share * _WIDTH
        if width >= 1:
            parts.append(rect(at, 0, width - _GAP, _HEIGHT, look, radius=2))
            if share >= _NAMED and look != "p-band":
                parts.append(text(at + 8, 13, f"{100 * share:.0f} %", "on-dark"))
        at += width
    said = [f"rank 1 {100 * sure.probability_best:.0f} %"]
    said += [f"rank {tie.rank} {100 * tie.probability_best:.0f} %" for tie in sure.ties[:2]]
    return picture(_WIDTH, _HEIGHT, parts, f"Likely the best: {', '.join(said)}, any other {100 * rest:.0f} %")


# Two choices at a time.

_SHADES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatCell:
    """A pair of values."""

    class_: str
    """Its shade: ``h0`` the lowest, ``h4`` the best, ``hx`` without a result."""
    said: str
    """Best MFU in percent; what came of it where nothing has a rank."""
    href: str
    """The trial that is shown; empty where none was tried."""
    words: str
    """All this for who does not see the shade."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatView:
    """The best of each pair of values of two choices."""

    grid: Grid
    cells: tuple[tuple[HeatCell, ...], ...]

    @classmethod
    def of(cls, found: Grid, *, root: str = "") -> Self:
        """Shades between the worst and the best cell."""
        shares = [cell.mfu for row in found.cells for cell in row if cell.mfu is not None]
        ends = (min(shares), max(shares)) if shares else (0.0, 0.0)
        cells = tuple(tuple(_heat_cell(cell, found, ends, root) for cell in row) for row in found.cells)
        return cls(grid=found, cells=cells)


def _heat_cell(cell: Cell, grid: Grid, ends: tuple[float, float], root: str) -> HeatCell:
    pair = f"{grid.row_label} {cell.row}, {grid.column_label} {cell.column}"
    href = f"{root}/trials/{cell.trial_id}" if cell.trial_id else ""
    if cell.mfu is None:
        said = "failed" if cell.num_failed else "–"
        return HeatCell(class_="hx", said=said, href=href, words=f"{pair}: {'failed' if href else 'not tried'}")
    words = f"{pair}: {100 * cell.mfu:.1f} % MFU, best of {cell.num_ranked}"
    return HeatCell(class_=_shade(cell.mfu, *ends), said=f"{100 * cell.mfu:.1f}", href=href, words=words)


def _shade(share: float, low: float, high: float) -> str:
    if share == high:
        return f"h{_SHADES}"
    return f"h{int(_SHADES * (share - low) / (high - low))}"
