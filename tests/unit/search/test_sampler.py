from __future__ import annotations

from collections.abc import Callable

import numpy as np
import optuna
import pytest

from autotuner.costmodel.columns import LayoutColumns
from autotuner.domain.layout import LAYOUT_FIELDS, Layout
from autotuner.domain.legality import RULES, TRIAL_RULES, reasons
from autotuner.domain.wire import from_dict
from autotuner.search.sampler import OUT_OF_MEMORY, STEP_TIME_S, LayoutSampler, params_of
from autotuner.search.space import legal_layouts
from tests.builders import tiny_job, tiny_space

LAYOUTS = legal_layouts(tiny_job(4), tiny_space(), (*RULES, *TRIAL_RULES))
STEP_S = np.linspace(1.0, 2.0, len(LAYOUTS))
FITTING = np.full(len(LAYOUTS), 1e9)


def sampler(*, predicted_bytes: np.ndarray = FITTING, seed: int = 0) -> LayoutSampler:
    return LayoutSampler(LAYOUTS, predicted_step_s=STEP_S, predicted_bytes=predicted_bytes, limit_bytes=2e9, seed=seed)


def study_of(proposer: LayoutSampler) -> optuna.Study:
    return optuna.create_study(direction="maximize", sampler=proposer)


def layout_of(trial: optuna.Trial) -> Layout:
    return from_dict(Layout, {name: trial.params[name] for name in LAYOUT_FIELDS})


def run(
    study: optuna.Study, proposer: LayoutSampler, num_trials: int, step_s: Callable[[Layout], float]
) -> list[Layout]:
    tried = []
    for _ in range(num_trials):
        trial = study.ask(proposer.distributions)
        tried.append(layout_of(trial))
        trial.set_user_attr(STEP_TIME_S, step_s(tried[-1]))
        study.tell(trial, 1.0 / step_s(tried[-1]))
    return tried


def row_of(layout: Layout, layouts: LayoutColumns = LAYOUTS) -> int:
    return next(row for row in range(len(layouts)) if layouts.row(row) == layout)


def test_the_first_proposal_is_the_best_predicted_layout() -> None:
    proposer = sampler()
    assert layout_of(study_of(proposer).ask(proposer.distributions)) == LAYOUTS.row(0)


def test_every_proposal_is_legal_and_none_is_repeated() -> None:
    proposer = sampler()
    tried = run(study_of(proposer), proposer, 20, lambda layout: 1.0)
    assert len(set(tried)) == 20
    assert not any(reasons(layout, tiny_job(4), (*RULES, *TRIAL_RULES)) for layout in tried)


def test_the_same_seed_and_answers_give_the_same_trace() -> None:
    traces = [run(study_of(p), p, 10, lambda x: 1.0 + x.micro_batch_size) for p in (sampler(), sampler())]
    assert traces[0] == traces[1]


def test_eight_proposals_cover_tensor_pipeline_and_data_parallelism_and_two_micro_batch_sizes() -> None:
    proposer = sampler()
    tried = run(study_of(proposer), proposer, 8, lambda layout: 1.0)
    for name in ("tensor_parallel_degree", "pipeline_parallel_degree", "data_parallel_degree", "micro_batch_size"):
        assert len({getattr(layout, name) for layout in tried}) > 1, name


def test_a_layout_predicted_above_the_limit_is_not_proposed() -> None:
    predicted = FITTING.copy()
    predicted[0] = 3e9
    proposer = sampler(predicted_bytes=predicted)
    tried = run(study_of(proposer), proposer, len(LAYOUTS) - 1, lambda layout: 1.0)
    assert LAYOUTS.row(0) not in tried


def test_after_an_out_of_memory_no_layout_predicted_larger_is_proposed() -> None:
    predicted = np.linspace(1.9e9, 0.1e9, len(LAYOUTS))
    proposer = sampler(predicted_bytes=predicted)
    study = study_of(proposer)
    trial = study.ask(proposer.distributions)
    trial.set_user_attr(OUT_OF_MEMORY, True)
    study.tell(trial, state=optuna.trial.TrialState.FAIL)
    failed_bytes = predicted[row_of(layout_of(trial))]
    for layout in run(study, proposer, 10, lambda layout: 1.0):
        assert predicted[row_of(layout)] < failed_bytes


def test_what_was_measured_slow_is_avoided_by_the_next_best_guess() -> None:
    proposer = sampler()
    study = study_of(proposer)
    slow = LAYOUTS.row(0).tensor_parallel_degree
    run(study, proposer, 5, lambda layout: 100.0 if layout.tensor_parallel_degree == slow else 1.0)
    trial = study.ask(proposer.distributions)  # an odd number: the corrected best
    assert trial.number % 2 == 1
    assert layout_of(trial).tensor_parallel_degree != slow


def test_when_every_row_was_tried_nothing_is_proposed() -> None:
    proposer = sampler()
    study = study_of(proposer)
    run(study, proposer, len(LAYOUTS), lambda layout: 1.0)
    assert proposer.next_row(study.get_trials(), len(LAYOUTS)) is None
    with pytest.raises(ValueError, match="no layout is left"):
        study.ask(proposer.distributions)


def test_a_layout_enqueued_by_hand_counts_as_tried() -> None:
    proposer = sampler()
    study = study_of(proposer)
    study.enqueue_trial(params_of(LAYOUTS.row(0)))
    assert proposer.next_row(study.get_trials(), 1) != 0
