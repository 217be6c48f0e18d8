from __future__ import annotations

from autotuner.search.studies.pruning import Pruning
from tests.studies import candidate, reached_trial, study_request, study_trial

REQUEST = study_request()


def test_a_candidate_ends_that_has_used_more_than_another_took_to_the_target() -> None:
    pruning = Pruning(REQUEST, [reached_trial(7, 4.0, 4.0 * 2 / 3600)])
    running = study_trial(8, 6.0, 5.9, 5.8)
    assert pruning.verdict(running) is None
    verdict = pruning.verdict(study_trial(8, 6.0, 5.9, 5.8, 5.7))
    assert verdict == "number 7 came to the target sooner and for less, after 4 s"


def test_a_slower_candidate_goes_on_while_it_is_cheaper() -> None:
    on_one_rank = study_trial(8, 6.0, 5.9, 5.8, 5.7, 5.6, world_size=1)
    assert Pruning(REQUEST, [reached_trial(7, 4.0, 4.0 * 2 / 3600)]).verdict(on_one_rank) is None


def test_a_candidate_above_the_median_of_five_others_ends() -> None:
    others = [study_trial(number, 6.0, 5.0 + number / 10, 5.0 + number / 10, 5.0) for number in range(5)]
    assert Pruning(REQUEST, others).verdict(study_trial(9, 6.0, 5.9, 5.9)) is not None
    assert Pruning(REQUEST, others).verdict(study_trial(9, 6.0, 5.1, 5.1)) is None
    assert Pruning(REQUEST, others[:4]).verdict(study_trial(9, 6.0, 5.9, 5.9)) is None


def test_a_candidate_is_not_judged_while_it_warms_up() -> None:
    others = [study_trial(number, 6.0, 5.0, 5.0, 5.0) for number in range(5)]
    warming = study_trial(9, 6.0, 5.9, 5.9, candidate=candidate(warmup_steps=10))
    assert Pruning(REQUEST, others).verdict(warming) is None
