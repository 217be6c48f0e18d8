from __future__ import annotations

import numpy as np
import pytest

from autotuner.search.planning.belief import Belief, Told
from autotuner.search.planning.decision import Decision
from autotuner.search.planning.goal import Goal
from autotuner.search.planning.loss import Loss

FACTORS = 14  # the parts of a step, and the cluster's speed


def belief(shared: float, own: float = 0.0, log_hours: tuple[float, float] = (np.log(100), np.log(100))) -> Belief:
    """Two clusters of two accelerators, each with one shared factor of that deviation."""
    weights = np.zeros((2, 2 * FACTORS))
    weights[0, FACTORS - 1], weights[1, 2 * FACTORS - 1] = shared, shared
    return Belief(
        log_hours=np.array(log_hours),
        weights=weights,
        covariance=np.eye(2 * FACTORS),
        own=np.array([own, own]),
        accelerators=("a", "b"),
    )


def loss(limit_h: float = np.inf, prices: tuple[float, float] = (10.0, 10.0), weight: float = 3.0) -> Loss:
    return Loss(rates=np.array(prices), limits_h=np.full(2, limit_h), weight=weight, dollars=np.ones(2))


def told(accelerator: str, noise: float = 1e-6) -> Told:
    rows = np.zeros((1, FACTORS))
    rows[0, -1] = 1.0
    return Told(accelerator=accelerator, rows=rows, noise=np.array([noise]))


def test_what_is_measured_is_known_and_the_rest_is_as_before() -> None:
    after = belief(0.3, own=0.1).after(told("a"))
    # 1e-6 of noise and what a layout has for itself are left
    assert after.deviations == pytest.approx([0.1, np.hypot(0.3, 0.1)], rel=1e-4)


def test_noise_as_large_as_the_error_leaves_half_the_variance() -> None:
    assert belief(0.3).after(told("a", noise=1.0)).deviations[0] == pytest.approx(0.3 / np.sqrt(2))


def test_a_measurement_that_cannot_change_the_choice_is_worth_nothing() -> None:
    far = belief(0.05, log_hours=(np.log(100), np.log(300)))
    assert Decision(belief=far, loss=loss()).regret_saved(far.after(told("a"))) == pytest.approx(0.0, abs=1e-9)


def test_of_two_equal_clusters_one_measurement_saves_what_the_normal_distribution_says() -> None:
    equal = belief(0.2)
    saved = Decision(belief=equal, loss=loss()).regret_saved(equal.after(told("a")))
    # E max(0, m - 1) of a log-normal m of mean 1 and deviation s is 2 cdf(s / 2) - 1: that of a call at the money
    expected = 10 * 100 * np.exp(0.02) * 0.07966
    assert saved == pytest.approx(expected, rel=0.06)  # three standard errors of 2,048 draws


def test_what_is_left_open_is_worth_no_less_than_any_measurement() -> None:
    equal = belief(0.2, own=0.1)
    decision = Decision(belief=equal, loss=loss())
    assert decision.regret > decision.regret_saved(equal.after(told("a"))) > 0


def test_both_measurements_save_more_than_one() -> None:
    equal = belief(0.2)
    decision, first = Decision(belief=equal, loss=loss()), equal.after(told("a"))
    assert decision.regret_saved(first.after(told("b"))) > decision.regret_saved(first)


def test_a_broken_limit_costs_as_many_more_runs() -> None:
    sure = belief(1e-6, log_hours=(np.log(100), np.log(120)))
    losses = Decision(belief=sure, loss=loss(limit_h=110.0)).losses
    assert losses == pytest.approx([1000.0, 1200.0 * 4], rel=1e-3)


def test_a_cheaper_cluster_that_may_be_late_loses_to_one_that_never_is() -> None:
    late = belief(0.3, log_hours=(np.log(100), np.log(50)))
    assert Decision(belief=late, loss=loss(limit_h=105.0, prices=(10.0, 25.0))).best == 1
    assert Decision(belief=late, loss=loss(prices=(10.0, 25.0))).best == 0


def test_chances_to_keep_a_limit_are_those_of_the_log_normal_distribution() -> None:
    chances = Decision(belief=belief(0.2), loss=loss(limit_h=100 * np.exp(0.2))).chances_kept
    assert chances == pytest.approx([0.8413, 0.8413], abs=1e-3)  # one deviation above the median


def test_chances_to_be_the_best_sum_to_one_and_are_even_for_equals() -> None:
    chances = Decision(belief=belief(0.2), loss=loss()).chances_best()
    assert chances.sum() == pytest.approx(1.0)
    assert chances[0] == pytest.approx(0.5, abs=0.035)  # three standard errors of 2,048 draws


@pytest.mark.parametrize(
    ("goal", "rates", "limits"),
    [
        (Goal(num_tokens=1, deadline_s=3600 * 50), [100.0, 400.0], [50.0, 50.0]),
        (Goal(num_tokens=1, price_limit=2000), [1.0, 1.0], [20.0, 5.0]),
        (Goal(num_tokens=1, deadline_s=3600 * 10, price_limit=2000), [100.0, 400.0], [10.0, 5.0]),
        (Goal(num_tokens=1), [10.0, 20.0], [np.inf, np.inf]),
    ],
)
def test_a_goal_says_what_is_lost_and_up_to_when(goal: Goal, rates: list[float], limits: list[float]) -> None:
    found = Loss.by_prices(np.array([100.0, 400.0]), goal)
    assert list(found.rates) == rates
    assert list(found.limits_h) == limits
    assert list(found.rates * found.dollars) == [100.0, 400.0]
