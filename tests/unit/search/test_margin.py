from __future__ import annotations

from autotuner.search.margin import FitMargin


def test_before_any_trial_the_limit_is_what_the_rank_may_allocate() -> None:
    assert FitMargin(limit_bytes=80e9).allowed_bytes == 80e9


def test_a_layout_that_ran_out_of_memory_lowers_the_limit_below_its_prediction() -> None:
    margin = FitMargin(limit_bytes=80e9).learn(60e9, out_of_memory=True)
    assert 50e9 < margin.allowed_bytes < 60e9


def test_a_layout_that_ran_although_predicted_too_large_raises_the_limit_to_its_prediction() -> None:
    margin = FitMargin(limit_bytes=80e9).learn(90e9, out_of_memory=False)
    assert margin.allowed_bytes == 90e9


def test_a_success_outweighs_a_failure_that_was_predicted_smaller() -> None:
    margin = FitMargin.after(80e9, [(40e9, True), (70e9, False)])
    assert margin.allowed_bytes == 70e9


def test_the_order_of_the_trials_does_not_matter() -> None:
    trials = [(40e9, True), (30e9, False), (60e9, True)]
    assert FitMargin.after(80e9, trials) == FitMargin.after(80e9, reversed(trials))
