"""What holds of a belief whatever was observed of its own job and of others."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.core.columns import Floats
from autotuner.search.sampler.gaussian_model import Points, Prior, Related, TaskSimilarity, condition
from tests.unit.search.tables import LAYOUTS

NUM_ROWS, NUM_FACTORS = len(LAYOUTS), 3
ROWS = np.arange(NUM_ROWS)
NONE = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False, kw_only=True)
class Case:
    """A belief, points of two other jobs, and what was observed of them."""

    prior: Prior
    related: Related
    log_observed: Floats


@st.composite
def cases(draw: st.DrawFn) -> Case:
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    num_points = draw(st.integers(1, 6))
    prior = Prior(
        layouts=LAYOUTS,
        log_predicted=generator.normal(size=NUM_ROWS),
        shares=generator.dirichlet(np.ones(NUM_FACTORS), size=NUM_ROWS),
        deviations=generator.uniform(0.0, 1.0, NUM_FACTORS),
        residual=generator.uniform(0.01, 0.5, NUM_ROWS),
        residual_correlation=draw(st.floats(0.0, 1.0)),
    )
    points = Points(
        layouts=LAYOUTS.take(generator.integers(0, NUM_ROWS, num_points)),
        log_predicted=generator.normal(size=num_points),
        loads=generator.uniform(0.0, 0.5, (num_points, NUM_FACTORS)),
        residual=generator.uniform(0.01, 0.5, num_points),
        tasks=generator.integers(1, 3, num_points),
    )
    apart = np.abs(np.subtract.outer(*[generator.permutation([0.0, 1.0, 3.0])] * 2))
    lengths = generator.uniform(0.5, 30.0, NUM_FACTORS)
    similarity = TaskSimilarity(
        factors=np.exp(-apart / lengths[:, None, None]), residual=np.exp(-apart / generator.uniform(0.5, 30.0))
    )
    return Case(
        prior=prior,
        related=Related(points=points, similarity=similarity),
        log_observed=points.log_predicted + generator.normal(size=num_points),
    )


def noise(num_points: int, deviation: float = 0.01) -> Floats:
    return np.full(num_points, deviation**2)


@given(cases())
def test_an_empty_observation_changes_nothing(case: Case) -> None:
    none = case.related.take(NONE)
    estimate = condition(case.prior, NONE, np.empty(0), np.empty(0), none).at(ROWS)
    assert estimate.mean == pytest.approx(case.prior.log_predicted)
    assert estimate.variance == pytest.approx(case.prior.points(ROWS).variance)


@given(cases())
def test_one_more_observation_widens_no_interval(case: Case) -> None:
    count = len(case.related)
    fewer = case.related.take(np.arange(count - 1))
    before = condition(case.prior, NONE, case.log_observed[:-1], noise(count - 1), fewer).at(ROWS)
    after = condition(case.prior, NONE, case.log_observed, noise(count), case.related).at(ROWS)
    assert (after.variance <= before.variance + 1e-9).all()  # rounding


@given(cases(), st.integers(0, NUM_ROWS - 1))
def test_a_row_that_is_measured_without_noise_is_known_whatever_proxy_trials_told(case: Case, row: int) -> None:
    log_observed = np.concatenate([[0.7], case.log_observed])
    variance = np.concatenate([[1e-12], noise(len(case.related))])
    estimate = condition(case.prior, np.array([row]), log_observed, variance, case.related).at(np.array([row]))
    assert estimate.mean == pytest.approx(0.7, abs=1e-4)  # the least residual has a variance of 1e-4
    assert estimate.variance == pytest.approx(0.0, abs=1e-6)


@given(cases())
def test_a_proxy_trial_of_the_very_job_is_an_ordinary_observation(case: Case) -> None:
    rows = np.arange(len(case.related))
    same = replace(case.related, points=case.prior.points(rows))
    variance = noise(len(rows))
    ordinary = condition(case.prior, rows, case.log_observed, variance)
    small = condition(case.prior, NONE, case.log_observed, variance, same)
    for one, other in ((ordinary.at(ROWS), small.at(ROWS)), (ordinary.at_all_rows(), small.at_all_rows())):
        assert one.mean == pytest.approx(other.mean)
        assert one.variance == pytest.approx(other.variance)


@given(cases())
def test_jobs_that_share_nothing_do_not_inform_each_other(case: Case) -> None:
    alone = TaskSimilarity(factors=np.stack([np.eye(3)] * NUM_FACTORS), residual=np.eye(3))
    related = replace(case.related, similarity=alone)
    estimate = condition(case.prior, NONE, case.log_observed, noise(len(related)), related).at(ROWS)
    assert estimate.mean == pytest.approx(case.prior.log_predicted)
    assert estimate.variance == pytest.approx(case.prior.points(ROWS).variance)


@given(cases())
def test_conditioning_on_other_jobs_is_that_of_the_joint_normal_distribution(case: Case) -> None:
    points, similarity, prior = case.related.points, case.related.similarity, case.prior
    joint = prior.covariance(points, points, similarity) + np.diag(noise(len(points)))
    cross = prior.covariance(prior.points(ROWS), points, similarity)
    gain = cross @ np.linalg.inv(joint)
    estimate = condition(prior, NONE, case.log_observed, noise(len(points)), case.related).at(ROWS)
    assert estimate.mean == pytest.approx(prior.log_predicted + gain @ (case.log_observed - points.log_predicted))
    assert estimate.variance == pytest.approx(
        prior.points(ROWS).variance - np.einsum("ij,ij->i", gain, cross), abs=1e-9
    )
