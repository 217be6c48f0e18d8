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


def test_a_front_is_of_ranked_trials_that_tell_all_metrics_and_no_other_beats() -> None:
    front = of(WORSE, FRUGAL, FAST, MIDDLE)
    assert [point.trial for point in front.points] == [0, 1, 2]
    assert [one.trial for one in front.behind] == [3]
    assert front.points[0].values == pytest.approx((0.4, 0.25))
    front = of(died(0, BASE))
    assert (front.points, front.behind, front.progress) == ((), (), ())
    assert on_front(FRONT, [WORSE, FRUGAL, FAST, MIDDLE]) == [FRUGAL, FAST, MIDDLE]
    assert on_front(FRONT, []) == []
    assert [one.trial for one in valued(FRONT, FRONT.front, [ran(0, BASE, 1.0), FAST])] == [FAST]
    front = of(FAST, ran(7, BASE, 1.0))
    assert front.num_untold == 1
    assert [point.trial for point in front.points] == [0]


def test_each_point_says_what_it_is_the_best_in_and_each_step_what_it_costs_once() -> None:
    front = of(FAST, MIDDLE, FRUGAL, WORSE)
    fast, _, frugal = front.points
    assert fast.best_in == (Metric.MFU,)
    (trade,) = fast.trades
    assert trade.trial == 1
    (gain,) = trade.gains
    assert gain.metric is Metric.TOKENS_PER_JOULE
    assert gain.share == pytest.approx(4000 / 3080 - 1)
    (cost,) = trade.costs
    assert cost.metric is Metric.MFU
    assert cost.share == pytest.approx(1 / 1.1 - 1)
    assert frugal.num_beaten == 1
    three = (Metric.MFU, Metric.TOKENS_PER_JOULE, Metric.SIMPLICITY)
    plain = drawing(5, 1.5, 4000, complexity=0.0)
    front = of(FAST, plain, metrics=three)
    (trade,) = front.points[1].trades
    assert [one.metric for one in trade.gains] == [Metric.MFU, Metric.TOKENS_PER_JOULE]
    assert [one.metric for one in trade.costs] == [Metric.SIMPLICITY]


def test_one_point_is_named_by_a_profile_the_knee_or_what_the_front_loses_without_it() -> None:
    front = of(FAST, MIDDLE, FRUGAL)
    assert [point.is_knee for point in front.points] == [False, True, False]
    assert not any(point.is_knee for point in of(FAST, FRUGAL).points)  # of two, both are ends
    near = drawing(4, 1.01, 3950)
    shares = {point.trial: point.volume_share for point in of(FAST, near, FRUGAL).points}
    assert 0 < shares[4] < shares[2] < 1
    assert sum(shares.values()) <= 1  # what several dominate is lost with none of them

    def first(*weights: float) -> int:
        profile = tuple(Weight(metric=metric, weight=weight) for metric, weight in zip(METRICS, weights, strict=True))
        return next(point.trial for point in of(FAST, MIDDLE, FRUGAL, profile=profile).points if point.is_first)

    assert (first(9, 1), first(1, 9)) == (0, 2)
    assert [point.trial for point in of(MIDDLE, FAST).points if point.is_first] == [0]


def test_what_is_behind_says_what_beats_it_unless_it_is_within_its_interval() -> None:
    (behind,) = of(FAST, MIDDLE, FRUGAL, WORSE).behind
    assert behind.by == 1
    assert [change.metric for change in behind.changes] == [*METRICS]
    assert not behind.may_belong
    (behind,) = of(FAST, drawing(5, 1.001, 4000)).behind
    assert behind.may_belong


def test_other_metrics_make_another_front_and_usual_ones_are_known() -> None:
    plain = drawing(5, 2.5, 4000, complexity=0.0)
    front = of(FAST, FRUGAL, plain, metrics=(Metric.MFU, Metric.SIMPLICITY))
    assert [point.trial for point in front.points] == [0, 5]
    request = sweep_request(job=big_job())
    assert sweep_front(request, [FAST]).metrics == (Metric.MFU, Metric.TOKENS_PER_JOULE, Metric.SIMPLICITY)
    assert sweep_front(sweep_request(), [FAST]).metrics == (Metric.MFU, Metric.SIMPLICITY)  # no draw is known of cores


def test_the_hypervolume_rises_trial_by_trial_unless_values_are_within_a_hundredth() -> None:
    progress = {reach.trial: reach.volume_share for reach in of(FAST, MIDDLE, FRUGAL, WORSE).progress}
    assert list(progress) == [0, 1, 2, 3]
    assert progress[0] < progress[1] < progress[2] == pytest.approx(1.0)
    assert progress[3] == pytest.approx(1.0)
    assert not adds_to_front((0.4, 2.0), [(0.397, 2.1)])
    assert adds_to_front((0.4, 2.0), [(0.39, 2.1)])
    assert adds_to_front((0.4, 2.0), [(0.5, 1.9), (0.3, 2.5)])
    assert adds_to_front((0.4, 2.0), [])


# ---------------------------------------------------------------- which trials are on a front
FRONT = Objective(front=(Metric.MFU, Metric.TOKENS_PER_JOULE))
