from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotuner.core.choices import Precision, Recompute, ShardLevel
from autotuner.core.comparison import Challenge
from autotuner.core.convergence_gate import GateOutcome
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.objective import Metric, Objective
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import FailureKind, Trial
from autotuner.report.layouts import choice_in_words
from autotuner.report.sweep_trials import way_out
from autotuner.search.results.axis import AXES, axis_named, varied_axes
from autotuner.search.results.failures import Decisive, Shared, WayOut, failures
from autotuner.search.results.reached import ranked_times, standings
from autotuner.search.results.sensitivity import choices, grid, shares_explained, two_that_matter
from autotuner.search.results.sweep_answer import Answer, Role, accuracy, answer
from tests.builders import big_job, breakdown, memory, prediction, present, sweep_request
from tests.unit.search.results.test_layout_comparison import drawing
from tests.unit.search.results.trials import BASE, died, ran

# ---------------------------------------------------------------- accuracy
REQUEST = sweep_request(job=big_job())
TOTAL_S = prediction().step_time.total_s


def test_first_runs_and_peaks_are_held_to_what_was_predicted_of_them() -> None:
    found = accuracy(REQUEST, [died(0, BASE)])
    assert (found.trials, found.median_error) == ((), None)
    assert len(accuracy(REQUEST, [ran(0, BASE, 1.0), ran(1, BASE, 1.1, repeats=0)]).trials) == 1
    memory = prediction().memory
    peak = int(1.1 * (memory.total_bytes - memory.allowance_bytes))
    found = accuracy(REQUEST, [ran(0, BASE, 1.0, measured={"peak_bytes": (peak,)})])
    assert found.memory_error == pytest.approx(0.1, rel=1e-4)  # whole bytes
    assert accuracy(REQUEST, [ran(0, BASE, 1.0, measured={"peak_bytes": ()})]).memory_error is None


def test_step_times_are_held_to_the_interval_of_their_prediction_where_it_has_one() -> None:
    trials = [ran(number, BASE, factor * TOTAL_S) for number, factor in enumerate((1.0, 1.09, 0.92, 1.2))]
    found = accuracy(REQUEST, trials)
    assert (found.num_within, found.num_intervals) == (3, 4)
    assert [one.is_within for one in found.trials] == [True, True, True, False]
    assert found.median_error == pytest.approx(0.085)
    assert found.bias == pytest.approx(0.045)
    found = accuracy(REQUEST, [ran(0, BASE, TOTAL_S, prediction=prediction(relative_error=None))])
    assert (found.num_intervals, found.trials[0].is_within) == (0, None)


# ---------------------------------------------------------------- answer
FULL = replace(BASE, recompute=Recompute.FULL)
SMALL = replace(BASE, tensor_parallel_degree=2, pipeline_parallel_degree=4)


def of(*trials: object, **changes: object) -> Answer:
    found = answer(replace(REQUEST, **changes), trials)  # type: ignore[arg-type]
    assert found is not None
    return found


def test_the_fastest_is_the_answer_with_its_interval_its_memory_and_its_price() -> None:
    found = of(ran(0, FULL, 1.3), ran(1, BASE, 1.0))
    assert (found.best.trial, found.best.source, found.best.layout) == (1, "measured", BASE)
    assert found.best.relative_error == pytest.approx(0.002)
    assert found.best.confidence == 0.95
    assert (found.best.peak_bytes, found.best.estimate) == (10_000_000, None)
    assert found.best.price_per_million_tokens is None
    job = big_job()
    priced = replace(job, cluster=replace(job.cluster, price_per_accelerator_hour=3.6))
    found = of(ran(0, BASE, 1.0), job=priced)
    assert found.best.price_per_million_tokens == pytest.approx(64 * 0.001 * 1000)  # 1,000 token/s on 64 of them


def test_the_answer_names_beaten_layouts_with_their_differences_and_is_empty_without_a_trial() -> None:
    found = of(ran(0, BASE, 1.0), ran(1, FULL, 1.3))
    (rival,) = found.rivals
    assert (rival.role, rival.rank, rival.trial, rival.layout) == (Role.NEXT, 2, 1, FULL)
    assert rival.gain == pytest.approx(0.3)
    assert 0 < rival.gain_error < 0.06  # runs of one layout are taken to differ by 1 %, of which two count
    assert not rival.is_tie
    assert answer(REQUEST, []) is None
    assert answer(REQUEST, [died(0, BASE)]) is None


def test_an_answer_tells_what_runs_today_its_gate_and_whether_it_was_simulated() -> None:
    others = [ran(number, replace(BASE, micro_batch_size=2**number), 1 + number / 10) for number in range(4)]
    found = of(*others, ran(9, SMALL, 2.0), challenge=Challenge(incumbent=SMALL))
    assert (found.rivals[0].role, found.rivals[0].rank) == (Role.IN_USE, 5)
    assert not found.is_in_use
    assert present(found.why).rival == found.rivals[0]
    assert of(ran(0, BASE, 1.0), challenge=Challenge(incumbent=BASE)).is_in_use
    assert of(ran(0, replace(BASE, precision=Precision.FP8), 1.0)).gate is GateOutcome.NOT_GATED
    assert of(ran(0, BASE, 1.0)).gate is None
    found = of(ran(0, BASE, 1.0, measured={"is_simulated": True}))
    assert found.best.source == "simulated"


def test_the_best_without_each_choice_is_reported_once_with_the_choices_that_it_lacks() -> None:
    near = [ran(number, replace(BASE, micro_batch_size=2**number), 1 + number / 10) for number in range(3)]
    found = of(*near, ran(5, replace(SMALL, recompute=Recompute.FULL), 1.5))
    (without,) = [one for one in found.rivals if one.role is Role.WITHOUT]
    assert (without.rank, without.lacks) == (4, {"tp": 4, "pp": 2, "recompute": "none"})
    near = [ran(number, replace(BASE, fused_norm=number > 0), 1 + number / 100) for number in range(2)]
    other = replace(SMALL, recompute=Recompute.FULL, micro_batch_size=2, fused_norm=False)
    found = of(*near, ran(5, replace(BASE, loss_parallel=False), 1.4), ran(6, other, 1.5))
    assert (found.rivals[-1].rank, len(found.rivals[-1].lacks)) == (4, 4)


def test_a_tie_takes_from_the_chance_of_the_best_and_explains_little() -> None:
    found = of(ran(0, BASE, 1.0), ran(1, SMALL, 1.005), ran(2, FULL, 1.5))
    (tie,) = found.ties
    assert (tie.role, tie.rank, tie.layout) == (Role.TIE, 2, SMALL)
    assert found.probability_best + tie.probability_best == pytest.approx(1.0, abs=1e-6)  # the third is far
    why = present(found.why)
    assert (why.rival.rank, why.rival.is_tie) == (3, False)  # of a tie there is little to explain


def test_a_gain_is_explained_by_measured_parts_where_both_have_them_else_by_predicted_ones() -> None:
    slower = prediction(step_time=replace(prediction().step_time, matrix_s=1.5 * prediction().step_time.matrix_s))
    why = present(of(ran(0, BASE, 1.0), replace(ran(1, FULL, 1.3), prediction=slower)).why)
    assert (why.parts_are, why.parts_gain) == ("predicted", None)
    assert [shift.name for shift in why.shifts] == ["matrix_s"]
    assert why.predicted_gain == pytest.approx(slower.step_time.total_s / TOTAL_S - 1)
    parts = [{"breakdown": breakdown(optimizer_s=seconds)} for seconds in (0.1, 0.2)]
    why = present(of(ran(0, BASE, 1.0, measured=parts[0]), ran(1, FULL, 1.3, measured=parts[1])).why)
    assert (why.parts_are, [shift.name for shift in why.shifts]) == ("measured", ["optimizer"])
    step_s = breakdown(optimizer_s=0.1).step_s
    assert why.parts_gain == pytest.approx((step_s + 0.1) / step_s - 1)


def test_pure_speed_is_ranked_by_step_time_alone_whatever_peak_each_trial_measured() -> None:
    slow, fast = ran(0, BASE, 1.1, measured={"mfu": 0.5}), ran(1, FULL, 1.0, measured={"mfu": 0.3})
    for metric in (Metric.MFU, Metric.TOKENS_PER_S):
        found = standings(ranked_times(Objective(metric=metric), [slow, fast]))
        assert {one: place.value for one, place in found.items()} == pytest.approx({fast.id: 1.0, slow.id: 1 / 1.1})


def test_ranks_by_repeats_and_by_what_the_sweep_maximises_decide_whatever_is_faster() -> None:
    trials = [ran(0, BASE, 1.0), ran(1, FULL, 1.01), *(ran(n, BASE, 1.08, repeats=0) for n in (2, 3, 4))]
    found = of(*trials)
    assert found.num_ranked == 2
    assert found.rivals[0].gain < 0  # by the mean of its four runs the first is the slower one
    frugal, fast = drawing(0, 1.1, 1000), drawing(1, 1.0, 4000)
    objective = Objective(metric=Metric.TOKENS_PER_JOULE)
    (rival,) = of(fast, frugal, objective=objective).rivals
    assert rival.trial == 1
    assert rival.gain == pytest.approx(4000 / 1000 / 1.1 - 1)


# ---------------------------------------------------------------- axis
def test_every_field_and_every_value_of_a_choice_has_its_place_on_an_axis() -> None:
    told_by_dp_and_sharding = {"data_parallel_replicate_degree", "data_parallel_shard_degree", "shard_level"}
    by_letters = {"tensor_parallel_degree", "pipeline_parallel_degree", "context_parallel_degree"}
    by_letters |= {"expert_parallel_degree", "micro_batch_size"}
    assert set(OPTIONS) - told_by_dp_and_sharding - by_letters == set(list(AXES)[7:])
    for name, axis in AXES.items():
        if name in OPTIONS and not OPTIONS[name].is_number:
            values = [axis.read(replace(BASE, **{name: value})) for value in OPTIONS[name].values]  # type: ignore[arg-type]
            assert set(axis.in_order(values)) == set(axis.words)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tp", "tp 4"),
        ("dp", "dp 8"),
        ("sharding", "sharding none"),
        ("recompute", "recompute none"),
        ("sequence_parallel", "sequence parallel off"),
        ("first_stage_less_layers", "a first stage like the others"),
        ("recompute_every", "recompute interval 1"),
    ],
)
def test_a_choice_is_said_with_its_value(name: str, said: str) -> None:
    assert choice_in_words(name, axis_named(name).read(BASE)) == said


def test_values_and_choices_are_told_from_the_plainest_with_groups_of_shards_apart() -> None:
    whole = replace(
        BASE, data_parallel_replicate_degree=1, data_parallel_shard_degree=8, shard_level=ShardLevel.PARAMETERS
    )
    groups = replace(whole, data_parallel_replicate_degree=2, data_parallel_shard_degree=4)
    assert [axis.name for axis in varied_axes([whole, groups])] == ["sharding"]
    assert (axis_named("sharding").read(whole), axis_named("sharding").read(groups)) == ("FSDP", "FSDP in groups")
    full = replace(BASE, recompute=Recompute.FULL)
    assert axis_named("recompute").in_order(["none", axis_named("recompute").read(full)]) == ("full", "none")
    assert axis_named("mb").in_order([16, 2, 4, 2]) == (2, 4, 16)


# ---------------------------------------------------------------- choices
def crossed() -> list[Trial]:
    """Every pair of three micro-batches and four ways to recompute: recomputation costs most, micro-batches little."""
    trials = []
    for size in (1, 2, 4):
        for every, cost in ((1, 1.6), (2, 1.4), (3, 1.2)):
            trials.append((replace(BASE, micro_batch_size=size, recompute=Recompute.FULL, recompute_every=every), cost))
        trials.append((replace(BASE, micro_batch_size=size), 1.0))
    return [ran(n, layout, cost * (1 + layout.micro_batch_size / 100)) for n, (layout, cost) in enumerate(trials)]


def test_choices_come_by_what_they_explain_of_many_layouts_with_levels_and_effects() -> None:
    found = choices(REQUEST, crossed())
    assert found.num_ranked == 12
    assert [one.name for one in found.importance][-1] == "mb"
    assert found.explained == pytest.approx(1.0, abs=0.01)  # the effects multiply, so their logarithms add up
    assert all(0 <= share <= 1 for one in found.importance for share in (one.alone, one.beyond_others, one.share))
    (size,) = [one for one in choices(REQUEST, crossed()).importance if one.name == "mb"]
    assert [(level.value, level.num_ranked) for level in size.levels] == [(1, 4), (2, 4), (4, 4)]
    assert [level.best_value for level in size.levels] == pytest.approx([0.4 / 1.01, 0.4 / 1.02, 0.4 / 1.04])
    first = found.effects[0]
    assert (first.subject, first.before, first.after, first.num_pairs) == ("recompute", "full", "none", 3)
    assert first.median_gain == pytest.approx(0.6)
    assert all(one.num_pairs for one in found.effects)
    found = choices(REQUEST, crossed()[:5])
    assert found.explained is None
    assert {one.share for one in found.importance} == {0.0}
    found = choices(REQUEST, [died(0, Layout())])
    assert (found.num_ranked, found.explained, found.importance, found.effects) == (0, None, (), ())


def test_degrees_that_move_together_explain_alone_and_nothing_beyond_each_other() -> None:
    trials = []
    for stages in (1, 2, 4, 8):
        layout = replace(BASE, pipeline_parallel_degree=stages, data_parallel_replicate_degree=16 // stages)
        for size in (1, 2, 4):
            trials.append((replace(layout, micro_batch_size=size), 1 + stages / 10 + size / 100))
    found = choices(REQUEST, [ran(number, *one) for number, one in enumerate(trials)])
    shares = {one.name: (one.alone, one.beyond_others) for one in found.importance}
    for name in ("pp", "dp"):
        assert shares[name] == pytest.approx((0.996, 0.0), abs=1e-3)  # micro-batches leave the rest


def test_effects_beside_noise_are_found_where_there_are_more_values_than_effects() -> None:
    rng = np.random.default_rng(0)
    matters, noise = rng.integers(0, 2, (2, 400)).astype(np.float64)
    shares = shares_explained([matters[:, None], noise[:, None]], matters + rng.normal(0, 0.5, 400))
    assert shares.alone[0] == pytest.approx(0.5, abs=0.1)  # both have a variance of one quarter
    assert shares.alone[1] < 0.03
    assert shares.together == pytest.approx(shares.alone[0], abs=0.02)
    shares = shares_explained([np.eye(5)], np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert shares.together is None
    shares = shares_explained([np.array([[0.0], [1.0], [0.0]])], np.ones(3))
    assert shares.alone == (0.0,)


# ---------------------------------------------------------------- grid
def test_a_cell_has_the_best_of_its_trials_or_tells_what_failed_from_what_was_not_tried() -> None:
    found = grid(REQUEST, [ran(0, FULL, 1.3), ran(1, FULL, 1.2), ran(2, BASE, 1.0)], "recompute", "mb")
    assert (found.rows, found.columns) == (("full", "none"), (1,))
    ((full,), (none,)) = found.cells
    assert (full.trial, full.num_ranked) == (1, 2)
    assert full.mfu == pytest.approx(0.4 / 1.2)
    assert none.trial == 2
    large = replace(FULL, micro_batch_size=2)
    found = grid(REQUEST, [ran(0, BASE, 1.0), died(1, large)], "recompute", "mb")
    ((untried, failed), (ranked, _)) = found.cells
    assert (untried.trial, untried.num_failed) == (None, 0)
    assert (failed.value, failed.trial, failed.num_failed) == (None, 1, 1)
    assert ranked.num_ranked == 1


def test_choices_of_a_grid_exist_count_replicas_once_and_begin_with_those_that_matter() -> None:
    sharded = replace(
        BASE, data_parallel_replicate_degree=2, data_parallel_shard_degree=4, shard_level=ShardLevel.PARAMETERS
    )
    found = grid(REQUEST, [ran(0, BASE, 1.0), ran(1, sharded, 1.1)], "sharding", "dp")
    assert (found.rows, found.columns) == (("none", "FSDP in groups"), (8,))
    assert found.names == ("sharding",)
    with pytest.raises(InvalidInput, match="must be one of tp, pp, dp"):
        grid(REQUEST, [], "zp", "tp")
    layouts = [BASE, FULL, replace(BASE, micro_batch_size=2)]
    assert two_that_matter((), layouts) == ("mb", "recompute")
    assert two_that_matter((), []) == ("tp", "pp")


# ---------------------------------------------------------------- failures
def test_deaths_are_grouped_by_kind_and_by_what_was_said_but_for_numbers() -> None:
    assert failures(REQUEST, [ran(0, BASE, 1.0)]) == ()
    deaths = [died(0, BASE, FailureKind.TIMEOUT), *(died(n, replace(BASE, micro_batch_size=n)) for n in (1, 2, 4))]
    found = failures(REQUEST, deaths)
    assert [(group.kind, len(group.trials)) for group in found] == [(FailureKind.OOM, 3), (FailureKind.TIMEOUT, 1)]
    assert [one.trial for one in found[0].trials] == [1, 2, 4]
    said = ("rank 3 died with signal 9", "rank 17 died with signal 9", "no such file")
    deaths = [died(n, BASE, FailureKind.CRASH, message=text) for n, text in enumerate(said)]
    assert [len(group.trials) for group in failures(REQUEST, deaths)] == [2, 1]


def test_a_failure_group_shares_only_choices_that_chance_does_not_explain() -> None:
    large = [died(n, replace(BASE, micro_batch_size=8, recompute_every=1 + n)) for n in range(4)]
    small = [ran(10 + n, replace(BASE, recompute_every=1 + n), 1.0) for n in range(6)]
    (group,) = failures(REQUEST, [*large, *small])
    assert group.shared == (Shared(choice="mb", value=8, num_failed=4, num_ran=0),)
    assert group.num_ran == 6
    large = [died(n, replace(BASE, micro_batch_size=8)) for n in range(2)]
    (group,) = failures(REQUEST, [*large, *(ran(10 + n, BASE, 1.0) for n in range(2))])
    assert group.shared == ()


def test_the_way_out_of_too_little_memory_is_the_nearest_layout_that_ran_or_what_is_missing() -> None:
    far = replace(FULL, tensor_parallel_degree=8, pipeline_parallel_degree=1, micro_batch_size=2)
    (group,) = failures(REQUEST, [died(0, BASE), ran(1, far, 0.9), ran(2, FULL, 1.3)])
    assert group.way_out == WayOut(died=BASE, trial=2, layout=FULL, peak_bytes=10_000_000)
    assert way_out(group) == "trial 2 ran with recompute none → full, in 10 MB"
    (group,) = failures(REQUEST, [died(0, BASE), ran(1, FULL, 1.3), ran(2, FULL, 1.2, repeats=1)])
    assert (group.way_out.trial, group.num_ran) == (1, 1)
    need = prediction(memory=memory(activations_bytes=100e9), fits=False)
    (group,) = failures(REQUEST, [replace(died(0, BASE), prediction=need)])
    assert group.way_out == WayOut(died=BASE)
    assert way_out(group).startswith(
        f"no trial of the sweep ran; the layout that needs least memory, {BASE}, needs 20 GB more"
    )


def test_a_layout_that_ran_elsewhere_in_the_sweep_may_run_again() -> None:
    crash = died(0, BASE, FailureKind.CRASH, message="rank 0 died")
    (group,) = failures(REQUEST, [crash, ran(3, BASE, 1.0)])
    expected = "read the log of the rank that died first; trial 3 ran the same layout: it may be run again"
    assert way_out(group) == expected


def limited(timeout_s: float) -> SweepRequest:
    return replace(REQUEST, trial=replace(REQUEST.trial, timeout_s=timeout_s))


def test_a_longer_limit_helps_trials_whose_steps_need_it_and_no_trial_that_hangs() -> None:
    late = replace(died(0, BASE, FailureKind.TIMEOUT), prediction=prediction())
    num_steps = REQUEST.trial.warmup_steps + REQUEST.trial.measured_steps + REQUEST.trial.profiled_steps
    (group,) = failures(limited(num_steps * TOTAL_S / 2), [late])
    assert group.decisive == Decisive(
        unit="s", least=num_steps * TOTAL_S, most=num_steps * TOTAL_S, limit=num_steps * TOTAL_S / 2
    )
    assert group.way_out.timeout_s == pytest.approx(2 * num_steps * TOTAL_S)
    assert way_out(group).startswith("set the timeout_s of trials to ")
    (group,) = failures(limited(2 * num_steps * TOTAL_S), [late])
    assert group.way_out.timeout_s is None
    assert "something hangs" in way_out(group)
