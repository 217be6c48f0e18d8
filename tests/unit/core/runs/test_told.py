from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.jobs.cluster import Cluster
from autotuner.core.jobs.tariff import Tariff
from autotuner.core.runs.metric import Metric
from autotuner.core.runs.objective import Objective, Weight
from autotuner.core.runs.sweep import SweepRequest
from autotuner.core.runs.told import metrics_told, require_told
from autotuner.errors import InvalidInput
from tests.builders import big_job, h100_cluster

PRICED = h100_cluster(price_per_accelerator_hour=2.0, tariff=Tariff(co2_kg_per_kwh=0.3))
BARE = h100_cluster()
WITHOUT_POWER = replace(PRICED, accelerator=replace(PRICED.accelerator, power_w=0.0))


def test_a_cluster_with_power_price_and_mix_tells_all_but_robustness() -> None:
    assert set(Metric) - set(metrics_told(PRICED)) == {Metric.ROBUSTNESS}
    assert metrics_told(PRICED, has_trace=True) == tuple(Metric)


@pytest.mark.parametrize(
    ("metric", "cluster", "named", "nearest"),
    [
        (Metric.TOKENS_PER_JOULE, WITHOUT_POWER, "accelerator.power_w", "tokens_per_s"),
        (Metric.TOKENS_PER_DOLLAR, BARE, "price_per_accelerator_hour", "tokens_per_joule"),
        (Metric.TOKENS_PER_KG_CO2, BARE, "tariff.co2_kg_per_kwh", "tokens_per_joule"),
        (Metric.TOKENS_PER_KG_CO2, WITHOUT_POWER, "accelerator.power_w", "tokens_per_s"),
    ],
)
def test_what_cannot_be_told_is_refused_with_what_it_needs(
    metric: Metric, cluster: Cluster, named: str, nearest: str
) -> None:
    with pytest.raises(InvalidInput, match=named) as refused:
        require_told(Objective(metric=metric), cluster)
    assert (refused.value.field, refused.value.value) == ("objective.metric", metric.value)
    assert refused.value.nearest == nearest


def test_a_metric_of_a_profile_or_a_front_is_refused_under_its_name() -> None:
    profile = (Weight(metric=Metric.MFU, weight=1), Weight(metric=Metric.TOKENS_PER_DOLLAR, weight=1))
    with pytest.raises(InvalidInput, match=r"objective\.profile = 'tokens_per_dollar'"):
        require_told(Objective(profile=profile), BARE)
    with pytest.raises(InvalidInput, match=r"objective\.front = 'robustness'.*fault_trace.*simplicity"):
        require_told(Objective(front=(Metric.MFU, Metric.ROBUSTNESS)), PRICED)


def test_energy_that_is_paid_is_price_enough() -> None:
    metered = replace(BARE, tariff=Tariff(energy_price_per_kwh=0.1))
    require_told(Objective(metric=Metric.TOKENS_PER_DOLLAR), metered)


def test_a_sweep_is_refused_whose_cluster_cannot_tell_its_objective() -> None:
    with pytest.raises(InvalidInput, match="price_per_accelerator_hour"):
        SweepRequest(job=replace(big_job(), cluster=BARE), objective=Objective(metric=Metric.TOKENS_PER_DOLLAR))
