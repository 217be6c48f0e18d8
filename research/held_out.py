"""Sheets of measured runs with the constants that a fit gives without them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from multiprocessing import get_context
from typing import Literal

from autotuner.backtest.table import Sheet
from autotuner.core.job import Calibration
from research.fit_stacks import Fit, cluster_of, constants_of, fitted, on_typical_cluster, sheets_of, source_name
from research.robust_fit import Values, cluster_factor, fit, with_values
from research.write_constants import cluster_deviation_left

LeftOut = Literal["sheet", "model", "source"]
"""What is left out together: of a source all sheets, so that neither its cluster nor its habits are known."""

_KEY: dict[LeftOut, Callable[[Sheet], tuple[str, ...]]] = {
    "sheet": lambda sheet: (sheet.name,),
    "model": lambda sheet: (source_name(sheet), sheet.job.model.name),
    "source": lambda sheet: (source_name(sheet),),
}


@cache
def held_out(one: Fit, by: LeftOut, processes: int = 1) -> dict[str, list[Sheet]]:
    """Every sheet of the fit's tables, by table, left out with all that are alike.

    A sheet whose cluster others of its fit tell of is calibrated by them; of a left-out source nothing is known.
    """
    everything = _of_all(one)
    folds: dict[tuple[str, ...], list[tuple[str, Sheet]]] = defaultdict(list)
    for table in one.tables:
        for sheet in sheets_of(table):
            folds[_KEY[by](sheet)].append((table, sheet))
    found: dict[str, list[Sheet]] = {table: [] for table in one.tables}
    with ProcessPoolExecutor(processes, get_context("fork")) as pool:
        jobs = [(fold, pool.submit(_left_out, one, [s for _, s in fold], everything)) for fold in folds.values()]
        for fold, job in jobs:
            for (table, _), sheet in zip(fold, job.result(), strict=True):
                found[table].append(sheet)
    return found


@cache
def _of_all(one: Fit) -> Values:
    return fitted(one)


def in_sample(one: Fit) -> dict[str, list[Sheet]]:
    """Every sheet by table, with the constants fitted to all of them."""
    values = _of_all(one)
    every = [sheet for table in one.tables for sheet in sheets_of(table)]
    return {table: [_calibrated(one, s, values, every) for s in sheets_of(table)] for table in one.tables}


def _left_out(one: Fit, fold: Sequence[Sheet], everything: Values) -> list[Sheet]:
    kept = _without(one, fold)
    values = _refitted(one, fold, [on_typical_cluster(one, sheet) for sheet in kept], everything)
    return [_calibrated(one, sheet, values, kept) for sheet in fold]


def _without(one: Fit, fold: Sequence[Sheet]) -> list[Sheet]:
    names = {sheet.name for sheet in fold}
    return [sheet for table in one.tables for sheet in sheets_of(table) if sheet.name not in names]


def _refitted(one: Fit, fold: Sequence[Sheet], kept: Sequence[Sheet], everything: Values) -> Values:
    """The constants that the left-out sheets have, fitted anew without these; all others stay as they are."""
    constants = [c for c in constants_of(one, [*kept, *fold]) if any(c.concerns(sheet) for sheet in fold)]
    fixed = {constant: value for constant, value in everything.items() if constant not in constants}
    touched = [sheet for sheet in kept if any(c.concerns(sheet) for c in constants)]
    seen = [c for c in constants if any(c.concerns(sheet) for sheet in touched)]
    unseen = {constant: constant.start for constant in constants if constant not in seen}
    corrected = [_corrected(sheet, fixed) for sheet in touched]
    return {**unseen, **fit(corrected, seen, everything, rounds=3)}


def _corrected(sheet: Sheet, fixed: Values) -> Sheet:
    """The sheet with constants that stay as they are, its times freed of what its cluster is known to do."""
    seconds = sheet.step_time_s / cluster_factor(sheet, fixed)
    return replace(with_values(sheet, fixed), step_time_s=seconds)


def _calibrated(one: Fit, sheet: Sheet, values: Values, others: Sequence[Sheet]) -> Sheet:
    known = with_values(sheet, values)
    num_runs = sum(int((~s.out_of_memory).sum()) for s in others if cluster_of(s) == cluster_of(sheet))
    if not num_runs:
        return known
    deviation = cluster_deviation_left(num_runs)
    calibration = Calibration(
        factor=one.cluster_factor * cluster_factor(sheet, values), deviation=deviation, num_runs=num_runs
    )
    return replace(known, job=replace(known.job, calibration=calibration))
