"""Fits what belongs to a software stack, a device or a cluster's network to whole training steps.

``python -m bench.fit_stacks`` prints the constants for ``catalog/stacks.toml``, ``catalog/accelerators.toml`` and
``backtest/sources.toml``. Each stack's constants are fitted to the published runs on that stack, together with the
clock that the device sustains, on which all stacks of a device agree within a prior. Errors are those of
log(predicted / measured), with a loss that grows like a logarithm, so that faults of the network bend nothing.
``fitted`` can leave sheets out; bench/accuracy.py does, and prints how far their predictions are off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from autotuner.backtest.table import Sheet, read_table
from autotuner.costmodel.columns import Floats
from autotuner.costmodel.predict import predict
from autotuner.domain.jobs.cluster import Accelerator
from autotuner.domain.jobs.job import Job
from autotuner.domain.jobs.stack import Stack
from autotuner.domain.wire import from_dict, to_dict

__all__ = ["FITS", "Constant", "Fit", "Values", "fit", "fitted", "sheets_of", "with_values"]

PUBLISHED = Path(__file__).resolve().parent.parent / "tests" / "published"

TOLERANCE = 0.08
"""Relative error beyond which a row weighs less: about what the best-described tables scatter."""

Values = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A positive number to fit, from where and how freely.

    Attributes:
        owner: ``device``, ``stack`` or ``network``. Device: the sustained shares, ``fp8_sustained_share`` too.
        field: The field of ``Accelerator``, of ``Stack``, or of ``Cluster`` or its ``Link``.
        deviation: Standard deviation of the prior of its logarithm around ``start``.
    """

    owner: str
    field: str
    start: float
    deviation: float = 1.0
    most: float = np.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The constants of a stack and the tables that tell them."""

    stack: str
    tables: tuple[str, ...]
    constants: tuple[Constant, ...]


def _clock(start: float, field: str = "sustained_share") -> Constant:
    return Constant(owner="device", field=field, start=start, deviation=0.005, most=1.0)


def _stack(field: str, start: float, deviation: float = 1.0, most: float = np.inf) -> Constant:
    return Constant(owner="stack", field=field, start=start, deviation=deviation, most=most)


def _network(field: str, start: float, deviation: float = 1.0) -> Constant:
    return Constant(owner="network", field=field, start=start, deviation=deviation)


_COMMON = (
    _stack("matrix_slowdown", 1.0, 0.1),
    _stack("pointwise_traffic", 1.5, 0.5),
    _stack("kernel_launch_s", 4e-5),
    _stack("step_overhead_s", 0.03),
    _stack("overlaps_data_parallel", 0.3, most=1.0),
)
_A100, _H100 = _clock(0.90), _clock(0.85)

FITS = (
    Fit(
        stack="aleph-alpha",
        tables=("aleph_alpha_layouts_sweep",),
        constants=(
            _A100,
            *_COMMON,
            _stack("unfused_norm_traffic", 8.0),
            _stack("send_wait_s", 1e-3),
            _network("oversubscription", 4.0),
            _network("congestion", 0.3),
        ),
    ),
    Fit(
        stack="nanotron",
        tables=("nanotron_ultrascale_sweep",),
        constants=(
            _H100,
            *_COMMON,
            _stack("send_wait_s", 1e-3),
            _stack("tensor_wait_s", 3e-4),
            _network("oversubscription", 1.5),
        ),
    ),
    Fit(
        stack="megatron-deepspeed",
        tables=("vtrain_validation",),
        constants=(_A100, *_COMMON, _stack("send_wait_s", 3e-4), _network("oversubscription", 1.5)),
    ),
    Fit(
        stack="megatron",
        tables=("megatron_lm_tables", "zero_bubble_pp_a100"),
        constants=(_A100, *_COMMON, _stack("send_wait_s", 3e-4)),
    ),
    Fit(
        stack="llm-foundry",
        tables=("llm_foundry_mpt",),
        constants=(_A100, *_COMMON, _network("oversubscription", 1.5)),
    ),
    Fit(stack="nemo", tables=("dgxc_benchmarking",), constants=(_H100, *_COMMON, _stack("send_wait_s", 3e-4))),
    Fit(stack="torchtitan", tables=("torchtitan",), constants=(_A100, *_COMMON[:2])),
)


@cache
def sheets_of(table: str) -> tuple[Sheet, ...]:
    """The sheets of a published table that have measured rows."""
    sheets = read_table(PUBLISHED / f"{table}.csv").sheets
    return tuple(sheet for sheet in sheets if not sheet.out_of_memory.all())


def with_values(job: Job, constants: Sequence[Constant], values: Floats) -> Job:
    """The job with the constants replaced."""
    known: dict[str, dict[str, float]] = {"device": {}, "stack": {}, "network": {}}
    for constant, value in zip(constants, values, strict=True):
        known[constant.owner][constant.field] = min(float(value), constant.most)
    cluster, network = job.cluster, known["network"]
    accelerator, link = cluster.accelerator, cluster.inter_node_link
    cluster = replace(
        cluster,
        accelerator=from_dict(Accelerator, to_dict(accelerator) | known["device"]),
        inter_node_link=replace(link, congestion=network.get("congestion", link.congestion)),
        oversubscription=max(1.0, network.get("oversubscription", cluster.oversubscription)),
    )
    return replace(job, cluster=cluster, stack=from_dict(Stack, to_dict(job.stack) | known["stack"]))


def log_errors(sheet: Sheet, constants: Sequence[Constant], values: Floats) -> Floats:
    """log(predicted / measured) of the measured rows."""
    measured = ~sheet.out_of_memory
    predictions = predict(sheet.layouts.take(measured), with_values(sheet.job, constants, values))
    errors: Floats = np.log(predictions.step_time.total_s / sheet.step_time_s[measured])
    return errors


# ---------------------------------------------------------------- least squares that outliers bend little
def fit(
    sheets: Sequence[Sheet], constants: Sequence[Constant], start: Floats | None = None, rounds: int = 15
) -> Floats:
    """The constants that predict the sheets best: Gauss-Newton on their logarithms, reweighted by a Cauchy loss."""
    prior = np.log([constant.start for constant in constants])
    precision = 1 / np.array([constant.deviation for constant in constants]) ** 2
    point = prior.copy() if start is None else np.log(start)

    def errors(at: Floats) -> Floats:
        return np.concatenate([log_errors(sheet, constants, np.exp(at)) for sheet in sheets])

    def loss(at: Floats, error: Floats) -> float:
        return float(np.log1p((error / TOLERANCE) ** 2).sum() + (precision * (at - prior) ** 2).sum())

    error, damping = errors(point), 1e-3
    best = loss(point, error)
    for _ in range(rounds):
        slope = np.stack([(errors(point + 0.02 * unit) - error) / 0.02 for unit in np.eye(len(constants))], axis=1)
        weight = 1 / (1 + (error / TOLERANCE) ** 2) / TOLERANCE**2
        curvature = slope.T @ (weight[:, None] * slope) + np.diag(precision)
        gradient = slope.T @ (weight * error) + precision * (point - prior)
        before = best
        for _ in range(6):
            step = np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), -gradient).clip(-1, 1)
            tried = errors(point + step)
            if loss(point + step, tried) < best:
                point, error, best = point + step, tried, loss(point + step, tried)
                damping = max(damping / 10, 1e-6)
                break
            damping *= 10
        if before - best < 1e-3 * before:
            break
    return np.exp(point)


def fitted(one: Fit, without: Sequence[Sheet] = (), start: Floats | None = None, rounds: int = 15) -> Floats:
    """The constants of a stack, some sheets left out."""
    left_out = {sheet.name for sheet in without}
    sheets = [sheet for table in one.tables for sheet in sheets_of(table) if sheet.name not in left_out]
    return fit(sheets, one.constants, start, rounds)


def main() -> None:
    """Print every stack's constants and how well they predict what they were fitted to."""
    for one in FITS:
        values = fitted(one)
        sheets = [sheet for table in one.tables for sheet in sheets_of(table)]
        errors = np.abs(np.expm1(np.concatenate([log_errors(sheet, one.constants, values) for sheet in sheets])))
        print(f"[{one.stack}]  # {len(errors)} rows, |error| median {np.median(errors):.3f}")  # noqa: T201
        for constant, value in zip(one.constants, values, strict=True):
            print(f"{constant.owner}.{constant.field} = {min(value, constant.most):.3g}")  # noqa: T201


if __name__ == "__main__":
    main()
