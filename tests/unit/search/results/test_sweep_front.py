from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.measurement import Footprint, Power
from autotuner.core.objective import Metric, Objective, Weight
from autotuner.core.trial import Trial
from autotuner.search.pareto import adds_to_front, on_front, valued
from autotuner.search.results.sweep_front import SweepFront, sweep_front
from tests.builders import big_job, sweep_request
from tests.unit.search.results.trials import BASE, died, ran

METRICS = (Metric.MFU, Metric.TOKENS_PER_JOULE)
REQUEST = sweep_request(job=big_job(), objective=Objective(front=METRICS))


def drawing(number: int, step_time_s: float, power_w: float, *, complexity: float = 1.0) -> Trial:
    """A trial of 1,000 tokens a step, all of whose job draws so much."""
    power = Power(accelerators_w=power_w, hosts_w=0.0, network_w=0.0, building_w=0.0)
    footprint = Footprint(power=power, price_per_hour=0.0, co2_kg_per_hour=0.0, complexity=complexity)
    layout = replace(BASE, micro_batch_size=2**number)
    return ran(number, layout, step_time_s, measured={"footprint": footprint})


FAST, MIDDLE, FRUGAL = drawing(0, 1.0, 4000), drawing(1, 1.1, 2800), drawing(2, 2.0, 1250)
WORSE = drawing(3, 2.2, 2000)


def of(*trials: Trial, metrics: tuple[Metric, ...] = (), profile: tuple[Weight, ...] = ()) -> SweepFront:
    return sweep_front(REQUEST, trials, metrics, profile)


def test_what_no_other_beats_is_on_the_front_by_falling_first_metric() -> None:
    front = of(WORSE, FRUGAL, FAST, MIDDLE)
    assert [point.number for point in front.points] == [0, 1, 2]
    assert [one.number for one in front.behind] == [3]
    assert front.points[0].values == pytest.approx((0.4, 0.25))


def test_before_a_trial_has_a_rank_the_front_is_empty() -> None:
    front = of(died(0, BASE))
    assert (front.points, front.behind, front.progress) == ((), (), ())


def test_each_point_says_what_it_is_the_best_in_and_what_more_of_the_rest_costs() -> None:
    front = of(FAST, MIDDLE, FRUGAL, WORSE)
    fast, _, frugal = front.points
    assert fast.best_in == (Metric.MFU,)
    (trade,) = fast.trades
    assert trade.number == 1
    (gain,) = trade.gains
    assert gain.metric is Metric.TOKENS_PER_JOULE
    assert gain.share == pytest.approx(4000 / 3080 - 1)
    (cost,) = trade.costs
    assert cost.metric is Metric.MFU
    assert cost.share == pytest.approx(1 / 1.1 - 1)
    assert "the best of 4 in MFU" in fast.why
    assert "trial 1 has +29.9 % tokens per joule for −9.1 % MFU" in fast.why
    assert "1 other is better in nothing" in frugal.why


def test_one_step_that_is_more_of_several_things_is_told_once() -> None:
    three = (Metric.MFU, Metric.TOKENS_PER_JOULE, Metric.SIMPLICITY)
    plain = drawing(5, 1.5, 4000, complexity=0.0)
    front = of(FAST, plain, metrics=three)
    (trade,) = front.points[1].trades
    assert [one.metric for one in trade.gains] == [Metric.MFU, Metric.TOKENS_PER_JOULE]
    assert "trial 0 has +50.0 % MFU and +50.0 % tokens per joule for −50.0 % simplicity" in front.points[1].why


def test_the_knee_is_the_point_nearest_to_the_best_of_everything() -> None:
    front = of(FAST, MIDDLE, FRUGAL)
    assert [point.is_knee for point in front.points] == [False, True, False]
    assert not any(point.is_knee for point in of(FAST, FRUGAL).points)  # of two, both are ends


def test_the_front_loses_most_without_what_stands_alone() -> None:
    near = drawing(4, 1.01, 3950)
    shares = {point.number: point.volume_share for point in of(FAST, near, FRUGAL).points}
    assert 0 < shares[4] < shares[2] < 1
    assert sum(shares.values()) <= 1  # what several dominate is lost with none of them


def test_a_profile_names_one_point_without_another_sweep() -> None:
    def first(*weights: float) -> int:
        profile = tuple(Weight(metric=metric, weight=weight) for metric, weight in zip(METRICS, weights, strict=True))
        return next(point.number for point in of(FAST, MIDDLE, FRUGAL, profile=profile).points if point.is_first)

    assert (first(9, 1), first(1, 9)) == (0, 2)


def test_without_a_profile_the_sweeps_own_metric_names_one() -> None:
    assert [point.number for point in of(MIDDLE, FAST).points if point.is_first] == [0]


def test_what_is_behind_says_what_beats_it_and_by_how_much() -> None:
    (behind,) = of(FAST, MIDDLE, FRUGAL, WORSE).behind
    assert behind.by == 1
    assert [change.metric for change in behind.changes] == [*METRICS]
    assert not behind.may_belong


def test_a_trial_that_is_behind_by_less_than_its_interval_may_belong_to_the_front() -> None:
    (behind,) = of(FAST, drawing(5, 1.001, 4000)).behind
    assert behind.may_belong


def test_other_metrics_make_another_front_of_the_same_trials() -> None:
    plain = drawing(5, 2.5, 4000, complexity=0.0)
    front = of(FAST, FRUGAL, plain, metrics=(Metric.MFU, Metric.SIMPLICITY))
    assert [point.number for point in front.points] == [0, 5]


def test_trials_that_do_not_tell_a_metric_are_counted_apart() -> None:
    front = of(FAST, ran(7, BASE, 1.0))
    assert front.num_untold == 1
    assert [point.number for point in front.points] == [0]


def test_the_hypervolume_rises_trial_by_trial_to_what_it_is() -> None:
    progress = {reach.number: reach.volume_share for reach in of(FAST, MIDDLE, FRUGAL, WORSE).progress}
    assert list(progress) == [0, 1, 2, 3]
    assert progress[0] < progress[1] < progress[2] == pytest.approx(1.0)
    assert progress[3] == pytest.approx(1.0)


def test_where_nobody_asked_speed_energy_and_simplicity_are_compared() -> None:
    request = sweep_request(job=big_job())
    assert sweep_front(request, [FAST]).metrics == (Metric.MFU, Metric.TOKENS_PER_JOULE, Metric.SIMPLICITY)
    assert sweep_front(sweep_request(), [FAST]).metrics == (Metric.MFU, Metric.SIMPLICITY)  # no draw is known of cores


def test_what_is_the_best_in_everything_says_so_in_a_word() -> None:
    (alone,) = of(FAST, drawing(5, 1.5, 4500)).points
    assert alone.why[0] == "the best of 2 in everything"


def test_a_trial_alone_is_said_to_be_alone() -> None:
    assert of(FAST).points[0].why == ("the only trial so far that tells all of these",)


# ---------------------------------------------------------------- which trials are on a front
FRONT = Objective(front=(Metric.MFU, Metric.TOKENS_PER_JOULE))


def test_trials_that_no_other_dominates_are_on_the_front_in_their_order() -> None:
    assert on_front(FRONT, [WORSE, FRUGAL, FAST, MIDDLE]) == [FRUGAL, FAST, MIDDLE]


def test_of_no_trials_none_is_on_the_front() -> None:
    assert on_front(FRONT, []) == []


def test_a_trial_that_does_not_tell_a_metric_is_left_out() -> None:
    assert [one.trial for one in valued(FRONT, FRONT.front, [ran(0, BASE, 1.0), FAST])] == [FAST]


def test_values_within_a_hundredth_of_others_in_everything_add_nothing() -> None:
    assert not adds_to_front((0.4, 2.0), [(0.397, 2.1)])
    assert adds_to_front((0.4, 2.0), [(0.39, 2.1)])
    assert adds_to_front((0.4, 2.0), [(0.5, 1.9), (0.3, 2.5)])
    assert adds_to_front((0.4, 2.0), [])
