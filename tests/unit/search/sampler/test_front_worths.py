from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from autotuner.core.objective import Metric
from autotuner.costmodel.predict import predict
from autotuner.costmodel.resource_cost import predicted_footprints
from autotuner.search.fronts.dominance import non_dominated
from autotuner.search.fronts.expected_gain import log_expected_volume_gain
from autotuner.search.sampler.front_worths import FrontWorths, log_expected_entry
from autotuner.search.sampler.memory_prior import MemoryTrial
from autotuner.search.sampler.observations import Evidence
from autotuner.search.sampler.posterior import Estimate
from autotuner.search.sampler.propose import Proposal, propose
from tests.unit.search.sampler.test_propose import NOTHING, NUM_ROWS, after, beliefs
from tests.unit.search.tables import BIG_JOB, BIG_LAYOUTS

SIMPLICITY = np.linspace(0.1, 1.0, NUM_ROWS)
WORTHS = FrontWorths(
    log_worth=np.log(np.stack([np.full(NUM_ROWS, 0.4), SIMPLICITY], axis=1)), is_rate=np.array([True, False])
)
"""The rows that ``beliefs`` expects to be slower are simpler: all of them are expected on the front."""


def proposed(evidence: Evidence, worths: FrontWorths = WORTHS) -> Proposal:
    belief = replace(beliefs(), front=worths)
    proposal = propose(belief, evidence, cost_exponent=0.0, tie_breaker=np.random.default_rng(0))
    assert proposal is not None
    return proposal


def ended(step_time_s: dict[int, float], pending: tuple[int, ...] = ()) -> Evidence:
    return replace(after(step_time_s, pending), completed=frozenset(step_time_s))


def test_the_first_row_is_the_best_by_the_value_that_ranks() -> None:
    assert proposed(NOTHING).row == 0


def test_after_the_fastest_the_row_comes_that_adds_the_most_though_it_is_slower() -> None:
    proposal = proposed(ended({0: 1.0}))
    assert 0.3 < SIMPLICITY[proposal.row] < 0.9  # where the product of both logarithms is largest, not at an end
    assert proposal.expected_gain > 1  # the fastest is the least simple: it dominates hardly anything


def test_the_more_is_known_of_the_front_the_less_is_expected_to_be_gained() -> None:
    ends = {0: 1.0, NUM_ROWS - 1: 2.0}
    assert 0 < proposed(ended({**ends, NUM_ROWS // 2: 1.5})).expected_gain < proposed(ended(ends)).expected_gain


def test_a_pending_trial_counts_as_measured_at_what_it_is_expected_to_show() -> None:
    first = proposed(ended({0: 1.0}))
    second = proposed(ended({0: 1.0}, pending=(first.row,)))
    assert second.row != first.row
    assert second.expected_gain < first.expected_gain


def test_a_row_that_is_worse_than_all_in_what_is_no_rate_is_still_proposed_in_the_end() -> None:
    all_but_one = dict.fromkeys(range(1, NUM_ROWS), 1.0)
    evidence = Evidence(
        tried=frozenset(all_but_one),
        pending=(),
        step_time_s=all_but_one,
        memory={row: MemoryTrial(fits=True) for row in all_but_one},
        best_value=0.4,
        completed=frozenset(all_but_one),
    )
    proposal = proposed(evidence)
    assert proposal.row == 0
    assert proposal.expected_gain < 0.1


def test_worths_of_rows_are_the_logarithms_of_their_values() -> None:
    layouts = BIG_LAYOUTS.take(np.arange(50))
    predictions = predict(layouts, BIG_JOB)
    footprints = predicted_footprints(layouts, BIG_JOB, predictions)
    metrics = (Metric.MFU, Metric.TOKENS_PER_JOULE, Metric.SIMPLICITY)
    worths = FrontWorths.of(metrics, BIG_JOB, footprints, 50)
    values = np.exp(worths.values(np.arange(50), np.log(predictions.step_time.total_s)))
    assert values[:, 0] == pytest.approx(predictions.mfu)
    assert footprints.power is not None
    energy_j = predictions.step_time.total_s * footprints.power.total_w
    assert values[:, 1] == pytest.approx(BIG_JOB.workload.tokens_per_step / energy_j)
    assert values[:, 2] == pytest.approx(1 / (1 + footprints.complexity))


def test_the_cheap_order_of_large_tables_keeps_what_is_worth_most() -> None:
    generator = np.random.default_rng(0)
    worths = FrontWorths(log_worth=generator.normal(size=(20_000, 3)), is_rate=np.array([True, True, False]))
    times = Estimate(mean=generator.normal(size=20_000), variance=np.full(20_000, 0.04))
    likely = worths.values(np.arange(20_000), times.mean)
    known = np.flatnonzero(non_dominated(likely))[::3].tolist()
    frontier = worths.frontier({row: float(times.mean[row]) for row in known}, np.arange(20_000), times.mean)
    outcomes = worths.outcomes(slice(None), times, 1.0)
    best = np.argsort(-log_expected_volume_gain(outcomes, frontier))[:50]
    kept = np.argsort(-log_expected_entry(outcomes, frontier))[:4096]
    assert set(best.tolist()) <= set(kept.tolist())


def test_rows_that_no_speed_could_help_come_last() -> None:
    worths = FrontWorths(log_worth=np.log([[1.0, 0.5], [1.0, 0.1]]), is_rate=np.array([True, False]))
    times = Estimate(mean=np.zeros(2), variance=np.full(2, 0.01))
    frontier = replace(worths.frontier({0: 0.0}, np.arange(2), times.mean), reference=np.log([0.5, 0.2]))
    assert log_expected_entry(worths.outcomes(slice(None), times, 1.0), frontier)[1] == -math.inf
