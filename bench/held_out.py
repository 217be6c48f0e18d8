"""Sheets of measured runs with the constants that a fit gives without them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Literal

from autotuner.backtest.table import Sheet
from bench.fit_stacks import Fit, constants_of, fitted, sheets_of, source_name
from bench.robust_fit import Values, fit, with_values

__all__ = ["HeldOut", "LeftOut", "held_out"]

LeftOut = Literal["sheet", "model", "source"]
"""What is left out together: of a source all sheets, so that neither its cluster nor its habits are known."""

_KEY: dict[LeftOut, Callable[[Sheet], tuple[str, ...]]] = {
    "sheet": lambda sheet: (sheet.name,),
    "model": lambda sheet: (source_name(sheet), sheet.job.model.name),
    "source": lambda sheet: (source_name(sheet),),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """A sheet whose job has constants that were fitted without it.

    Attributes:
        factor: On its step times, for what its cluster does otherwise; 1 where nothing of the cluster was seen.
    """

    table: str
    sheet: Sheet
    factor: float


def held_out(one: Fit, by: LeftOut, processes: int = 1) -> list[HeldOut]:
    """Every sheet of the fit's tables, left out with all that are alike."""
    everything = fitted(one)
    folds: dict[tuple[str, ...], list[Sheet]] = defaultdict(list)
    for table in one.tables:
        for sheet in sheets_of(table):
            folds[_KEY[by](sheet)].append(sheet)
    names = {sheet.name for sheet in (s for fold in folds.values() for s in fold)}
    assert len(names) == sum(map(len, folds.values())), "sheets of one fit have names of their own"
    with ProcessPoolExecutor(processes, get_context("fork")) as pool:
        jobs = [pool.submit(_left_out, one, fold, everything) for fold in folds.values()]
        return [sheet for job in jobs for sheet in job.result()]


def _left_out(one: Fit, fold: Sequence[Sheet], everything: Values) -> list[HeldOut]:
    values = refitted(one, fold, everything)
    tables = {sheet.name: table for table in one.tables for sheet in sheets_of(table)}
    return [
        HeldOut(table=tables[sheet.name], sheet=with_values(sheet, values), factor=_factor(sheet, values))
        for sheet in fold
    ]


def refitted(one: Fit, without: Sequence[Sheet], everything: Values) -> Values:
    """The constants that the left-out sheets have, fitted anew without these; all others stay as they are."""
    names = {sheet.name for sheet in without}
    kept = [sheet for table in one.tables for sheet in sheets_of(table) if sheet.name not in names]
    constants = [c for c in constants_of(one, [*kept, *without]) if any(c.concerns(sheet) for sheet in without)]
    fixed = {constant: value for constant, value in everything.items() if constant not in constants}
    touched = [with_values(sheet, fixed) for sheet in kept if any(c.concerns(sheet) for c in constants)]
    unseen = {c: c.start for c in constants if not any(c.concerns(sheet) for sheet in touched)}
    seen = [constant for constant in constants if constant not in unseen]
    factors = {sheet.name: _factor(sheet, fixed) for sheet in touched}
    corrected = [replace(s, step_time_s=s.step_time_s / factors[s.name]) for s in touched]
    return {**unseen, **(fit(corrected, seen, everything, rounds=3) if corrected else {})}


def _factor(sheet: Sheet, values: Values) -> float:
    factor = 1.0
    for constant, value in values.items():
        if constant.owner == "cluster" and constant.concerns(sheet):
            factor *= value
    return factor


def measured(sheets: Sequence[HeldOut]) -> Iterator[HeldOut]:
    """Those that have a run which ended."""
    return (one for one in sheets if not one.sheet.out_of_memory.all())
