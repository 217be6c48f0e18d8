from __future__ import annotations

from dataclasses import replace

from autotuner.core.choices import Recompute
from autotuner.core.trial import FailureKind
from autotuner.search.results.failures import Shared, failures
from tests.builders import big_job, memory, prediction, small_trial, step_time, sweep_request
from tests.unit.search.results.trials import BASE, died, ran

REQUEST = sweep_request(job=big_job())
FULL = replace(BASE, recompute=Recompute.FULL)


def test_without_a_death_there_is_no_group() -> None:
    assert failures(REQUEST, [ran(0, BASE, 1.0)]) == ()


def test_deaths_of_one_kind_are_one_group_and_the_largest_comes_first() -> None:
    deaths = [died(0, BASE, FailureKind.TIMEOUT), *(died(n, replace(BASE, micro_batch_size=n)) for n in (1, 2, 4))]
    found = failures(REQUEST, deaths)
    assert [(group.cause, len(group.trials)) for group in found] == [("out of memory", 3), ("timed out", 1)]
    assert [one.number for one in found[0].trials] == [1, 2, 4]


def test_crashes_are_told_apart_by_what_was_said_but_for_numbers() -> None:
    said = ("rank 3 died with signal 9", "rank 17 died with signal 9", "no such file")
    deaths = [died(n, BASE, FailureKind.CRASH, message=text) for n, text in enumerate(said)]
    assert [len(group.trials) for group in failures(REQUEST, deaths)] == [2, 1]


def test_what_a_group_shares_is_what_chance_would_not_give_it() -> None:
    large = [died(n, replace(BASE, micro_batch_size=8, recompute_every=1 + n)) for n in range(4)]
    small = [ran(10 + n, replace(BASE, recompute_every=1 + n), 1.0) for n in range(6)]
    (group,) = failures(REQUEST, [*large, *small])
    assert group.shared == (Shared(said="mb 8", num_failed=4, num_ran=0),)
    assert group.num_ran == 6


def test_two_deaths_beside_two_runs_share_nothing_that_chance_would_not_give() -> None:
    large = [died(n, replace(BASE, micro_batch_size=8)) for n in range(2)]
    (group,) = failures(REQUEST, [*large, *(ran(10 + n, BASE, 1.0) for n in range(2))])
    assert group.shared == ()


def test_memory_says_what_was_needed_and_how_often_that_was_a_surprise() -> None:
    needs = [prediction(memory=memory(activations_bytes=size), fits=size < 80e9) for size in (79e9, 90e9)]
    (group,) = failures(REQUEST, [replace(died(n, BASE), prediction=need) for n, need in enumerate(needs)])
    assert group.deciding == "predicted to need 79 GB to 90 GB of 80 GB; 1 of 2 were predicted to fit"


def test_the_way_out_of_too_little_memory_is_the_nearest_layout_that_ran() -> None:
    far = replace(FULL, tensor_parallel_degree=8, pipeline_parallel_degree=1, micro_batch_size=2)
    (group,) = failures(REQUEST, [died(0, BASE), ran(1, far, 0.9), ran(2, FULL, 1.3)])
    assert group.way_out.change == "recompute none → full"
    assert group.way_out.sentence == "trial 2 ran with recompute none → full, in 10 MB"


def test_a_repeat_is_no_way_out_of_its_own() -> None:
    (group,) = failures(REQUEST, [died(0, BASE), ran(1, FULL, 1.3), ran(2, FULL, 1.2, repeats=1)])
    assert (group.way_out.number, group.num_ran) == (1, 1)


def test_where_nothing_ran_the_way_out_says_what_is_missing() -> None:
    need = prediction(memory=memory(activations_bytes=100e9), fits=False)
    (group,) = failures(REQUEST, [replace(died(0, BASE), prediction=need)])
    assert group.way_out.sentence.startswith("nothing of the sweep ran; the least of them,")
    assert "lacks 20 GB" in group.way_out.sentence


def test_a_timeout_of_long_steps_says_what_they_need() -> None:
    slow = replace(died(0, BASE, FailureKind.TIMEOUT), prediction=prediction(step_time=step_time(matrix_s=100.0)))
    (group,) = failures(REQUEST, [slow])
    expected = "no end after 5 min; the fewest steps of the slowest of them are predicted to take 13 min 23 s"
    assert group.deciding == expected
    assert group.way_out.sentence == "set the timeout_s of trials to 1,606, or take fewer steps"


def test_a_timeout_of_short_steps_is_a_hang() -> None:
    (group,) = failures(REQUEST, [died(0, BASE, FailureKind.TIMEOUT)])
    assert "something hangs" in group.way_out.sentence


def test_of_small_trials_that_timed_out_no_step_was_predicted() -> None:
    small = replace(died(0, BASE, FailureKind.TIMEOUT), scaled=small_trial())
    (group,) = failures(REQUEST, [small])
    assert (group.deciding, group.way_out.sentence) == (
        "no end after 5 min",
        "give trials more time, or take fewer steps",
    )


def test_a_layout_that_ran_elsewhere_in_the_sweep_may_run_again() -> None:
    crash = died(0, BASE, FailureKind.CRASH, message="rank 0 died")
    (group,) = failures(REQUEST, [crash, ran(3, BASE, 1.0)])
    expected = "read the log of the rank that died first; trial 3 ran the same layout: it may be run again"
    assert group.way_out.sentence == expected
