"""Fits the constants of software stacks, devices and clusters' networks to whole training steps.

``python -m research.fit_stacks`` prints the constants for ``catalog/stacks.toml``, ``catalog/accelerators.toml`` and
``backtest/sources.toml``. Tables that share a stack or a device are fitted together: a stack's constants to all runs on
it, and a device's clock to all runs on it. Each cluster gets a factor of its own, near 1, so that effects of a cluster
are not attributed to the software. ``fitted`` can leave sheets out; research/accuracy.py does this and prints the
errors of their predictions.

``--memory`` instead prints the constants of memory of aleph-alpha for ``catalog/stacks.toml``, from runs of a layout
sweep that ran out of memory or did not. The likelihood of an outcome is logistic in log(predicted peak / memory). A
layout that is refused wrongly weighs as much as eight that are let through wrongly, since the best layouts need nearly
all memory.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from autotuner.backtests.measured_table import Sheet, read_table
from autotuner.catalog.hardware import load_accelerator
from autotuner.core.accelerator import Accelerator
from autotuner.core.choices import Precision
from autotuner.core.codec import from_plain, to_plain
from autotuner.core.columns import Floats
from autotuner.core.job import Job
from autotuner.core.stack import Stack
from autotuner.costmodel.memory.peak import memory
from research.constants import (
    Constant,
    Owner,
    Values,
    as_lines,
    fit,
    log_errors,
    write_clusters,
    write_devices,
    write_stacks,
)

PUBLISHED = Path(__file__).resolve().parent.parent / "tests" / "published"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A set of published tables whose software, devices and networks get their constants in one common fit."""

    name: str
    tables: tuple[str, ...]
    stack_fields: tuple[str, ...] = ()
    """Constants to fit for each stack of the tables, beside those that are fitted for every stack."""
    network_fields: tuple[str, ...] = ()
    """Constants to fit for the network of each source."""
    fits_clusters: bool = False
    """True if each source and device gets a factor of its own; else there is only one cluster, whose factor is part of
    the stack's constants."""
    known_devices: tuple[str, ...] = ()
    """Devices whose clock other fits determine."""
    cluster_factor: float = 1.0
    """Ratio of step times on the tables' clusters to those on a typical one. It is set if this software was only
    measured on one kind of cluster and similar software on others; the stack is then fitted for a typical cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """The prior of a constant of the cost model: log(constant) is normal around log(``start``).

    ``deviation`` is the standard deviation of the logarithm, and ``most`` the largest legal value of the constant.
    """

    start: float
    deviation: float
    most: float = np.inf


STACK_PRIORS = {
    "matrix_slowdown": Prior(start=1.0, deviation=0.1),
    "pointwise_traffic": Prior(start=1.5, deviation=0.5),
    "kernel_launch_s": Prior(start=4e-5, deviation=0.5),
    "step_overhead_s": Prior(start=0.03, deviation=1.0),
    "overlaps_data_parallel": Prior(start=0.3, deviation=1.0, most=1.0),
    "unfused_norm_traffic": Prior(start=8.0, deviation=1.0),
    "send_wait_s": Prior(start=3e-4, deviation=1.0),
    "tensor_wait_s": Prior(start=3e-4, deviation=1.0),
    "overlaps_tensor_forward": Prior(start=0.05, deviation=1.0, most=1.0),
    "overlaps_tensor_backward": Prior(start=0.5, deviation=1.0, most=1.0),
}
"""Priors of the stacks' constants; every stack has the first five."""

_OF_EVERY_STACK = tuple(STACK_PRIORS)[:5]

NETWORK_PRIORS = {
    "oversubscription": Prior(start=1.5, deviation=1.0),
    "congestion": Prior(start=0.3, deviation=1.0),
}

CLUSTER_DEVIATION = 0.05
"""Standard deviation of the factor between clusters with the same device, stack and size."""

FITS = (
    Fit(
        name="aleph-alpha",
        tables=("aleph_alpha_layouts_sweep",),
        stack_fields=("unfused_norm_traffic", "send_wait_s"),
        network_fields=("oversubscription", "congestion"),
    ),
    Fit(
        name="nanotron",
        tables=("nanotron_ultrascale_sweep",),
        stack_fields=("send_wait_s", "tensor_wait_s"),
        network_fields=("oversubscription",),
    ),
    Fit(
        name="megatron-deepspeed",
        tables=("vtrain_validation",),
        stack_fields=("send_wait_s",),
        network_fields=("oversubscription",),
    ),
    Fit(
        name="megatron",
        tables=("megatron_lm_tables", "zero_bubble_pp_a100"),
        stack_fields=("send_wait_s",),
        # NVIDIA's own cluster; by its constants the other studies of Megatron's kind on A100 take 0.96 to 1.27 times
        # as long, in the mean 1.06
        cluster_factor=0.95,
    ),
    Fit(name="llm-foundry", tables=("llm_foundry_mpt",), network_fields=("oversubscription",)),
    Fit(
        name="today",
        tables=(
            "dgxc_benchmarking",
            "nemo_megatron_bridge_perf",
            "torchtitan",
            "gh200_alps_megatron",
            "simumax_b200",
            "repo_reports_misc",
        ),
        stack_fields=("send_wait_s", "overlaps_tensor_forward", "overlaps_tensor_backward"),
        fits_clusters=True,
        known_devices=("a100-80gb",),
    ),
)


@cache
def sheets_of(table: str) -> tuple[Sheet, ...]:
    """Return the sheets of a published table in which at least one run did not run out of memory.

    A sheet consists of the measured runs of one job.
    """
    sheets = read_table(PUBLISHED / f"{table}.csv").sheets
    return tuple(sheet for sheet in sheets if not sheet.out_of_memory.all())


def constants_of(one: Fit, sheets: Sequence[Sheet]) -> tuple[Constant, ...]:
    """Return the constants to fit: those of the accelerators, software stacks and networks that these sheets use.

    Args:
        one: The fit, which names the constants of each stack and network.
        sheets: The measured runs, by job.
    """
    return tuple(_constants(one, sheets))


def _constants(one: Fit, sheets: Sequence[Sheet]) -> Iterator[Constant]:
    for device in sorted({sheet.job.cluster.accelerator.name for sheet in sheets} - {*one.known_devices}):
        yield from _clocks(load_accelerator(device), deviation=0.1 if one.fits_clusters else 0.005)
    for stack in sorted({sheet.job.stack.name for sheet in sheets}):
        for field in (*_OF_EVERY_STACK, *one.stack_fields):
            yield _constant("stack", stack, field, STACK_PRIORS[field])
    sources = sorted({source_name(sheet) for sheet in sheets})
    for source in sources:
        for field in one.network_fields:
            yield _constant("network", source, field, NETWORK_PRIORS[field])
    if one.fits_clusters:
        yield from _clusters(sheets)


def _clusters(sheets: Sequence[Sheet]) -> Iterator[Constant]:
    for name in sorted({cluster_of(sheet) for sheet in sheets}):
        yield Constant(owner="cluster", name=name, field="factor", start=1.0, deviation=CLUSTER_DEVIATION)


def _clocks(accelerator: Accelerator, deviation: float) -> Iterator[Constant]:
    """Yield the share of a short benchmark's clock that the device sustains, in 16 bits and in fp8 if it has it."""
    shares = {"sustained_share": accelerator.sustained_share}
    if accelerator.fp8_flop_per_s:
        shares["fp8_sustained_share"] = accelerator.sustained_share_in(Precision.FP8)
    for field, start in shares.items():
        yield Constant(owner="device", name=accelerator.name, field=field, start=start, deviation=deviation, most=1.0)


def _constant(owner: Owner, name: str, field: str, prior: Prior) -> Constant:
    return Constant(owner=owner, name=name, field=field, start=prior.start, deviation=prior.deviation, most=prior.most)


def cluster_of(sheet: Sheet) -> str:
    """Return a text that identifies the cluster on which a sheet was measured: its source, a bar and its accelerator.

    A sheet consists of the measured runs of one job. All runs of one source on one accelerator count as one cluster.
    """
    return f"{source_name(sheet)}|{sheet.job.cluster.accelerator.name}"


def source_name(sheet: Sheet) -> str:
    """Return the name of the repository, paper or site that published a sheet (the measured runs of one job).

    The file and the release are left out, so that all runs of one repository have the same name.
    """
    named = re.match(r"github \S+|arXiv:[\d.]+|docs\.nvidia\.com", sheet.source)
    return named[0] if named else sheet.source


def fitted(one: Fit, without: Sequence[Sheet] = (), start: Values | None = None, rounds: int = 15) -> Values:
    """Return the constants of a fit by their owners (devices, stacks, networks, clusters).

    Args:
        one: The fit, with its tables.
        without: Sheets (measured runs of one job) that the fit does not use. A constant that concerns no other sheet
            keeps the value of its prior.
        start: Values at which the search begins; None: the values of the priors.
        rounds: Highest number of Gauss-Newton steps.
    """
    left_out = {sheet.name for sheet in without}
    every = sheets_in(one)
    kept = [on_typical_cluster(one, sheet) for sheet in every if sheet.name not in left_out]
    return fit(kept, constants_of(one, every), start, rounds)


def on_typical_cluster(one: Fit, sheet: Sheet) -> Sheet:
    """Return the sheet with its measured step times converted to a cluster of typical speed.

    A sheet consists of the measured runs of one job. The times are divided by ``one.cluster_factor``.
    """
    return replace(sheet, step_time_s=sheet.step_time_s / one.cluster_factor)


def main() -> None:
    """Print the fitted constants of every set of tables, and the median error of the predictions for the fitted runs.

    ``--write`` also writes the constants into the catalog. ``--memory`` prints constants of the memory model instead.
    """
    if "--memory" in sys.argv:
        return _print_memory()
    names = [word for word in sys.argv[1:] if not word.startswith("--")]
    for one in FITS:
        if names and one.name not in names:
            continue
        values = fitted(one)
        errors = np.abs(
            np.expm1(np.concatenate([log_errors(on_typical_cluster(one, sheet), values) for sheet in sheets_in(one)]))
        )
        print(f"# {one.name}: {len(errors)} rows, |error| median {np.median(errors):.3f}")  # noqa: T201
        print(*as_lines(values), sep="\n", flush=True)  # noqa: T201
        if "--write" in sys.argv:
            _write(one, values)
    return None


def _write(one: Fit, values: Values) -> None:
    write_stacks(values)
    if one.fits_clusters:
        write_devices(values, source="clock-fit")
        others = [other for other in FITS if not other.fits_clusters]
        factors = {c: other.cluster_factor for other in others for c in _clusters(sheets_in(other))}
        write_clusters({**factors, **values}, [sheet for other in FITS for sheet in sheets_in(other)])


def sheets_in(one: Fit) -> list[Sheet]:
    """Return the sheets (measured runs, by job) of all tables that are fitted together."""
    return [sheet for table in one.tables for sheet in sheets_of(table)]


_MEMORY_FIELDS = ("unfused_norm_bytes", "scores_alive", "logits_copies", "activation_overhead", "allowance_bytes")
_MEMORY_START = np.array([5.0, 2.0, 2.5, 0.2, 1.5e9])
_MEMORY_WIDTH = 0.03
_REFUSED_WEIGHT = 8.0


def with_memory(job: Job, values: Floats) -> Job:
    """Return the job with new values of the constants by which the peak memory of its software is predicted.

    Args:
        job: The job.
        values: One value for each name in ``_MEMORY_FIELDS``.
    """
    named: dict[str, float] = dict(zip(_MEMORY_FIELDS, map(float, values), strict=True))
    named["allowance_bytes"] = int(named["allowance_bytes"])
    return replace(job, stack=from_plain(Stack, to_plain(job.stack) | named))


def excess(sheet: Sheet, values: Floats) -> Floats:
    """Return log(predicted peak memory / memory of the accelerator) for each run; above 0, the run should not fit.

    Args:
        sheet: The runs of one job.
        values: The constants of the memory model.
    """
    job = with_memory(sheet.job, values)
    ratio: Floats = np.log(memory(sheet.layouts, job).total_bytes / job.cluster.accelerator.memory_bytes)
    return ratio


def fitted_memory(sheets: Sequence[Sheet]) -> Floats:
    """Return the constants of the memory model that explain best which runs ran out of memory and which did not.

    A prior keeps the constants near their usual values.
    """
    ran_out = np.concatenate([sheet.out_of_memory for sheet in sheets])
    weight = np.where(ran_out, 1.0, _REFUSED_WEIGHT)

    def loss(change: Floats) -> float:
        above = np.concatenate([excess(sheet, _MEMORY_START * np.exp(change)) for sheet in sheets]) / _MEMORY_WIDTH
        return float(np.mean(weight * np.logaddexp(0, np.where(ran_out, -above, above))) + 0.002 * (change**2).sum())

    corners = np.vstack([np.zeros(len(_MEMORY_START)), 0.4 * np.eye(len(_MEMORY_START))])
    found = minimize(
        loss,
        corners[0],
        method="Nelder-Mead",
        options={"initial_simplex": corners, "maxiter": 300, "xatol": 1e-2, "fatol": 1e-4},
    )
    return np.asarray(_MEMORY_START * np.exp(found.x))


def _print_memory() -> None:
    """Print the constants and the shares of wrong verdicts."""
    sheets = sheets_of("aleph_alpha_layouts_sweep")
    values = fitted_memory(sheets)
    above = np.concatenate([excess(sheet, values) for sheet in sheets]) > 0
    ran_out = np.concatenate([sheet.out_of_memory for sheet in sheets])
    for name, value in zip(_MEMORY_FIELDS, values, strict=True):
        print(f"{name} = {value:.3g}")  # noqa: T201
    print(f"# let through {np.mean(~above[ran_out]):.3f}, refused {np.mean(above[~ran_out]):.3f}")  # noqa: T201


if __name__ == "__main__":
    main()
