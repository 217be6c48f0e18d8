"""Intervals of step times and probabilities of fitting."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from itertools import pairwise
from statistics import NormalDist

import numpy as np
import pytest

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.software import BITS_8, BITS_16, DENSE, comparisons, load_stack, pooled_scatter
from autotuner.core.choices import Precision
from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.job import Calibration, PartFactor
from autotuner.core.layout import Layout
from autotuner.core.prediction import StepTime
from autotuner.costmodel.evidence import Where
from autotuner.costmodel.predict import predict
from autotuner.costmodel.uncertainty import (
    CLUSTER,
    MEMORY_DEVIATION,
    PARTS,
    TRUST,
    Z80,
    fit_probability,
    interval_error,
    part_shares,
    relative_error,
    time_error,
)
from tests.builders import big_job

ONE = LayoutColumns.from_layouts([Layout()])

FITTED = replace(big_job(), stack=load_stack("nanotron"))
"""A job whose software was compared on its device."""


def step(**parts: float) -> StepTime[Floats]:
    """A step of those parts and no others."""
    return StepTime(**{f.name: np.array([parts.get(f.name, 0.0)]) for f in fields(StepTime)})


def error_of(**parts: float) -> float:
    return float(relative_error(ONE, step(**parts), big_job())[0])


def test_independent_errors_cancel_in_part_and_intervals_hold_80_percent() -> None:
    assert set(PARTS) == {f.name for f in fields(StepTime)}
    assert all(0 < deviation < 1 for deviation in PARTS.values())
    assert NormalDist().cdf(Z80) - NormalDist().cdf(-Z80) == pytest.approx(0.8, abs=1e-4)  # four digits of it are given
    assert error_of(matrix_s=1.0, attention_s=1.0) < max(error_of(matrix_s=1.0), error_of(attention_s=1.0))
    errors = [error_of(matrix_s=1.0, tensor_communication_s=share) for share in (0.2, 0.5, 1.0, 5.0)]
    assert errors == sorted(errors)
    assert error_of(matrix_s=2.0, bubble_s=1.0) == error_of(matrix_s=1.0, bubble_s=0.5)
    error = time_error(big_job())
    (shares,) = part_shares(step(matrix_s=3.0, bubble_s=1.0), error)
    assert dict(zip(error.parts, shares.tolist(), strict=True)) == {
        **dict.fromkeys(PARTS, 0.0),
        "matrix_s": 0.75,
        "bubble_s": 0.25,
    }
    assert width(by_parts(0.01)) < width(by_parts(0.1)) < width(by_parts(0.3))
    assert width(by_parts(0.01)) < width(None)
    assert width(by_parts(0.1, -0.05)) < width(by_parts(0.1)) < width(by_parts(0.1, 0.5))
    known = by_parts(0.05)
    wider = width(replace(known, interval_scale=2.0))
    assert math.log1p(wider) == pytest.approx(2 * math.log1p(width(known)))
    slow = replace(FITTED, calibration=by_parts(0.01, tensor_communication_s=2.0))
    usual, slower = predict(SPLIT, FITTED).step_time, predict(SPLIT, slow).step_time
    assert slower.tensor_communication_s[0] == 2 * usual.tensor_communication_s[0]
    assert slower.matrix_s[0] == usual.matrix_s[0]


@pytest.mark.parametrize("name", sorted(PARTS))
def test_a_step_of_one_part_is_as_uncertain_as_that_part_and_the_rest_together(name: str) -> None:
    error = interval_error(ONE, big_job())
    deviation = np.sqrt(np.square(error.parts[name]) + error.residual**2 + error.common**2)[0]
    assert error_of(**{name: 3.0}) == pytest.approx(np.exp(Z80 * deviation) - 1, rel=1e-12)  # rounding


def test_what_was_compared_is_known_better_and_runs_scatter_as_their_software_says() -> None:
    unknown, known = time_error(big_job()), time_error(FITTED)
    assert all(known.parts[name] < unknown.parts[name] for name in PARTS)
    layouts = LayoutColumns.from_layouts([Layout(), Layout(offload_activations=True)])
    parts = interval_error(layouts, FITTED).parts
    expected = [TRUST[where] * PARTS["offload_s"] for where in (Where.HERE, Where.NOWHERE)]
    assert np.asarray(parts["offload_s"]).tolist() == expected
    assert parts["bubble_s"] == TRUST[Where.HERE] * PARTS["bubble_s"]
    layouts = LayoutColumns.from_layouts([Layout(), Layout(precision=Precision.FP8)])
    said = comparisons()["nemo", "h100-sxm", DENSE].scatter
    expected = [said[BITS_16], said[BITS_8]]
    assert interval_error(layouts, replace(FITTED, stack=load_stack("nemo"))).residual.tolist() == expected
    noisy = replace(FITTED, stack=replace(FITTED.stack, scatter=0.2))
    assert interval_error(ONE, noisy).residual.tolist() == [0.2]
    assert interval_error(ONE, big_job()).residual.tolist() == [pooled_scatter(DENSE)[BITS_16]]


@pytest.mark.parametrize("cluster", ["mi300x:8", "v100:8"])
def test_all_is_less_certain_on_devices_that_nothing_was_compared_on(cluster: str) -> None:
    narrow, wide = time_error(big_job()), time_error(replace(big_job(), cluster=load_cluster(cluster)))
    assert (wide.residual, wide.common) == (2 * narrow.residual, 2 * narrow.common)
    assert dict(wide.parts) == {name: 2 * deviation for name, deviation in narrow.parts.items()}


def test_runs_narrow_what_they_were_measured_on_and_leave_the_rest_open() -> None:
    known = replace(FITTED, calibration=Calibration(factor=1.1, deviation=0.03, num_runs=2))
    assert (interval_error(ONE, FITTED).common, interval_error(ONE, known).common) == (CLUSTER, 0.03)
    assert time_error(known) == time_error(FITTED)
    layouts = LayoutColumns.from_layouts([Layout(), Layout(offload_activations=True)])
    parts = interval_error(layouts, replace(FITTED, calibration=by_parts(1e-6))).parts
    plain, offloaded = np.asarray(parts["offload_s"]).tolist()
    assert plain == 0.0
    assert offloaded > 0.5 * TRUST[Where.NOWHERE] * PARTS["offload_s"]


def test_a_layout_fits_by_the_curve_of_a_normal_distribution_through_a_half_at_the_limit() -> None:
    assert fit_probability(np.array([80e9]), 80e9).tolist() == [0.5]
    probabilities = fit_probability(np.geomspace(40e9, 160e9, 50), 80e9)
    assert all(more > less for more, less in pairwise(probabilities))
    assert np.all((probabilities > 0) & (probabilities < 1))
    assert fit_probability(np.array([1.0, 1e30]), 80e9) == pytest.approx([1.0, 0.0], abs=1e-20)
    deviations = np.linspace(-3, 3, 61)
    probabilities = fit_probability(80e9 * np.exp(-MEMORY_DEVIATION * deviations), 80e9)
    # 0.0095: how far the logistic curve lies from the normal distribution at most
    assert probabilities == pytest.approx([NormalDist().cdf(d) for d in deviations], abs=0.0096)


def by_parts(deviation: float, correlation: float = 0.0, **parts: float) -> Calibration:
    """Every part known so well, some with a factor of their own, and any two parts correlated so far."""
    correlations = np.full((len(PARTS) + 1,) * 2, correlation)
    correlations[-1] = correlations[:, -1] = 0.0
    np.fill_diagonal(correlations, 1.0)
    return Calibration(
        factor=1.0,
        deviation=0.01,
        num_runs=9,
        parts=tuple(PartFactor(part=name, factor=parts.get(name, 1.0), deviation=deviation) for name in PARTS),
        correlations=tuple(map(tuple, correlations.tolist())),
    )


SPLIT = LayoutColumns.from_layouts([Layout(tensor_parallel_degree=8, data_parallel_replicate_degree=8)])


def width(known: Calibration | None) -> float:
    return float(predict(SPLIT, replace(FITTED, calibration=known)).relative_error[0])
