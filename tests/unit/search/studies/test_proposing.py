from __future__ import annotations

from autotuner.core.study import LEARNING_RATES, OptimizerSpace, OptimizerTrial
from autotuner.core.trial import TrialState
from autotuner.core.trial_spec import OptimizerName
from autotuner.search.studies.proposing import propose
from autotuner.search.studies.starts import starts_of
from tests.studies import reached_trial, study_request, study_trial

REQUEST = study_request(space=OptimizerSpace(global_batch_sizes=(16, 32), data_parallel_degrees=(1, 2)))
STARTS = starts_of(REQUEST)


def proposed(trials: list[OptimizerTrial]) -> list[OptimizerTrial]:
    """With one candidate more, which comes to the target sooner the nearer its learning rate is to 1e-3."""
    chosen = propose(REQUEST, STARTS, trials)
    rate = chosen.optimizer.learning_rate
    time_s = 1 + abs(rate - 1e-3) * 1e3 + (chosen.optimizer.name is not OptimizerName.ADAMW) * 10
    return [*trials, reached_trial(len(trials), time_s, time_s, candidate=chosen)]


def after(num_trials: int) -> list[OptimizerTrial]:
    trials: list[OptimizerTrial] = []
    for _ in range(num_trials):
        trials = proposed(trials)
    return trials


def test_each_optimizer_is_first_tried_in_the_middle_of_its_ranges() -> None:
    assert [trial.candidate.optimizer.name for trial in after(3)] == list(OptimizerName)


def test_whoever_takes_a_study_over_proposes_what_the_worker_before_would_have() -> None:
    trials = after(12)
    assert propose(REQUEST, STARTS, trials) == propose(REQUEST, STARTS, trials)
    assert propose(REQUEST, STARTS, trials[:11]) == trials[11].candidate


def test_numbers_lie_in_the_ranges_of_their_optimizer() -> None:
    for trial in after(14):
        chosen = trial.candidate.optimizer
        rates = LEARNING_RATES[chosen.name]
        assert rates.low <= chosen.learning_rate <= rates.high
        assert 0.8 <= chosen.beta1 <= 0.95
        assert trial.candidate.global_batch_size in (16, 32)


def test_later_candidates_are_of_the_optimizer_that_came_to_the_target_soonest() -> None:
    """TPE draws at random ten times; of the twenty behind them more than half are of the one that won."""
    later = after(30)[10:]
    assert sum(trial.candidate.optimizer.name is OptimizerName.ADAMW for trial in later) > len(later) / 2


def test_candidates_that_failed_or_missed_teach_too() -> None:
    failed = study_trial(3, 6.0, 9.0, state=TrialState.FAILED)
    unstarted = study_trial(4, state=TrialState.FAILED)
    trials = [*after(3), failed, unstarted, study_trial(5, 6.0, 5.5)]
    assert propose(REQUEST, STARTS, trials).optimizer.learning_rate > 0
