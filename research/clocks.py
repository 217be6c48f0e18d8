"""The clock that devices sustain under their power limit, and the gain of fp8 at the same layout.

A training step at the clock of a short benchmark would need more power than the limit allows, so the clock falls until
it does not. The power that depends on the clock (the power beyond that of an idle but warm device and its memory) grows
with the clock to the power of 2.2: with the clock itself and the square of a voltage that grows more slowly. The data
sheets of B200 (1,000 W) and GB200 (1,200 W) agree, with 260 W for the idle GB200: (940 / 740) ^ (1 / 2.2) = 1.11, as
2,500 over 2,250 TFLOP/s.

``python -m research.clocks`` prints the shares of the benchmark's rate for ``catalog/accelerators.toml``, each beside
the present value; ``research/fit_stacks.py`` replaces them where runs were published. Then it prints published pairs of
runs that only differ in fp8: for each model, cluster and recipe the number of pairs, the measured and the predicted
ratio of step times (fp8 over bf16), and the error of the prediction; and the medians over all pairs of dense models and
over those with experts. Common factors of a pair cancel out: clocks, network, and conditions that were not described.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np

from autotuner.backtests.cells import UnusableRow
from autotuner.backtests.measured_table import Run, read_row
from autotuner.catalog.hardware import load_accelerator
from autotuner.catalog.kernels import kernels_for
from autotuner.core.accelerator import Accelerator
from autotuner.core.choices import Precision
from autotuner.core.columns import Floats
from autotuner.core.layout import Layout
from autotuner.costmodel.predict import predict_one

EXPONENT = 2.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """A group of accelerators that have the same chip but different power limits or clocks."""

    fitted: str
    """Device whose clock was fitted to published runs."""
    others: tuple[str, ...]
    """Devices whose clock is derived from it."""
    idle_w: float
    """Power in watts that the device draws at any clock: leakage, memory, links. Estimated from idle devices in
    nvidia-smi (60 to 100 W on A100 and H100, 170 to 240 W on B300 and GB300) plus 50 to 80 W for busy memory; these are
    assumptions."""


CHIPS = (
    Chip(fitted="a100-80gb", others=("a100-40gb", "a100-64gb", "a800"), idle_w=100.0),
    Chip(fitted="h100-sxm", others=("h100-96gb", "h100-nvl", "h100-pcie", "gh200", "h200", "h20"), idle_w=155.0),
    Chip(fitted="b200", others=("gb200", "b300", "gb300"), idle_w=260.0),
)


def sustained_share(device: Accelerator, fitted: Accelerator, idle_w: float) -> float:
    """Return the share of a short benchmark's FLOP/s that an accelerator sustains in long training.

    The power limit lowers the clock in long training. The share is computed from the known share of another accelerator
    with the same chip.

    Args:
        device: The accelerator whose share is computed.
        fitted: The accelerator whose share was fitted to published runs.
        idle_w: Power in watts that both accelerators draw at any clock.
    """
    multiprocessors = _multiprocessors(device) / _multiprocessors(fitted)
    clock = device.bf16_flop_per_s / fitted.bf16_flop_per_s / multiprocessors
    needed_w = (fitted.power_w - idle_w) / fitted.sustained_share**EXPONENT * multiprocessors * clock**EXPONENT
    return float(min(1.0, ((device.power_w - idle_w) / needed_w) ** (1 / EXPONENT)))


def _multiprocessors(device: Accelerator) -> int:
    return kernels_for(device).gemm[Precision.BF16].num_multiprocessors


def shares_report() -> Iterator[str]:
    """Yield a line for each accelerator: its power limit, its computed ``sustained_share``, and the catalog's value."""
    for chip in CHIPS:
        fitted = load_accelerator(chip.fitted)
        for name in (chip.fitted, *chip.others):
            device = load_accelerator(name)
            share = sustained_share(device, fitted, chip.idle_w)
            yield f"{name:12s} {device.power_w:5.0f} W  {share:.2f}  catalog {device.sustained_share:.2f}"


PUBLISHED = Path(__file__).resolve().parent.parent / "tests" / "published"

TABLES = ("dgxc_benchmarking", "gh200_alps_megatron", "torchtitan", "nemo_megatron_bridge_perf")
"""Tables that have runs in both number formats."""

NO_PAIRS = ("maxtext",)
"""Stacks whose tables recompute different products in fp8 than in bf16 without saying so (dgxc,
maxtext/configure.sh)."""

_IN_BF16 = {"precision": Precision.BF16, "fp8_recipe": Layout().fp8_recipe}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A published run in fp8 or nvfp4, compared with the bf16 runs of the same model, cluster and layout.

    ``measured`` and ``predicted`` are ratios: the step time of the run divided by the median step time of the bf16
    runs.
    """

    table: str
    run: Run
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Return the relative error of the predicted ratio of step times: predicted / measured - 1."""
        return self.predicted / self.measured - 1

    @property
    def name(self) -> str:
        """Return a text with the software, model, accelerator, tensor degree and fp8 recipe.

        The report has one line for all pairs with the same text.
        """
        job, layout = self.run.job, self.run.layout
        recipe = layout.precision if layout.precision == Precision.NVFP4 else layout.fp8_recipe
        ranks = f"tp{layout.tensor_parallel_degree}{' async' * layout.async_tensor_parallel}"
        return f"{job.stack.name}: {job.model.name}, {job.cluster.accelerator.name}, {ranks}, {recipe}"

    @property
    def has_experts(self) -> bool:
        """Return True if the model of both runs is a mixture of experts."""
        return self.run.job.model.experts is not None


def pairs(table: str) -> Iterator[Pair]:
    """Yield every run in fp8 or nvfp4 of a published table, paired with the bf16 runs of the same layout.

    Both sides of a pair have the same source and software. Runs without a bf16 run of the same layout are left out.
    """
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
    """Return the pairs (see ``pairs``) of all published tables that have runs in both number formats.

    Args:
        keep: Returns True for the pairs to return; by default, all pairs.
    """
    return [pair for table in TABLES for pair in pairs(table) if keep(pair)]


def errors(found: Iterable[Pair]) -> Floats:
    """Return, for each pair, the relative error of its predicted ratio of step times (fp8 over bf16)."""
    return np.array([pair.error for pair in found])


def pairs_report() -> Iterator[str]:
    """Yield the lines of the report on how well the gain of fp8 over bf16 is predicted.

    There is a line for each software, model, accelerator and recipe, then a line for all dense models and a line for
    all models with experts.
    """
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


def main() -> None:
    """Print the share of its clock that each accelerator sustains, then the errors of the predicted gains of fp8."""
    print(*shares_report(), *pairs_report(), sep="\n")  # noqa: T201


if __name__ == "__main__":
    main()
