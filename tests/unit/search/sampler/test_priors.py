from __future__ import annotations

import numpy as np
import pytest

from autotuner.costmodel.predict import predict
from autotuner.costmodel.uncertainty import TimeError, log_variance, time_error
from autotuner.search.sampler.priors import learn_times, scale_inflation, time_prior
from tests.unit.search.tables import BIG_JOB, BIG_LAYOUTS

PREDICTIONS = predict(BIG_LAYOUTS, BIG_JOB)
PREDICTED_S = PREDICTIONS.step_time.total_s
PRIOR = time_prior(BIG_LAYOUTS, PREDICTIONS, time_error(BIG_JOB))
SEEN = range(0, len(BIG_LAYOUTS), len(BIG_LAYOUTS) // 12)


def test_how_slow_the_cluster_is_is_learnt_from_a_first_trial_and_the_order_stands() -> None:
    first = learn_times(PRIOR, {0: 1.3 * float(PREDICTED_S[0])})
    ratio = np.exp(first.at(np.arange(len(BIG_LAYOUTS))).mean) / PREDICTED_S
    assert np.median(ratio) > 1.1
    assert ratio.max() < 1.31  # what that trial showed, and its residual
    slow = learn_times(PRIOR, {row: 2.0 * float(PREDICTED_S[row]) for row in SEEN})
    errors = np.exp(slow.at(np.arange(len(BIG_LAYOUTS))).mean) / (2.0 * PREDICTED_S) - 1
    assert np.median(np.abs(errors)) < 0.05  # it was 0.5; parts take some of the blame


def test_predictions_stand_with_their_errors_until_they_prove_wrong() -> None:
    assert np.exp(learn_times(PRIOR, {}).at(np.arange(len(BIG_LAYOUTS))).mean) == pytest.approx(PREDICTED_S)
    variance = PRIOR.points(np.arange(len(BIG_LAYOUTS))).variance
    assert variance == pytest.approx(log_variance(PREDICTIONS.step_time, time_error(BIG_JOB)))  # rounding
    assert scale_inflation(learn_times(PRIOR, {})) == 1.0
    right = learn_times(PRIOR, {row: float(PREDICTED_S[row]) for row in SEEN})
    wrong = learn_times(PRIOR, {row: float(PREDICTED_S[row]) * (4.0 if row % 2 else 0.25) for row in SEEN})
    assert scale_inflation(right) == 1.0
    assert scale_inflation(wrong) > 1.5


def test_a_part_that_is_slower_than_predicted_is_learnt_from_a_dozen_layouts() -> None:
    error = TimeError(parts={"matrix_s": 0.1, "tensor_communication_s": 0.5}, residual=0.02)
    communication_s = PREDICTIONS.step_time.tensor_communication_s
    truth_s = PREDICTED_S + 0.5 * communication_s
    belief = learn_times(time_prior(BIG_LAYOUTS, PREDICTIONS, error), {row: float(truth_s[row]) for row in SEEN})
    learnt_s = np.exp(belief.at(np.arange(len(BIG_LAYOUTS))).mean)
    heavy = communication_s > 0.1 * PREDICTED_S
    before, after = (np.abs(np.log(guess / truth_s))[heavy].mean() for guess in (PREDICTED_S, learnt_s))
    assert after < before / 3  # what is left is the linearisation's: shares change as the part grows
