"""A heat map of two options of a sweep, for the sweep's page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from autotuner.core.trial import trial_id
from autotuner.search.results.axis import axis_named
from autotuner.search.results.sensitivity import Cell, Grid

_SHADES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatCell:
    """One cell of the heat map of two options: the best result for one pair of their values."""

    class_: str
    """CSS class of the cell's shade: ``h0`` for the lowest result, ``h4`` for the best, ``hx`` without a result."""
    said: str
    """Best MFU in percent; without a ranked trial, the state of the trials."""
    href: str
    """Address of the trial that is shown; empty if no trial has this pair of values."""
    words: str
    """Description of the cell for readers who do not see the shade."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatView:
    """A heat map of two options of layouts: the best result of a sweep for each pair of their values."""

    grid: Grid
    cells: tuple[tuple[HeatCell, ...], ...]

    @classmethod
    def of(cls, found: Grid, sweep_id: str, *, root: str = "") -> Self:
        """Return the heat map of a grid. The worst cell and the best cell define its range of shades.

        Args:
            found: The best results by pair of values.
            sweep_id: Id of the sweep, for links to trials.
            root: Path before every address of the service.
        """
        shares = [cell.mfu for row in found.cells for cell in row if cell.mfu is not None]
        ends = (min(shares), max(shares)) if shares else (0.0, 0.0)
        cells = tuple(tuple(_heat_cell(cell, found, ends, sweep_id, root) for cell in row) for row in found.cells)
        return cls(grid=found, cells=cells)

    @property
    def options(self) -> tuple[tuple[str, str], ...]:
        """Name and label of each option that the rows or the columns may show."""
        return tuple((name, axis_named(name).label) for name in self.grid.names)


def _heat_cell(cell: Cell, grid: Grid, ends: tuple[float, float], sweep_id: str, root: str) -> HeatCell:
    pair = f"{grid.row_label} {cell.row}, {grid.column_label} {cell.column}"
    href = "" if cell.trial is None else f"{root}/trials/{trial_id(sweep_id, cell.trial)}"
    if cell.mfu is None:
        said = "failed" if cell.num_failed else "–"
        return HeatCell(class_="hx", said=said, href=href, words=f"{pair}: {'failed' if href else 'not tried'}")
    words = f"{pair}: {100 * cell.mfu:.1f} % MFU, best of {cell.num_ranked}"
    return HeatCell(class_=_shade(cell.mfu, *ends), said=f"{100 * cell.mfu:.1f}", href=href, words=words)


def _shade(share: float, low: float, high: float) -> str:
    if share == high:
        return f"h{_SHADES}"
    return f"h{int(_SHADES * (share - low) / (high - low))}"
