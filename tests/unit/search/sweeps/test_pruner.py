from __future__ import annotations

import optuna
import pytest

from autotuner.core.objective import Metric
from autotuner.search.sweeps.sweep_study import HEALTHY_VALUE, LosingPruner


def study_with_best(value: float | None, fraction: float) -> optuna.Study:
    study = optuna.create_study(direction="maximize", pruner=LosingPruner(fraction))
    if value is not None:
        study.add_trial(optuna.trial.create_trial(value=value))
    return study


def pruned(study: optuna.Study, *reports: float) -> bool:
    trial = study.ask()
    for step, value in enumerate(reports):
        trial.report(value, step)
    return trial.should_prune()


@pytest.mark.parametrize(
    ("best", "fraction", "reports", "loses"),
    [
        pytest.param(0.4, 0.5, (0.10, 0.15), True, id="stays below the fraction of the best"),
        pytest.param(0.4, 0.5, (0.25, 0.05), False, id="its best step reaches the fraction"),
        pytest.param(0.4, 0.5, (0.01,), False, id="one report is too few to judge"),
        pytest.param(None, 0.5, (0.01, 0.01), False, id="nothing to lose against"),
        pytest.param(0.4, 0.0, (0.0, 0.0), False, id="a fraction of zero never prunes"),
    ],
)
def test_a_trial_is_pruned_whose_best_step_stays_far_below_the_best(
    best: float | None, fraction: float, reports: tuple[float, ...], loses: bool
) -> None:
    assert pruned(study_with_best(best, fraction), *reports) is loses


def test_healthy_steps_are_held_to_the_healthy_value_of_the_best_not_to_what_faults_left_of_it() -> None:
    study = study_with_best(None, 0.5)
    study.add_trial(optuna.trial.create_trial(value=0.1, user_attrs={HEALTHY_VALUE: 0.4}))
    assert pruned(study, 0.10, 0.15)
    assert not pruned(study, 0.25, 0.05)


FRONT = (Metric.MFU, Metric.SIMPLICITY)


def test_a_trial_falls_behind_where_another_would_beat_it_however_fast_in_all_that_is_a_rate() -> None:
    reports = [(0.10, 0.5), (0.15, 0.5)]
    assert LosingPruner(0.5).falls_behind(reports, [(0.31, 0.5)], FRONT)
    assert not LosingPruner(0.5).falls_behind(reports, [(0.29, 0.5)], FRONT)
    assert not LosingPruner(0.5).falls_behind([(0.01, 0.5)] * 2, [(0.9, 0.4)], FRONT)


@pytest.mark.parametrize(("fraction", "num_reports"), [(0.0, 5), (0.5, 1)])
def test_no_fraction_and_one_report_end_no_trial_of_a_front(fraction: float, num_reports: int) -> None:
    assert not LosingPruner(fraction).falls_behind([(0.01, 0.1)] * num_reports, [(0.9, 0.9)], FRONT)
