from __future__ import annotations

from api.schemas import OptimizerStudyDetail, OptimizerStudyView
from autotuner.cli.views.optimizer_studies import study_table, study_view, trial_said
from autotuner.domain.wire import to_dict
from tests.studies import reached_trial, study, study_trial
from tests.unit.cli.views.printed import printed

DETAIL = to_dict(
    OptimizerStudyDetail.with_trials(
        study(detail="3 candidates were tried, and 2 came to the target"),
        [study_trial(0, 6.0, 5.9), reached_trial(1, 8.0, 2.0), reached_trial(2, 2.0, 1.0)],
    )
)


def test_candidates_are_printed_the_soonest_at_the_target_first_and_the_front_is_marked() -> None:
    lines = printed(study_view(DETAIL), 200).splitlines()
    starts = [line.split()[0] for line in lines if line.strip()[:1].isdigit()]
    assert starts == ["2*", "1", "0"]
    assert "none comes there both sooner and with fewer accelerator-hours" in printed(study_view(DETAIL), 200)


def test_a_list_has_a_line_for_each_study_and_says_how_to_have_one() -> None:
    assert "os-test" in printed(study_table([to_dict(OptimizerStudyView.of(study()))]), 200)
    assert "autotuner optimizer tune" in printed(study_table([]), 200)


def test_a_candidate_that_ended_is_one_line() -> None:
    said = trial_said(DETAIL["trials"][1])
    assert said.startswith("1: adamw, learning rate 0.001, batch 16, data-parallel degree 2: complete")
