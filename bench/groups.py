"""How far predictions of published runs are off, by kind of hardware, number format, software and model.

``python -m bench.groups`` fits each table's constants without a model, and without a source, predicts what was left out,
and prints for every group the median error, the share of measured runs refused for memory, and how many lie in their
80 % interval. ``--catalog`` uses the constants of the catalog, which saw the tables.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotuner.backtest.table import Sheet
from autotuner.costmodel.columns import Booleans, Floats
from autotuner.costmodel.predict import predict
from autotuner.domain.layouts.choice import Precision
from bench.fit_stacks import FITS, sheets_of
from bench.held_out import HeldOut, held_out

__all__ = ["GROUPS", "Figures", "Group", "figures", "rows_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A measured run and its prediction."""

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
    """Rows of one kind, and the median error and share of refusals that they must reach."""

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


def rows_of(sheets: Sequence[HeldOut]) -> Iterator[Row]:
    """Every run that ended, predicted."""
    for one in sheets:
        ran = ~one.sheet.out_of_memory
        layouts = one.sheet.layouts.take(ran)
        predicted = predict(layouts, one.sheet.job)
        for number, measured_s in enumerate(one.sheet.step_time_s[ran]):
            layout = layouts.row(number)
            yield Row(
                table=one.table,
                sheet=one.sheet,
                layout=str(layout),
                precision=layout.precision,
                measured_s=float(measured_s),
                predicted_s=float(predicted.step_time.total_s[number]) * one.factor,
                relative_error=float(predicted.relative_error[number]),
                fits=bool(predicted.fits[number]),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a group of rows shows."""

    num_rows: int
    median_error: float
    bias: float
    p90_error: float
    refused: float
    covered: float


def figures(rows: Sequence[Row]) -> Figures:
    """The figures of some rows, at least one."""
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


def table(groups: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    """The figures of named groups as a table of Markdown."""
    yield "| rows | number | median error | bias | p90 | refused | in 80 % interval |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for name, rows in groups.items():
        if rows:
            f = figures(rows)
            shares = (f.median_error, f.bias, f.p90_error, f.refused, f.covered)
            yield f"| {name} | {f.num_rows} | " + " | ".join(f"{share:.1%}" for share in shares) + " |"


def main() -> None:
    """Print the groups, left out by model and by source."""
    wanted = [one for one in FITS if not sys.argv[2:] or one.name in sys.argv[2:]]
    if "--catalog" in sys.argv:
        sheets = [HeldOut(table=t, sheet=s, factor=1.0) for one in wanted for t in one.tables for s in sheets_of(t)]
        _print("constants of the catalog", sheets)
        return
    for by in ("model", "source"):
        _print(f"left out: a {by}", [sheet for one in wanted for sheet in held_out(one, by, processes=2)])


def _print(title: str, sheets: Sequence[HeldOut]) -> None:
    rows = list(rows_of(sheets))
    groups = {group.name: [row for row in rows if group.keep(row)] for group in GROUPS}
    tables = {f"`{name}`": [row for row in rows if row.table == name] for name in sorted({row.table for row in rows})}
    print(f"## {title}", *table(groups | tables), "", sep="\n")  # noqa: T201


if __name__ == "__main__":
    main()
