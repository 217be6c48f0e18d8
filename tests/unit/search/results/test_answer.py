from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.choices import Precision, Recompute
from autotuner.core.comparison import Challenge
from autotuner.core.convergence_gate import GateOutcome
from autotuner.core.measurement import PhaseTimes
from autotuner.core.objective import Metric, Objective
from autotuner.core.sweep import Prospects
from autotuner.search.results.answer import Answer, answer
from autotuner.search.results.beaten import Rival
from tests.builders import big_job, prediction, step_time, sweep_request
from tests.unit.search.results.test_front import drawing
from tests.unit.search.results.trials import BASE, died, ran

REQUEST = sweep_request(job=big_job())
FULL = replace(BASE, recompute=Recompute.FULL)
SMALL = replace(BASE, tensor_parallel_degree=2, pipeline_parallel_degree=4)


def of(*trials: object, **changes: object) -> Answer:
    found = answer(replace(REQUEST, **changes), trials)  # type: ignore[arg-type]
    assert found is not None
    return found


def test_without_a_ranked_trial_there_is_no_answer() -> None:
    assert answer(REQUEST, []) is None
    assert answer(REQUEST, [died(0, BASE)]) is None


def test_the_fastest_is_the_answer_with_its_interval_and_its_memory() -> None:
    found = of(ran(0, FULL, 1.3), ran(1, BASE, 1.0))
    assert (found.best.number, found.best.source, found.best.layout) == (1, "measured", BASE)
    assert found.best.relative_error == pytest.approx(0.002)
    assert found.best.confidence == 0.95
    assert (found.best.peak_bytes, found.best.limit_bytes) == (10_000_000, 80e9)
    assert found.best.price_per_million_tokens is None


def test_a_million_tokens_cost_what_all_accelerators_cost_meanwhile() -> None:
    job = big_job()
    priced = replace(job, cluster=replace(job.cluster, price_per_accelerator_hour=3.6))
    found = of(ran(0, BASE, 1.0), job=priced)
    assert found.best.price_per_million_tokens == pytest.approx(64 * 0.001 * 1000)  # 1,000 token/s on 64 of them


def test_what_is_beaten_is_said_with_what_differs_and_by_how_much() -> None:
    found = of(ran(0, BASE, 1.0), ran(1, FULL, 1.3))
    (rival,) = found.beaten
    assert (rival.rival, rival.said, rival.change) == (Rival.NEXT, "rank 2", "recompute full → none")
    assert rival.gain == pytest.approx(0.3)
    assert 0 < rival.gain_error < 0.06  # runs of one layout are taken to differ by 1 %, of which two count
    assert not rival.is_tie


def test_what_runs_today_comes_first_however_far_behind_it_is() -> None:
    others = [ran(number, replace(BASE, micro_batch_size=2**number), 1 + number / 10) for number in range(4)]
    found = of(*others, ran(9, SMALL, 2.0), challenge=Challenge(incumbent=SMALL))
    assert (found.beaten[0].said, found.beaten[0].rank) == ("what runs today", 5)
    assert not found.is_in_use
    assert found.why is not None
    assert found.why.than == "what runs today"


def test_the_best_may_be_what_runs_today() -> None:
    assert of(ran(0, BASE, 1.0), challenge=Challenge(incumbent=BASE)).is_in_use


def test_the_best_without_each_choice_is_told_once_where_it_lacks_several() -> None:
    near = [ran(number, replace(BASE, micro_batch_size=2**number), 1 + number / 10) for number in range(3)]
    found = of(*near, ran(5, replace(SMALL, recompute=Recompute.FULL), 1.5))
    (without,) = [one for one in found.beaten if one.rival is Rival.WITHOUT]
    assert without.said == "rank 4, the best with a different tp or pp or recompute"


def test_of_many_choices_that_a_layout_lacks_the_first_are_named_and_the_rest_counted() -> None:
    near = [ran(number, replace(BASE, fused_norm=number > 0), 1 + number / 100) for number in range(2)]
    other = replace(SMALL, recompute=Recompute.FULL, micro_batch_size=2, fused_norm=False)
    found = of(*near, ran(5, replace(BASE, loss_parallel=False), 1.4), ran(6, other, 1.5))
    assert found.beaten[-1].said == "rank 4, the best with a different tp, pp or 2 other choices"
    assert len(found.beaten[-1].without) == 4


def test_a_tie_is_named_and_takes_from_the_certainty() -> None:
    found = of(ran(0, BASE, 1.0), ran(1, SMALL, 1.005), ran(2, FULL, 1.5))
    (tie,) = found.certainty.ties
    assert (tie.rank, tie.change) == (2, "tensor 4 → 2, pipeline 2 → 4")
    assert found.certainty.probability_best + tie.probability_best == pytest.approx(1.0, abs=1e-6)  # the third is far
    assert found.why is not None
    assert (found.why.than, found.why.is_tie) == ("rank 3", False)  # of a tie there is little to explain


def test_of_a_tie_that_differs_in_much_only_the_number_of_choices_is_said() -> None:
    far = replace(SMALL, micro_batch_size=2, recompute=Recompute.FULL)
    found = of(ran(0, BASE, 1.0), ran(1, far, 1.001))
    assert found.certainty.sentences[1] == "it is tied with rank 2 (4 choices differ; its chance is 47 %)"
    near = of(ran(0, BASE, 1.0), ran(1, FULL, 1.001), ran(2, far, 1.002))
    assert near.certainty.sentences[1] == (
        "it is tied with ranks 2–3; the closest is rank 2 (recompute none → full; its chance is 33 %)"
    )


def test_an_expected_gain_that_no_trial_can_show_is_not_written_out() -> None:
    prospects = Prospects(num_candidates=9, num_fitting=3, expected_gain=2.6e-8)
    found = answer(REQUEST, [ran(0, BASE, 1.0)], prospects)
    assert found is not None
    assert found.certainty.sentences[-1] == "no gain is expected from more trials"


def test_repeats_count_for_the_layout_that_they_repeat() -> None:
    trials = [ran(0, BASE, 1.0), ran(1, FULL, 1.01), *(ran(n, BASE, 1.08, repeats=0) for n in (2, 3, 4))]
    found = of(*trials)
    assert found.certainty.num_ranked == 2
    assert found.beaten[0].gain < 0  # by the mean of its four runs the first is the slower one


def test_how_much_of_the_space_was_tried_is_said_where_it_is_known() -> None:
    trials = [ran(0, BASE, 1.0), died(1, FULL)]
    found = answer(REQUEST, trials, Prospects(num_candidates=36_417, num_fitting=802, expected_gain=0.007))
    assert found is not None
    assert found.certainty.sentences == (
        "it is the only layout with a rank so far",
        "802 of 36,417 legal layouts are predicted to fit in memory, and 2 were tried",
        "one more trial is expected to raise the best value by 0.7 %",
    )
    assert of(*trials).certainty.sentences == ("it is the only layout with a rank so far",)


def test_the_parts_of_the_predicted_steps_say_why() -> None:
    slow = prediction(step_time=replace(step_time(), recompute_s=0.4))
    found = of(ran(0, BASE, 1.0, prediction=prediction()), ran(1, FULL, 1.3, prediction=slow))
    assert found.why is not None
    assert found.why.sentences == (
        "its step is predicted to spend 400 ms less on recomputation",
        "recomputation of rank 2: recompute full: the forward pass runs again in the backward pass, to save memory",
    )


def test_measured_parts_say_why_where_both_trials_have_some() -> None:
    slow = prediction(step_time=replace(step_time(), optimizer_s=0.5))
    fast_phases, slow_phases = (
        PhaseTimes(forward_backward_s=passes_s, gradient_sync_s=0.02, optimizer_s=0.008) for passes_s in (0.97, 1.27)
    )
    found = of(
        ran(0, BASE, 1.0, measured={"phases": fast_phases}),
        ran(1, FULL, 1.3, measured={"phases": slow_phases}, prediction=slow),
    )
    assert found.why is not None
    assert found.why.sentences[0] == "its measured step spends 300 ms less on forward and backward"


def test_measured_parts_that_say_the_opposite_of_what_was_found_are_no_reason() -> None:
    fast_phases, slow_phases = (
        PhaseTimes(forward_backward_s=passes_s, gradient_sync_s=0.02, optimizer_s=0.008) for passes_s in (1.27, 0.97)
    )
    found = of(ran(0, BASE, 1.0, measured={"phases": fast_phases}), ran(1, FULL, 1.3, measured={"phases": slow_phases}))
    assert found.why is not None
    opposite = "by their sum the gain is −23.1 %, by the whole step +30.0 %"
    assert found.why.sentences[0] == f"the measured parts of their steps do not explain it: {opposite}"


def test_predictions_that_do_not_tell_the_gain_are_said_to() -> None:
    found = of(ran(0, BASE, 1.0), ran(1, FULL, 1.3))
    assert found.why is not None
    assert found.why.sentences == (
        "no part of the step is predicted to differ by 1 % of it",
        "predicted was a gain of +0.0 %; +30.0 % was found",
    )


def test_a_tie_is_called_one_in_the_answer() -> None:
    assert of(ran(0, BASE, 1.0), ran(1, FULL, 1.001)).sentence.endswith("1 ktoken/s; tied with rank 2")


def test_a_layout_that_changes_the_mathematics_says_what_its_loss_gate_says() -> None:
    assert of(ran(0, replace(BASE, precision=Precision.FP8), 1.0)).gate is GateOutcome.NOT_GATED
    assert of(ran(0, BASE, 1.0)).gate is None


def test_the_answer_is_one_sentence() -> None:
    found = of(ran(0, BASE, 1.0), ran(1, FULL, 1.3))
    assert found.sentence == (f"{BASE}: 40.0 ± 0.1 % MFU, measured, 1 ktoken/s; +30.0 ± 3.6 % over rank 2")


def test_simulated_trials_say_so() -> None:
    found = of(ran(0, BASE, 1.0, measured={"is_simulated": True}))
    assert found.best.source == "simulated"
    assert "MFU, simulated" in found.sentence


def test_a_gain_is_of_what_the_sweep_ranks_by_whatever_is_faster() -> None:
    frugal, fast = drawing(0, 1.1, 1000), drawing(1, 1.0, 4000)
    objective = Objective(metric=Metric.TOKENS_PER_JOULE)
    (beaten,) = of(fast, frugal, objective=objective).beaten
    assert beaten.number == 1
    assert beaten.gain == pytest.approx(4000 / 1000 / 1.1 - 1)
