from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotuner.search.sampler.posterior import Prior, condition
from tests.unit.search.tables import LAYOUTS

ROWS = np.arange(len(LAYOUTS))


def prior(**changes: object) -> Prior:
    """Two factors: the first moves the first half of the rows, the second the rest."""
    first = np.arange(len(ROWS)) < len(ROWS) / 2
    base = Prior(
        layouts=LAYOUTS,
        log_predicted=np.linspace(0.0, 1.0, len(ROWS)),
        shares=np.stack([first, ~first], axis=1).astype(np.float64),
        deviations=np.array([0.5, 0.5]),
        residual=0.1,
        residual_correlation=0.5,
    )
    return replace(base, **changes)  # type: ignore[arg-type]  # the fields are the caller's business


def observed(belief: Prior, rows: list[int], errors: list[float], noise: float = 1e-4) -> tuple[np.ndarray, np.ndarray]:
    index = np.array(rows, dtype=np.int64)
    values = belief.log_predicted[index] + np.array(errors)
    estimate = condition(belief, index, values, np.full(index.size, noise**2)).at(ROWS)
    return estimate.mean - belief.log_predicted, estimate.variance


def test_without_observations_every_prediction_stands_with_its_error() -> None:
    corrections, variance = observed(prior(), [], [])
    assert not corrections.any()
    assert variance == pytest.approx(np.full(len(ROWS), 0.5**2 + 0.1**2))


def test_an_observed_row_is_known_up_to_the_noise() -> None:
    corrections, variance = observed(prior(), [3], [0.7])
    assert corrections[3] == pytest.approx(0.7, abs=1e-3)  # the prior pulls by noise^2 / variance
    assert variance[3] == pytest.approx(1e-8, rel=0.01)


def test_what_one_row_shows_carries_over_to_rows_that_spend_on_the_same_part_and_to_no_other() -> None:
    corrections, _ = observed(prior(residual_correlation=0.0), [0], [0.4])
    half = len(ROWS) // 2
    assert (corrections[1:half] > 0.3).all()  # 0.5^2 of a variance of 0.5^2 + 0.1^2 is the part's: 0.385
    assert corrections[half:] == pytest.approx(0.0)


def test_of_rows_with_equal_parts_the_more_alike_is_corrected_more() -> None:
    corrections, _ = observed(prior(deviations=np.zeros(2)), [0], [0.1])
    alike = prior().covariance(ROWS[:1], ROWS)[0]
    order = np.argsort(-(alike - prior(residual=0.0).covariance(ROWS[:1], ROWS)[0]))
    assert (np.diff(corrections[order]) <= 1e-12).all()  # equal but for rounding where equally alike
    assert corrections[order[1]] > 2 * corrections[order[-1]] > 0


def test_observations_never_make_a_belief_less_certain() -> None:
    _, before = observed(prior(), [0], [0.1])
    _, after = observed(prior(), [0, 9, 20], [0.1, -0.1, 0.3])
    assert (after <= before + 1e-12).all()


def test_a_row_observed_twice_counts_with_both_observations() -> None:
    corrections, _ = observed(prior(), [5, 5], [0.2, 0.4], noise=0.01)
    assert corrections[5] == pytest.approx(0.3, abs=1e-3)  # the prior pulls by noise^2 / variance


def test_conditioning_is_that_of_the_joint_normal_distribution() -> None:
    belief, rows, errors = prior(), [2, 11, 30], np.array([0.3, -0.2, 0.1])
    joint = belief.covariance(ROWS, ROWS)
    gain = joint[:, rows] @ np.linalg.inv(joint[np.ix_(rows, rows)] + 1e-8 * np.eye(3))
    corrections, variance = observed(belief, rows, errors.tolist())
    assert corrections == pytest.approx(gain @ errors)
    assert variance == pytest.approx(np.diag(joint - gain @ joint[rows]), abs=1e-12)  # of 0.26, after cancellation


def test_approximately_is_exact_where_rows_share_no_residual_but_for_the_observed_ones() -> None:
    belief = prior(residual_correlation=0.0)
    rows = np.array([0, 7])
    posterior = condition(belief, rows, belief.log_predicted[rows] + 0.2, np.full(2, 1e-4))
    rough, exact, others = posterior.approximately(), posterior.at(ROWS), np.setdiff1d(ROWS, rows)
    assert rough.mean[others] == pytest.approx(exact.mean[others])
    assert rough.variance[others] == pytest.approx(exact.variance[others])


def test_errors_as_large_as_the_prior_expects_surprise_by_one_each() -> None:
    belief, generator = prior(), np.random.default_rng(0)
    errors = generator.multivariate_normal(np.zeros(len(ROWS)), belief.covariance(ROWS, ROWS))
    posterior = condition(belief, ROWS, belief.log_predicted + errors, np.full(len(ROWS), 1e-12))
    # a chi-square variable: its deviation is sqrt(2 / rows) of its mean, allowed three times
    assert posterior.surprise / len(ROWS) == pytest.approx(1.0, abs=3 * np.sqrt(2 / len(ROWS)))
