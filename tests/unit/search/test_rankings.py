from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotuner.core.choices import PipelineSchedule, Precision, Recompute, ShardLevel
from autotuner.core.cluster import Tariff
from autotuner.core.complexity import complexity
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.objective import Metric, Objective, Weight
from autotuner.core.prediction import Prediction
from autotuner.core.rules.legality import RULES
from autotuner.core.rules.trial_job import TRIAL_RULES
from autotuner.core.space import SearchSpace
from autotuner.core.trial import RankedTime, Trial
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import CHUNK, predict, predict_one
from autotuner.costmodel.resource_cost import resource_cost_of
from autotuner.search.predicted_ranking import BestLayouts, ComparedBy, best_predicted
from autotuner.search.results.reached import standings
from autotuner.search.space.legal import legal_layouts
from tests.builders import big_job, llama_70b, measurement, prediction, present, tiny_job, tiny_space, trial

# ---------------------------------------------------------------- The best layouts by prediction alone
BUCKETS = tuple(2**power for power in range(20, 24))


def eight_gpus() -> Job:
    return replace(
        big_job(num_nodes=1), model=llama_70b(num_layers=20), workload=Workload(seq_len=8192, global_batch_size=64)
    )


def with_memory(job: Job, memory_bytes: int) -> Job:
    cluster = job.cluster
    return replace(job, cluster=replace(cluster, accelerator=replace(cluster.accelerator, memory_bytes=memory_bytes)))


def expected(one: Prediction) -> float:
    """What a run reaches on average: nothing, if it does not fit."""
    return one.mfu * present(one.fit_probability)


def test_the_first_row_surely_fits_where_it_is_as_fast_as_one_that_may_not() -> None:
    """Parameters that are given away after each forward pass cost this job little, and leave room for others."""
    job = eight_gpus()
    tight = Layout(data_parallel_shard_degree=8, shard_level=ShardLevel.PARAMETERS, recompute=Recompute.FULL)
    memory_bytes = int(1.03 * predict_one(tight, job).memory.total_bytes)
    job = with_memory(job, memory_bytes)
    before, after = predict_one(tight, job), predict_one(replace(tight, reshard_after_forward=True), job)
    assert 0.98 * before.mfu < after.mfu < before.mfu
    assert expected(before) < 0.7 * before.mfu < 0.95 * after.mfu < expected(after)
    space = SearchSpace(
        tensor_parallel_degree=(1,),
        pipeline_parallel_degree=(1,),
        data_parallel_shard_degree=(8,),
        shard_level=(ShardLevel.PARAMETERS,),
        recompute=(Recompute.FULL,),
        micro_batch_size=(1,),
    )
    first, second = best_predicted(job, space).rows
    assert (first.layout.reshard_after_forward, second.layout.reshard_after_forward) == (True, False)


def test_the_best_numerically_equivalent_layout_or_the_best_by_a_sweeps_rules_stands_beside_the_rest() -> None:
    space = SearchSpace(precision=(Precision.BF16, Precision.FP8), compiled=(True,))
    table = best_predicted(big_job(), space, limit=3)
    assert {row.layout.precision for row in table.rows} == {Precision.FP8}
    (best,) = best_predicted(big_job(), space.with_axes(precision=(Precision.BF16,)), limit=1).rows
    assert table.unchanged == best
    assert best_predicted(big_job(), limit=3).unchanged is None
    space = SearchSpace(pipeline_schedule=(PipelineSchedule.ZERO_BUBBLE,), compiled=(False, True))
    tried = best_predicted(big_job(), space, rules=(*RULES, *TRIAL_RULES))
    assert 0 < tried.num_legal < best_predicted(big_job(), space).num_legal


def test_layouts_that_do_not_fit_are_counted_beside_the_nearest_one() -> None:
    job = with_memory(big_job(), 1_000_000_000)
    table = best_predicted(job)
    assert (table.num_fitting, table.rows, table.unchanged) == (0, (), None)
    assert table.nearest is not None
    assert table.nearest.prediction.memory.total_bytes == predict(legal_layouts(job), job).memory.total_bytes.min()
    assert best_predicted(big_job()).nearest is None
    job = tiny_job(2, model=llama_70b())
    table = best_predicted(job, tiny_space())
    assert table.num_legal > 0
    assert (table.num_fitting, table.rows) == (0, ())
    table = best_predicted(tiny_job(2), SearchSpace(tensor_parallel_degree=(3,)))
    assert (table.num_legal, table.num_fitting, table.rows) == (0, 0, ())


def test_the_first_row_is_the_best_of_the_whole_space_with_its_prediction_and_counts() -> None:
    job = big_job()
    predictions = predict(legal_layouts(job), job)
    (first,) = best_predicted(job, limit=1).rows
    assert expected(first.prediction) == (predictions.mfu * predictions.fit_probability)[predictions.fits].max()
    first, *_ = best_predicted(big_job(), limit=1).rows
    assert first.prediction == predict_one(first.layout, big_job())
    table = best_predicted(job)
    assert (table.num_legal, table.num_fitting) == (len(predictions.mfu), int(predictions.fits.sum()))
    assert 0 < table.num_fitting < table.num_legal


def test_the_best_of_several_chunks_are_those_of_the_whole_table() -> None:
    """Also where several have the same expected MFU: then the smaller peak counts, then the space's order."""
    job, space = big_job(), SearchSpace(pipeline_schedule=tuple(PipelineSchedule), gradient_bucket_bytes=BUCKETS)
    layouts = legal_layouts(job, space)
    assert len(layouts) > CHUNK
    whole = predict(layouts, job)
    rows = [row for row in range(len(layouts)) if whole.fits[row]]
    value = whole.mfu * whole.fit_probability
    rows.sort(key=lambda row: (-value[row], whole.memory.total_bytes[row], row))
    table = best_predicted(job, space, limit=25)
    assert (table.num_legal, table.num_fitting) == (len(layouts), len(rows))
    assert [row.layout for row in table.rows] == [layouts.row(row) for row in rows[:25]]


# ---------------------------------------------------------------- ranking by objective
SPACE = SearchSpace(precision=(Precision.BF16,), compiled=(False, True), micro_batch_size=(1,))


def best(job: Job, objective: Objective, limit: int = 1) -> BestLayouts:
    return best_predicted(job, SPACE, limit=limit, compared_by=ComparedBy(objective=objective))


def rented(*, energy_price_per_kwh: float = 0.0, co2_kg_per_kwh: float = 0.0) -> Job:
    tariff = Tariff(energy_price_per_kwh=energy_price_per_kwh, co2_kg_per_kwh=co2_kg_per_kwh)
    job = big_job()
    return replace(job, cluster=replace(job.cluster, price_per_accelerator_hour=1.0, tariff=tariff))


def test_a_profile_takes_a_plainer_layout_and_objectives_rank_layouts_as_asked() -> None:
    rows = best(big_job(), Objective(metric=Metric.TOKENS_PER_JOULE), limit=50).rows
    values = [
        Objective(metric=Metric.TOKENS_PER_JOULE).value_of(row.prediction, row.resource_cost)
        * (row.prediction.fit_probability or 0.0)
        for row in rows
    ]
    assert values == sorted(values, reverse=True)
    speeds = [Objective(metric=metric) for metric in (Metric.MFU, Metric.TOKENS_PER_S)]
    by_mfu, by_rate = (best(big_job(), objective, limit=5).rows for objective in speeds)
    assert by_mfu == by_rate
    profile = (Weight(metric=Metric.MFU, weight=1), Weight(metric=Metric.SIMPLICITY, weight=5))
    fastest, plainest = (best(big_job(), one).rows[0].layout for one in (Objective(), Objective(profile=profile)))
    assert fastest.compiled
    assert complexity(plainest) < complexity(fastest)


def measured(number: int, job: Job, *, step_time_s: float, power_w: float) -> Trial:
    """A trial that was measured with NVML's word on its power."""
    reached = measurement(step_time_s=step_time_s, tokens_per_s=job.workload.tokens_per_step / step_time_s)
    layout, expected = Layout(data_parallel_replicate_degree=64), prediction()
    resource_cost = resource_cost_of(layout, job, expected, reached, power_w)
    return trial(layout, number, measurement=replace(reached, resource_cost=resource_cost))


def ranked(metric: Metric, job: Job, *sizes: tuple[float, float]) -> list[int]:
    """Numbers of trials with such step times and such power, the best first."""
    trials = [measured(n, job, step_time_s=seconds, power_w=watts) for n, (seconds, watts) in enumerate(sizes)]
    return [trial.number for trial in Objective(metric=metric).ranked(trials)]


@pytest.mark.parametrize("metric", [Metric.TOKENS_PER_JOULE, Metric.TOKENS_PER_DOLLAR, Metric.TOKENS_PER_KG_CO2])
def test_trials_that_take_equally_long_rank_by_what_they_draw(metric: Metric) -> None:
    job = rented(energy_price_per_kwh=0.2, co2_kg_per_kwh=0.3)
    assert ranked(metric, job, (1.0, 700.0), (1.0, 400.0)) == [1, 0]
    assert ranked(Metric.MFU, job, (1.0, 700.0), (1.0, 400.0)) == [0, 1]


@pytest.mark.parametrize(("energy_price_per_kwh", "order"), [(0.3, [0, 1]), (0.5, [1, 0])])
def test_the_price_of_energy_flips_what_is_recommended(energy_price_per_kwh: float, order: list[int]) -> None:
    # hours at $1: 1.0 s (1 + 0.7 p) against 1.1 s (1 + 0.4 p), which meet at p = 0.385 dollars per kWh
    job = rented(energy_price_per_kwh=energy_price_per_kwh)
    assert ranked(Metric.TOKENS_PER_DOLLAR, job, (1.0, 700.0), (1.1, 400.0)) == order
    assert ranked(Metric.TOKENS_PER_S, job, (1.0, 700.0), (1.1, 400.0)) == [0, 1]


# ---------------------------------------------------------------- standings
def times(*step_times_s: float, interval: float = 0.0, floor: float | None = None) -> list[RankedTime]:
    """Ranked trials a, b, c ... with intervals that are this share of their step times."""
    return [
        RankedTime(trial_id=name, step_time_s=time, step_time_interval_s=interval * time, noise_floor=floor)
        for name, time in zip("abcdef", step_times_s, strict=False)
    ]


def test_no_trial_has_no_standing_and_a_trial_alone_is_surely_the_best() -> None:
    assert standings([]) == {}
    (alone,) = standings(times(1.0, interval=0.1)).values()
    assert (alone.probability_best, alone.tied_with_best) == (1.0, True)
    (found,) = standings([replace(times(1.0)[0], repeated_s=(4.0,), value_per_step=6.0)]).values()
    assert (found.step_time_s, found.value) == pytest.approx((2.0, 3.0))


def test_equal_or_overlapping_times_are_tied_and_far_ones_are_not() -> None:
    for standing in standings(times(1.0, 1.0, 1.0, interval=0.05)).values():
        assert standing.probability_best == pytest.approx(1 / 3)  # by symmetry; summed in another order
        assert standing.tied_with_best
    found = standings(times(0.259, 0.292, 0.6, interval=0.13))
    assert found["b"].tied_with_best
    assert 0.05 < found["b"].probability_best < found["a"].probability_best
    assert not found["c"].tied_with_best
    assert found["c"].probability_best < 1e-6


def test_the_noise_of_one_layout_ties_all_and_luck_makes_no_time_exact() -> None:
    usual = times(1.00, 1.05)
    noisy = [*times(1.00, floor=0.05), usual[1]]
    assert not standings(usual)["b"].tied_with_best
    assert standings(noisy)["b"].tied_with_best
    lucky = [*times(1.00, floor=0.0), *times(1.00, 1.01)[1:]]
    assert standings(lucky)["b"].tied_with_best
    noisy = [replace(usual[0], repeated_s=(1.06, 0.95, 1.05, 0.96)), usual[1]]
    assert standings(noisy)["b"].tied_with_best


def test_a_layout_is_known_by_all_of_its_runs_and_probabilities_agree_with_drawn_times() -> None:
    lucky = [replace(one, repeated_s=(1.05,) * 5) if one.trial_id == "a" else one for one in times(1.00, 1.02)]
    assert standings(lucky)["b"].probability_best > 0.8
    few, many = ([replace(one, repeated_s=(one.step_time_s,) * num) for one in times(1.0, 1.01)] for num in (1, 9))
    assert standings(few)["b"].tied_with_best
    assert not standings(many)["b"].tied_with_best
    deviation = np.hypot(0.05 / 1.96, 0.01)  # of the medians, and of equal runs
    drawn = np.random.default_rng(7).normal(np.log([1.0, 1.02, 1.1]), deviation, size=(200_000, 3))
    shares = np.bincount(drawn.argmin(axis=1), minlength=3) / len(drawn)
    found = [standing.probability_best for standing in standings(times(1.0, 1.02, 1.1, interval=0.05)).values()]
    # three standard errors of a share of 200,000 draws, 0.0034 at most
    assert found == pytest.approx(shares, abs=0.0034)
