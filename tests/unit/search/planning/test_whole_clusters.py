from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.catalog.hardware import accelerator_facts, load_accelerator, load_cluster
from autotuner.core.errors import InvalidInput
from autotuner.search.planning.goal import Goal
from autotuner.search.planning.request import ChangePrices
from autotuner.search.planning.whole_clusters import changed, offers, prices_of, rentable
from tests.unit.search.planning.requests import DAY_S, request_of


def test_what_nobody_named_is_what_anybody_can_rent() -> None:
    names = rentable()
    assert {"h100-sxm", "h200", "b200", "mi300x", "gb200"} <= set(names)
    assert not {"cpu", "v100", "h800", "h20", "rtx-4090", "a10"} & set(names)
    for name in names:
        assert accelerator_facts(name)["price_per_accelerator_hour"].value > 0


def test_sizes_hold_the_model_and_keep_the_deadline() -> None:
    goal = Goal(num_tokens=1e12, deadline_s=30 * DAY_S)
    found = [one.cluster for one in offers(request_of(goal=goal, accelerators=("h100",), sizes=()))]
    sizes = [cluster.world_size for cluster in found]
    assert sizes == [size << power for power, size in enumerate([sizes[0]] * len(sizes))]  # powers of two of one node
    peak = load_accelerator("h100").bf16_flop_per_s
    flop = 1e12 * request_of().model.model_flop_per_token(4096)
    assert flop / (sizes[0] * peak) < 30 * DAY_S  # at its peak, the smallest would be done
    assert flop / (sizes[0] / 2 * peak) > 0.65 * 30 * DAY_S  # half of it never was, in any published run


def test_own_prices_and_tariffs_stand_in_the_place_of_the_catalogs() -> None:
    request = request_of(accelerators=("h100",), sizes=(8,), prices={"h100": 2.0}, tariff={"energy_price_per_kwh": 0.1})
    (offer,) = offers(request)
    tariff = replace(load_cluster("h100:8").tariff, energy_price_per_kwh=0.1)  # what hosts draw stays the catalog's
    assert (offer.cluster.price_per_accelerator_hour, offer.cluster.tariff) == (2.0, tariff)
    (price,) = prices_of(request, [offer])
    assert (price.accelerator, price.per_hour, price.source) == ("h100-sxm", 2.0, "")


def test_a_listed_price_has_its_source_and_date() -> None:
    request = request_of(accelerators=("h100",), sizes=(8,))
    (price,) = prices_of(request, offers(request))
    assert (price.per_hour, price.source, price.date) == (
        3.95,
        "Modal price list, per second times 3,600",
        "2026-05-07",
    )


def test_hypothetical_clusters_have_another_network_or_memory_and_its_price() -> None:
    cluster = load_cluster("h100:16")
    other = changed(cluster, ChangePrices(), network_factor=2.0, extra_bytes=40_000_000_000)
    assert other.inter_node_link.bandwidth_bytes_per_s == 2 * cluster.inter_node_link.bandwidth_bytes_per_s
    assert other.accelerator.memory_bytes == cluster.accelerator.memory_bytes + 40_000_000_000
    assert other.price_per_accelerator_hour == pytest.approx(3.95 * 1.1 + 40 * 0.009)
    assert other.name == "h100:16 2 x network +40 GB"


def test_memory_is_priced_as_the_catalog_prices_that_of_an_h200_beside_an_h100() -> None:
    h100, h200 = (accelerator_facts(name) for name in ("h100", "h200"))
    more = h200["price_per_accelerator_hour"].value - h100["price_per_accelerator_hour"].value
    gigabytes = (h200["memory_bytes"].value - h100["memory_bytes"].value) / 1e9
    assert ChangePrices().memory_per_gb_hour == pytest.approx(
        more / gigabytes, rel=0.01
    )  # rounded to a tenth of a cent


def test_every_factor_meets_every_memory_and_size() -> None:
    found = offers(request_of(network_factors=(1.0, 2.0), extra_memory_bytes=(0, 10**10)))
    assert len(found) == 2 * 2 * 2 * 2
    assert sum(not offer.is_hypothetical for offer in found) == 4


def test_a_deadline_that_no_cluster_keeps_is_refused_with_the_goal() -> None:
    goal = Goal(num_tokens=1e15, deadline_s=DAY_S)
    with pytest.raises(InvalidInput, match=r"1e\+15 tokens, 1 days"):
        offers(request_of(goal=goal, accelerators=("h100",), sizes=(), max_accelerators=64))


def test_too_many_clusters_are_refused() -> None:
    with pytest.raises(InvalidInput, match="512"):
        offers(request_of(sizes=tuple(8 * size for size in range(1, 300))))
