from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.choices import Precision
from autotuner.core.cluster import Tariff
from autotuner.core.complexity import complexity
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.objective import Metric, Objective, Weight
from autotuner.core.space import SearchSpace
from autotuner.core.trial import Trial, TrialState
from autotuner.costmodel.resource_cost import footprint_of
from autotuner.search.ranking import ComparedBy, PredictionTable, best_predicted
from tests.builders import big_job, measurement, prediction

SPACE = SearchSpace(precision=(Precision.BF16,), compiled=(False, True), micro_batch_size=(1,))


def best(job: Job, objective: Objective, limit: int = 1) -> PredictionTable:
    return best_predicted(job, SPACE, limit=limit, compared_by=ComparedBy(objective=objective))


def rented(*, energy_price_per_kwh: float = 0.0, co2_kg_per_kwh: float = 0.0) -> Job:
    tariff = Tariff(energy_price_per_kwh=energy_price_per_kwh, co2_kg_per_kwh=co2_kg_per_kwh)
    job = big_job()
    return replace(job, cluster=replace(job.cluster, price_per_accelerator_hour=1.0, tariff=tariff))


def test_layouts_are_ranked_by_the_objective_that_is_asked_for() -> None:
    rows = best(big_job(), Objective(metric=Metric.TOKENS_PER_JOULE), limit=50).rows
    values = [
        Objective(metric=Metric.TOKENS_PER_JOULE).value_of(row.prediction, row.footprint)
        * (row.prediction.fit_probability or 0.0)
        for row in rows
    ]
    assert values == sorted(values, reverse=True)


def test_token_rate_ranks_as_mfu_does() -> None:
    speeds = [Objective(metric=metric) for metric in (Metric.MFU, Metric.TOKENS_PER_S)]
    by_mfu, by_rate = (best(big_job(), objective, limit=5).rows for objective in speeds)
    assert by_mfu == by_rate


def test_a_profile_with_simplicity_takes_a_plainer_layout() -> None:
    profile = (Weight(metric=Metric.MFU, weight=1), Weight(metric=Metric.SIMPLICITY, weight=5))
    fastest, plainest = (best(big_job(), one).rows[0].layout for one in (Objective(), Objective(profile=profile)))
    assert fastest.compiled
    assert complexity(plainest) < complexity(fastest)


def measured(number: int, job: Job, *, step_time_s: float, power_w: float) -> Trial:
    """A trial that was measured with NVML's word on its power."""
    reached = measurement(step_time_s=step_time_s, tokens_per_s=job.workload.tokens_per_step / step_time_s)
    layout, expected = Layout(data_parallel_replicate_degree=64), prediction()
    return Trial(
        id=f"sw-{number}",
        sweep_id="sw",
        number=number,
        state=TrialState.COMPLETE,
        layout=layout,
        prediction=expected,
        measurement=replace(reached, footprint=footprint_of(layout, job, expected, reached, power_w)),
    )


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
