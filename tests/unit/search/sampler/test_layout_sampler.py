from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

from autotuner.core.codec import from_plain
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.rules.legality import RULES, reasons
from autotuner.core.rules.trial import TRIAL_RULES
from autotuner.search.sampler.layout_sampler import LayoutSampler
from autotuner.search.sampler.observations import OUT_OF_MEMORY, STEP_TIME_S, params_of
from tests.unit.search.tables import JOB, LAYOUTS, predictions, sampler

ROW_OF = {LAYOUTS.row(row): row for row in range(len(LAYOUTS))}
SLOW_S = np.linspace(1.0, 2.0, len(LAYOUTS))


def study_of(proposer: LayoutSampler) -> optuna.Study:
    return optuna.create_study(direction="maximize", sampler=proposer)


def layout_of(trial: optuna.Trial) -> Layout:
    return from_plain(Layout, {name: trial.params[name] for name in OPTIONS})


def run(
    study: optuna.Study, proposer: LayoutSampler, num_trials: int, step_s: Callable[[Layout], float | None]
) -> list[Layout]:
    """Trials that take so long, or run out of memory where there is no time."""
    tried = []
    for _ in range(num_trials):
        trial = study.ask(proposer.distributions)
        tried.append(layout_of(trial))
        seconds = step_s(tried[-1])
        if seconds is None:
            trial.set_user_attr(OUT_OF_MEMORY, True)
            study.tell(trial, state=TrialState.FAIL)
        else:
            trial.set_user_attr(STEP_TIME_S, seconds)
            study.tell(trial, 1.0 / seconds)
    return tried


def as_predicted(layout: Layout) -> float:
    return float(SLOW_S[ROW_OF[layout]])


def test_the_first_proposal_is_the_best_predicted_layout_if_all_surely_fit() -> None:
    proposer = sampler()
    assert layout_of(study_of(proposer).ask(proposer.distributions)) == LAYOUTS.row(0)


def test_a_layout_that_probably_runs_out_is_not_tried_before_one_that_is_little_slower() -> None:
    peaks = np.full(len(LAYOUTS), 1e8)
    peaks[0] = 2.2e9  # a tenth above the limit
    proposer = sampler(peak_bytes=peaks)
    assert layout_of(study_of(proposer).ask(proposer.distributions)) == LAYOUTS.row(1)


@pytest.mark.parametrize(("head_start", "first"), [(1.05, 0), (1.005, 1)])
def test_a_layout_at_the_edge_of_memory_is_tried_first_where_it_is_clearly_faster(
    head_start: float, first: int
) -> None:
    peaks, seconds = np.full(len(LAYOUTS), 1e8), SLOW_S.copy()
    peaks[0] = 1.99e9  # just below the limit: a little better than an even chance
    seconds[0] = seconds[1] / head_start
    proposer = sampler(step_time_s=seconds, peak_bytes=peaks)
    assert layout_of(study_of(proposer).ask(proposer.distributions)) == LAYOUTS.row(first)


def test_every_proposal_is_legal_and_none_is_repeated() -> None:
    proposer = sampler()
    tried = run(study_of(proposer), proposer, 20, lambda layout: 1.0)
    assert len(set(tried)) == 20
    assert not any(reasons(layout, JOB, (*RULES, *TRIAL_RULES)) for layout in tried)


def test_the_same_seed_and_answers_give_the_same_proposals() -> None:
    traces = [run(study_of(p), p, 10, lambda x: 1.0 + x.micro_batch_size) for p in (sampler(), sampler())]
    assert traces[0] == traces[1]


def test_the_seed_decides_between_layouts_that_are_equally_good() -> None:
    equal = np.ones(len(LAYOUTS))
    first = {run(study_of(p), p, 1, as_predicted)[0] for p in (sampler(step_time_s=equal, seed=s) for s in range(10))}
    assert len(first) > 1


def test_a_layout_that_cannot_fit_is_never_proposed() -> None:
    peaks = np.full(len(LAYOUTS), 1e8)
    peaks[0] = 4e9
    proposer = sampler(peak_bytes=peaks)
    assert LAYOUTS.row(0) not in run(study_of(proposer), proposer, len(LAYOUTS) - 1, lambda layout: 1.0)


def test_after_an_out_of_memory_the_next_proposal_is_predicted_to_need_less() -> None:
    peaks = np.linspace(1.9e9, 0.1e9, len(LAYOUTS))
    proposer = sampler(peak_bytes=peaks)
    study = study_of(proposer)
    died, following = run(study, proposer, 2, lambda layout: None)
    assert peaks[ROW_OF[following]] < peaks[ROW_OF[died]]


def test_what_was_measured_slow_is_avoided_from_then_on() -> None:
    proposer = sampler()
    study = study_of(proposer)
    slow = LAYOUTS.row(0).tensor_parallel_degree
    tried = run(study, proposer, 8, lambda x: 3.0 if x.tensor_parallel_degree == slow else as_predicted(x))
    assert sum(layout.tensor_parallel_degree == slow for layout in tried[4:]) < 2


def test_proposals_asked_for_at_the_same_time_differ() -> None:
    proposer = sampler()
    study = study_of(proposer)
    assert len({layout_of(study.ask(proposer.distributions)) for _ in range(6)}) == 6


def test_a_layout_proposed_to_a_trial_that_optuna_has_not_stored_yet_is_not_proposed_to_another() -> None:
    proposer = sampler()
    study = study_of(proposer)
    first, second = (study.ask() for _ in range(2))
    assert first.relative_params != second.relative_params


def test_threads_that_ask_at_the_same_moment_are_given_different_layouts() -> None:
    proposer = sampler()
    study = study_of(proposer)
    ready = Barrier(8)

    def ask(trial: optuna.Trial) -> Layout:
        ready.wait()
        return proposer.suggest(trial)

    with ThreadPoolExecutor(8) as pool:
        asked = list(pool.map(ask, [study.ask() for _ in range(8)]))
    assert len(set(asked)) == 8


def test_a_sampler_can_be_saved_and_goes_on_where_it_was() -> None:
    proposer = sampler()
    study = study_of(proposer)
    run(study, proposer, 3, as_predicted)
    restored: LayoutSampler = pickle.loads(pickle.dumps(proposer))
    assert restored.propose(study.get_trials()) == proposer.propose(study.get_trials())


def test_a_proposal_is_worked_out_once_for_the_same_trials() -> None:
    proposer = sampler()
    study = study_of(proposer)
    run(study, proposer, 2, as_predicted)
    proposal = proposer.propose(study.get_trials())
    assert proposal is proposer.propose(study.get_trials())
    run(study, proposer, 1, as_predicted)
    assert proposal is not proposer.propose(study.get_trials())


def test_a_layout_enqueued_by_hand_counts_as_tried() -> None:
    proposer = sampler()
    study = study_of(proposer)
    study.enqueue_trial(params_of(LAYOUTS.row(0)))
    proposal = proposer.propose(study.get_trials())
    assert proposal is not None
    assert proposal.row != 0


def test_when_every_row_was_tried_nothing_is_proposed() -> None:
    proposer = sampler()
    study = study_of(proposer)
    run(study, proposer, len(LAYOUTS), lambda layout: 1.0)
    assert proposer.propose(study.get_trials()) is None
    assert proposer.remaining_gain(study) == 0.0
    with pytest.raises(ValueError, match="no layout is left"):
        study.ask(proposer.distributions)


def test_before_the_first_measurement_there_is_everything_to_gain() -> None:
    proposer = sampler()
    assert proposer.remaining_gain(study_of(proposer)) == float("inf")


def test_the_remaining_gain_falls_as_the_best_layouts_are_tried() -> None:
    proposer = sampler()
    study = study_of(proposer)
    gains = []
    for _ in range(3):
        run(study, proposer, 6, as_predicted)
        gains.append(proposer.remaining_gain(study))
    assert gains[0] > gains[1] > gains[2] > 0


def test_an_optimization_ends_when_less_is_left_to_gain_than_asked_for() -> None:
    proposer = sampler(min_gain=0.01)
    study = study_of(proposer)

    def objective(trial: optuna.Trial) -> float:
        trial.set_user_attr(STEP_TIME_S, as_predicted(proposer.suggest(trial)))
        return 0.5

    study.optimize(objective, n_trials=len(LAYOUTS), callbacks=[proposer.stop_when_done])
    assert 1 <= len(study.trials) < len(LAYOUTS)
    assert proposer.remaining_gain(study) < 0.01


def test_an_optimization_that_is_never_to_stop_early_ends_when_every_layout_was_tried() -> None:
    proposer = sampler(min_gain=0.0)
    study = study_of(proposer)
    study.optimize(
        lambda trial: 0.4 / proposer.suggest(trial).micro_batch_size,
        n_trials=2 * len(LAYOUTS),
        callbacks=[proposer.stop_when_done],
    )
    assert len(study.trials) == len(LAYOUTS)


def test_a_study_that_minimises_is_refused() -> None:
    proposer = sampler()
    with pytest.raises(InvalidInput, match="maximize"):
        optuna.create_study(direction="minimize", sampler=proposer).ask(proposer.distributions)


def test_predictions_of_another_table_are_refused() -> None:
    with pytest.raises(InvalidInput, match="as many as layouts"):
        LayoutSampler(LAYOUTS.take(slice(1, None)), predictions(), job=JOB)


def test_a_negative_threshold_is_refused() -> None:
    with pytest.raises(InvalidInput, match="min_gain"):
        LayoutSampler(LAYOUTS, predictions(), job=JOB, min_gain=-0.1)


def test_a_negative_cost_exponent_is_refused() -> None:
    with pytest.raises(InvalidInput, match="cost_exponent"):
        LayoutSampler(LAYOUTS, predictions(), job=JOB, cost_exponent=-0.1)
