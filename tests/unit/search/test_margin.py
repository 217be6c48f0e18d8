from __future__ import annotations

from autotuner.search.margin import allowed_bytes

FIT, OOM = False, True


def test_before_any_trial_the_limit_is_what_the_rank_may_allocate() -> None:
    assert allowed_bytes(80e9, []) == 80e9


def test_a_layout_that_ran_out_of_memory_lowers_the_limit_below_its_prediction() -> None:
    assert 50e9 < allowed_bytes(80e9, [(60e9, OOM)]) < 60e9


def test_a_second_failure_below_the_first_lowers_it_further() -> None:
    assert allowed_bytes(80e9, [(60e9, OOM), (50e9, OOM)]) < 50e9


def test_a_success_above_a_failure_keeps_the_limit_where_it_was() -> None:
    assert allowed_bytes(80e9, [(60e9, OOM), (70e9, FIT)]) == 80e9


def test_one_success_does_not_outweigh_many_failures_below_it() -> None:
    assert allowed_bytes(80e9, [(70e9, FIT), (60e9, OOM), (55e9, OOM), (50e9, OOM)]) < 50e9


def test_the_limit_never_exceeds_what_the_rank_may_allocate() -> None:
    assert allowed_bytes(80e9, [(90e9, FIT), (100e9, OOM)]) == 80e9


def test_the_order_of_the_trials_does_not_matter() -> None:
    trials = [(40e9, OOM), (30e9, FIT), (60e9, OOM)]
    assert allowed_bytes(80e9, trials) == allowed_bytes(80e9, reversed(trials))
