"""Fits the constants without some sheets of measured runs, and reports the errors of the predictions for these sheets.

``python -m research.held_out`` fits each table's constants without a model, and without a source, and predicts the runs
that were left out. For every group of hardware, number format, software and model it prints the median error, the share
of measured runs that are refused for memory, and how many runs lie in their 80 % interval. ``--fitted`` leaves nothing
out, ``--catalog`` uses the constants of the catalog, and ``--rows`` prints every run. A name of ``FITS`` restricts the
command to the tables of this fit.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import get_context
from typing import Literal

import numpy as np

from autotuner.backtests.measured_table import Sheet
from autotuner.core.choices import Precision
from autotuner.core.columns import Booleans, Floats
from autotuner.core.job import Calibration
from autotuner.costmodel.predict import predict
from research.constants import Values, cluster_deviation_left, cluster_factor, fit, with_values
from research.fit_stacks import FITS, Fit, cluster_of, constants_of, fitted, on_typical_cluster, sheets_of, source_name

LeftOut = Literal["sheet", "model", "source"]
"""Unit in which sheets are left out; for a source, all its sheets, so that neither its cluster nor its habits are
known."""

_KEY: dict[LeftOut, Callable[[Sheet], tuple[str, ...]]] = {
    "sheet": lambda sheet: (sheet.name,),
    "model": lambda sheet: (source_name(sheet), sheet.job.model.name),
    "source": lambda sheet: (source_name(sheet),),
}


@cache
def held_out(one: Fit, by: LeftOut, processes: int = 1) -> dict[str, list[Sheet]]:
    """Return every sheet of the fit, by table, each with constants that were fitted without this sheet and its group.

    A sheet consists of the measured runs of one job. If other sheets of the fit ran on its cluster, the factor of the
    cluster is known from them, and the job is calibrated by it. If a whole source is left out, its cluster is unknown.

    Args:
        one: The tables that are fitted together.
        by: The group that is left out at once: the sheet alone, all sheets of its model and source, or all of its
            source.
        processes: Number of fits that run at the same time.
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
    """Return every sheet of the fit, by table, with constants that were fitted to all sheets, including itself.

    A sheet consists of the measured runs of one job.
    """
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
    """Return the constants for the left-out sheets, fitted without these sheets; other constants stay as they are."""
    constants = [c for c in constants_of(one, [*kept, *fold]) if any(c.concerns(sheet) for sheet in fold)]
    fixed = {constant: value for constant, value in everything.items() if constant not in constants}
    touched = [sheet for sheet in kept if any(c.concerns(sheet) for c in constants)]
    seen = [c for c in constants if any(c.concerns(sheet) for sheet in touched)]
    unseen = {constant: constant.start for constant in constants if constant not in seen}
    corrected = [_corrected(sheet, fixed) for sheet in touched]
    return {**unseen, **fit(corrected, seen, everything, rounds=3)}


def _corrected(sheet: Sheet, fixed: Values) -> Sheet:
    """Return the sheet with its fixed constants, and with step times divided by the known factor of its cluster."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A measured run and its prediction.

    ``fits`` is True if the layout is predicted to fit in memory. ``relative_error`` is e if the predicted 80 % interval
    of the step time is total / (1 + e) .. total * (1 + e).
    """

    table: str
    sheet: Sheet
    layout: str
    precision: Precision
    measured_s: float
    predicted_s: float
    relative_error: float
    fits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group of measured runs with common hardware or software, whose errors the report shows on one line.

    ``at_least`` has the median error, and the share of runs that are wrongly predicted not to fit, that the predictions
    of the group must not exceed.
    """

    name: str
    keep: Callable[[Row], bool]
    at_least: tuple[float, float] | None = None


_NVIDIA = ("dgxc_benchmarking", "nemo_megatron_bridge_perf", "repo_reports_misc")
_BLACKWELL = ("b200", "gb200", "b300", "gb300")


def _device(row: Row) -> str:
    return row.sheet.job.cluster.accelerator.name


def _is_sparse(row: Row) -> bool:
    return row.sheet.job.model.experts is not None


def _is_h100(row: Row) -> bool:
    return _device(row).startswith("h100") and not _is_sparse(row)


GROUPS = (
    Group(
        name="H100 dense, NVIDIA stacks",
        keep=lambda row: _is_h100(row) and row.table in _NVIDIA,
        at_least=(0.05, 0.03),
    ),
    Group(name="H100 dense bf16", keep=lambda row: _is_h100(row) and row.precision == Precision.BF16),
    Group(name="H100 dense fp8", keep=lambda row: _is_h100(row) and row.precision == Precision.FP8),
    Group(
        name="Megatron-Bridge recipes, dense",
        keep=lambda row: row.table == "nemo_megatron_bridge_perf" and not _is_sparse(row),
        at_least=(0.08, 0.05),
    ),
    Group(name="torchtitan", keep=lambda row: row.table == "torchtitan" and _is_h100(row), at_least=(0.08, 0.05)),
    Group(
        name="B200, SimuMax's rows",
        keep=lambda row: row.table == "simumax_b200",
        at_least=(0.06, 0.03),
    ),
    Group(name="Blackwell", keep=lambda row: _device(row).startswith(_BLACKWELL)),
    Group(name="GH200", keep=lambda row: _device(row).startswith("gh200")),
    Group(name="experts", keep=_is_sparse, at_least=(0.15, 1.0)),
    Group(name="A100", keep=lambda row: _device(row).startswith("a100"), at_least=(0.08, 1.0)),
)


def rows_of(table: str, sheets: Sequence[Sheet]) -> Iterator[Row]:
    """Yield every run of these sheets that did not run out of memory, together with its prediction.

    Args:
        table: Name of the published table.
        sheets: The measured runs, by job.
    """
    for sheet in sheets:
        ran = ~sheet.out_of_memory
        layouts = sheet.layouts.take(ran)
        predicted = predict(layouts, sheet.job)
        for number, measured_s in enumerate(sheet.step_time_s[ran]):
            layout = layouts.row(number)
            yield Row(
                table=table,
                sheet=sheet,
                layout=str(layout),
                precision=layout.precision,
                measured_s=float(measured_s),
                predicted_s=float(predicted.step_time.total_s[number]),
                relative_error=float(predicted.relative_error[number]),
                fits=bool(predicted.fits[number]),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The accuracy of the predictions for a group of measured runs.

    Errors are predicted / measured step time - 1. ``refused`` is the share of runs that are wrongly predicted not to
    fit, and ``covered`` the share whose measured time lies in its 80 % interval.
    """

    num_rows: int
    median_error: float
    bias: float
    p90_error: float
    refused: float
    covered: float


def figures(rows: Sequence[Row]) -> Figures:
    """Return the accuracy of the predictions for these measured runs; there must be at least one run."""
    ratio: Floats = np.array([row.predicted_s / row.measured_s for row in rows])
    reach: Floats = np.array([1 + row.relative_error for row in rows])
    inside: Booleans = (ratio <= reach) & (ratio >= 1 / reach)
    return Figures(
        num_rows=len(rows),
        median_error=float(np.median(np.abs(ratio - 1))),
        bias=float(np.median(ratio) - 1),
        p90_error=float(np.quantile(np.abs(ratio - 1), 0.9)),
        refused=float(np.mean([not row.fits for row in rows])),
        covered=float(inside.mean()),
    )


def grouped(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the measured runs of each group in ``GROUPS``, by the title of the group.

    The title has the name of the group and the errors that its predictions may have. A run may belong to several
    groups.
    """
    return {_title(group): [row for row in rows if group.keep(row)] for group in GROUPS}


def _title(group: Group) -> str:
    if group.at_least is None:
        return group.name
    error, refused = group.at_least
    return f"{group.name} (at least {error:.0%}" + (f", refused {refused:.0%})" if refused < 1 else ")")


def group_table(groups: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    """Yield the lines of a Markdown table with the accuracy of the predictions for each group of measured runs.

    A group without runs is left out.
    """
    yield "| rows | number | median error | bias | p90 | refused | in 80 % interval |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for name, rows in groups.items():
        if rows:
            f = figures(rows)
            shares = (f.median_error, f.bias, f.p90_error, f.refused, f.covered)
            yield f"| {name} | {f.num_rows} | " + " | ".join(f"{share:.1%}" for share in shares) + " |"


def main() -> None:
    """Print how accurate predictions are for runs that the fit did not use, by group of hardware, format and software.

    First the runs of each model are left out of the fit, then the runs of each source. ``--catalog`` and ``--fitted``
    print the accuracy with constants that were fitted to all runs.
    """
    wanted = [one for one in FITS if not _names() or one.name in _names()]
    if "--catalog" in sys.argv:
        return _print("constants of the catalog", [{t: list(sheets_of(t)) for t in one.tables} for one in wanted])
    if "--fitted" in sys.argv:
        return _print("nothing left out", [in_sample(one) for one in wanted])
    for by in ("model", "source"):
        _print(f"left out: a {by}", [held_out(one, by, processes=2) for one in wanted])
    return None


def _names() -> list[str]:
    return [word for word in sys.argv[1:] if not word.startswith("--")]


def _print(title: str, found: Sequence[Mapping[str, Sequence[Sheet]]]) -> None:
    rows = [row for tables in found for name, sheets in tables.items() for row in rows_of(name, sheets)]
    groups = grouped(rows)
    tables = {f"`{name}`": [row for row in rows if row.table == name] for name in sorted({row.table for row in rows})}
    print(f"## {title}", *group_table(groups | tables), "", sep="\n", flush=True)  # noqa: T201
    if "--rows" in sys.argv:
        print(*map(_line, rows), sep="\n")  # noqa: T201


def _line(row: Row) -> str:
    job = row.sheet.job
    words = f"{job.model.name[:20]} {job.cluster.world_size} x {_device(row)} s{job.workload.seq_len}"
    batch = f"B{job.workload.global_batch_size} {row.layout} {job.stack.name}"
    return f"{row.predicted_s / row.measured_s:.3f} {'fits' if row.fits else 'OOM'} {words} {batch} {row.table[:12]}"


if __name__ == "__main__":
    main()
