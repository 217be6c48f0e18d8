"""What fp8 gains at one layout: published pairs of runs that differ in nothing else, against predictions.

``python -m research.fp8_pairs`` prints, for each model, cluster and recipe, how many pairs there are, the measured and
the predicted ratio of step times, fp8 over bf16, and how far the predicted is off; then the medians over all pairs of
dense models and over those with experts. Of a pair all that is common cancels out: clocks, network, what was not
described.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np

from autotuner.backtest.cells import UnusableRow
from autotuner.backtest.table import Run, read_row
from autotuner.core.choices import Precision
from autotuner.core.columns import Floats
from autotuner.core.layout import Layout
from autotuner.costmodel.predict import predict_one

PUBLISHED = Path(__file__).resolve().parent.parent / "tests" / "published"

TABLES = ("dgxc_benchmarking", "gh200_alps_megatron", "torchtitan", "nemo_megatron_bridge_perf")
"""Those that have runs in both formats."""

NO_PAIRS = ("maxtext",)
"""Stacks whose tables recompute other products in fp8 than in bf16 and do not say so (dgxc, maxtext/configure.sh)."""

_IN_BF16 = {"precision": Precision.BF16, "fp8_recipe": Layout().fp8_recipe}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A run in 8 bits or fewer, and the median of those in bf16 at its layout."""

    table: str
    run: Run
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Predicted over measured ratio, less 1."""
        return self.predicted / self.measured - 1

    @property
    def name(self) -> str:
        """What pairs of one model, device and recipe share."""
        job, layout = self.run.job, self.run.layout
        recipe = layout.precision if layout.precision == Precision.NVFP4 else layout.fp8_recipe
        ranks = f"tp{layout.tensor_parallel_degree}{' async' * layout.async_tensor_parallel}"
        return f"{job.stack.name}: {job.model.name}, {job.cluster.accelerator.name}, {ranks}, {recipe}"

    @property
    def has_experts(self) -> bool:
        """Whether its model has any."""
        return self.run.job.model.experts is not None


def pairs(table: str) -> Iterator[Pair]:
    """The pairs of one table, in the order of its rows: of one source and release, so of one software."""
    groups: Mapping[object, list[Run]] = defaultdict(list)
    for row in csv.DictReader((PUBLISHED / f"{table}.csv").read_text(encoding="utf-8").splitlines()):
        run = _run(row)
        if run is None or run.step_time_s is None or run.job.stack.name in NO_PAIRS:
            continue
        job, layout = run.job, replace(run.layout, **_IN_BF16)  # type: ignore[arg-type]  # each field has its own type
        key = (row["source"], row.get("release"), job.model, job.cluster, job.workload, job.stack.name, layout)
        groups[key].append(run)
    for runs in groups.values():
        yield from _paired(table, runs)


def _run(row: Mapping[str, str]) -> Run | None:
    try:
        return read_row(row)
    except UnusableRow:
        return None


def _paired(table: str, runs: Iterable[Run]) -> Iterator[Pair]:
    wide = [run for run in runs if run.layout.precision == Precision.BF16]
    narrow = [run for run in runs if run.layout.precision in (Precision.FP8, Precision.NVFP4)]
    if not wide:
        return
    measured_s = float(np.median([run.step_time_s for run in wide if run.step_time_s]))
    predicted_s = _predicted_s(wide[0])
    for run in narrow:
        assert run.step_time_s is not None
        yield Pair(
            table=table, run=run, measured=run.step_time_s / measured_s, predicted=_predicted_s(run) / predicted_s
        )


def _predicted_s(run: Run) -> float:
    return predict_one(run.layout, run.job).step_time.total_s


def all_pairs(keep: Callable[[Pair], bool] = lambda _: True) -> list[Pair]:
    """The pairs of all tables."""
    return [pair for table in TABLES for pair in pairs(table) if keep(pair)]


def errors(found: Iterable[Pair]) -> Floats:
    """Error of each ratio."""
    return np.array([pair.error for pair in found])


def report() -> Iterator[str]:
    """Everything."""
    found = all_pairs()
    for name, group in groupby(sorted(found, key=lambda pair: pair.name), key=lambda pair: pair.name):
        same = list(group)
        measured, predicted = (float(np.median([getattr(p, f) for p in same])) for f in ("measured", "predicted"))
        yield (
            f"{name:75s} {len(same):3d}  measured {measured:.3f}  predicted {predicted:.3f}"
            f"  error {100 * np.median(errors(same)):+5.1f} %"
        )
    for kind, of_kind in (("dense", False), ("experts", True)):
        off = np.abs(errors(pair for pair in found if pair.has_experts == of_kind))
        yield f"{kind}: {len(off)} pairs, median error {100 * np.median(off):.1f} %, worst {100 * off.max():.1f} %"


if __name__ == "__main__":
    print("\n".join(report()))  # noqa: T201  # a benchmark prints its result
