from __future__ import annotations

import pytest

from autotuner.domain.layouts.layout import Layout
from autotuner.domain.runs.footprint import Footprint, Power
from autotuner.search.text.footprints import complexity_in_words, footprint_facts, power_in_words

POWER = Power(accelerators_w=28_000, hosts_w=10_000, network_w=500, building_w=7_700, is_measured=True)
FOOTPRINT = Footprint(power=POWER, price_per_hour=36.0, co2_kg_per_hour=9.24, complexity=4, robustness=0.9)


def test_power_is_told_by_what_draws_it_and_whether_it_was_measured() -> None:
    assert power_in_words(POWER) == "46.2 kW: accelerators 28 (measured), hosts 10, network 0.5, building 7.7"


def test_a_million_tokens_are_told_in_energy_dollars_and_emissions() -> None:
    told = dict(footprint_facts(FOOTPRINT, tokens_per_s=100_000.0))
    assert told["energy"] == "0.128 kWh per million tokens"  # 46.2 kWh in an hour of 360 million
    assert told["price"] == "$0.1 per million tokens, $36.00 per hour"
    assert told["CO2"] == "0.0257 kg per million tokens"
    assert told["robustness"] == "90.0 % of its throughput under the fault trace"


def test_what_is_not_known_is_not_told() -> None:
    bare = Footprint(power=None, price_per_hour=0.0, co2_kg_per_hour=0.0, complexity=0)
    assert dict(footprint_facts(bare, tokens_per_s=1.0)) == {"complexity": "0, where plain replicas have 0"}


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        (Layout(data_parallel_replicate_degree=8), "0: plain replicas"),
        (Layout(tensor_parallel_degree=2, compiled=True), "4: tensor 2, compiled 2"),
    ],
)
def test_complexity_is_told_with_what_makes_it_up(layout: Layout, words: str) -> None:
    assert complexity_in_words(layout) == words
