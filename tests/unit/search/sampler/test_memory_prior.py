from __future__ import annotations

import math

import numpy as np
import pytest

from autotuner.costmodel.uncertainty import MEMORY_DEVIATION
from autotuner.search.sampler.acquisition import log_probability
from autotuner.search.sampler.memory_prior import MemoryTrial, learn_peaks, memory_prior
from tests.unit.search.tables import LAYOUTS, predictions

LIMIT = 1e9
PEAKS = np.linspace(0.5e9, 1.5e9, len(LAYOUTS))
PRIOR = memory_prior(LAYOUTS, predictions(peak_bytes=PEAKS).memory)
EDGE = int(np.argmin(np.abs(PEAKS - LIMIT)))
FITS, RAN_OUT = MemoryTrial(fits=True), MemoryTrial(fits=False)


def fit_probability(trials: dict[int, MemoryTrial]) -> np.ndarray:
    estimate = learn_peaks(PRIOR, LIMIT, trials).at(np.arange(len(LAYOUTS)))
    return np.exp(log_probability(math.log(LIMIT) - estimate.mean, np.sqrt(estimate.variance)))


def test_before_any_trial_the_chance_falls_with_the_predicted_peak_and_is_even_at_the_limit() -> None:
    chance = fit_probability({})
    assert chance[0] > 0.99
    assert chance[-1] < 0.01
    assert chance[EDGE] == pytest.approx(0.5, abs=0.1)  # no row lies exactly at the limit


def test_the_usual_error_of_a_peak_is_the_published_one() -> None:
    deviations = np.sqrt(PRIOR.variance(np.arange(len(LAYOUTS))))
    assert np.median(deviations) == pytest.approx(MEMORY_DEVIATION, rel=0.35)  # layouts differ in what they hold


def test_every_out_of_memory_lowers_the_chances_of_the_others() -> None:
    near = slice(EDGE - 10, EDGE + 10)
    first, second = fit_probability({EDGE: RAN_OUT}), fit_probability({EDGE: RAN_OUT, EDGE - 3: RAN_OUT})
    assert (first[near] < fit_probability({})[near]).all()
    assert (second[near] < first[near]).all()


def test_a_success_at_the_edge_raises_the_chances_of_the_others() -> None:
    near = slice(EDGE - 10, EDGE + 10)
    assert (fit_probability({EDGE: FITS})[near] > fit_probability({})[near]).all()


def test_a_success_far_below_the_limit_teaches_nothing() -> None:
    assert fit_probability({0: FITS}) == pytest.approx(fit_probability({}), abs=1e-3)  # a chance of 1e-8 was excluded


def test_a_failure_that_nobody_expected_is_believed() -> None:
    assert fit_probability({0: RAN_OUT})[EDGE] < 0.1  # it was even


def test_the_order_of_the_trials_hardly_matters() -> None:
    trials = {EDGE: RAN_OUT, EDGE - 8: FITS, EDGE + 6: FITS, EDGE - 2: RAN_OUT}
    forwards, backwards = fit_probability(trials), fit_probability(dict(reversed(trials.items())))
    assert forwards == pytest.approx(backwards, abs=0.05)  # one pass of filtering is not exact


def test_a_measured_peak_is_known_from_then_on() -> None:
    estimate = learn_peaks(PRIOR, LIMIT, {EDGE: MemoryTrial(fits=True, peak_bytes=0.8e9)}).at(np.array([EDGE]))
    assert math.exp(estimate.mean[0]) == pytest.approx(0.8e9, rel=0.03)  # known to 2 %, pulled towards 1e9


def test_one_observation_moves_the_belief_to_the_moments_of_the_cut_off_normal() -> None:
    row = np.array([EDGE])
    mean, deviation = PRIOR.log_predicted[EDGE], math.sqrt(PRIOR.variance(row)[0])
    grid = np.linspace(mean - 8 * deviation, mean + 8 * deviation, 20_001)
    above = np.array([math.erfc((math.log(LIMIT) - g) / 0.02 / math.sqrt(2)) for g in grid])
    weights = np.exp(-(((grid - mean) / deviation) ** 2) / 2) * above
    expected_mean = np.average(grid, weights=weights)
    estimate = learn_peaks(PRIOR, LIMIT, {EDGE: RAN_OUT}).at(row)
    assert estimate.mean[0] == pytest.approx(expected_mean, abs=1e-6)
    assert estimate.variance[0] == pytest.approx(np.average((grid - expected_mean) ** 2, weights=weights), rel=1e-4)
