from __future__ import annotations

import pytest

from autotuner.catalog.descriptions import cluster_described
from autotuner.catalog.load import accelerators, load_accelerator, load_cluster
from autotuner.catalog.tariffs import region, regions
from autotuner.core.errors import InvalidInput, NotFound


def test_hosts_ports_and_spot_hours_of_the_catalog_are_known() -> None:
    for name in accelerators():
        cluster = load_cluster(name)
        assert cluster.tariff.host_power_w > 0
        assert cluster.tariff.network_j_per_byte > 0
        assert 0 < cluster.tariff.spot_price_per_accelerator_hour < cluster.price_per_accelerator_hour


def test_a_node_of_the_catalog_draws_no_more_than_its_maker_states() -> None:
    dgx_h100_w = 10_200
    cluster = load_cluster("h100:8")
    drawn_w = 8 * (load_accelerator("h100").power_w + cluster.tariff.host_power_w)
    assert drawn_w == pytest.approx(dgx_h100_w, rel=0.01)  # the share is rounded to two digits


def test_every_region_has_a_mix_a_source_and_a_date() -> None:
    assert len(regions()) > 10
    assert all(0 < one.co2_kg_per_kwh < 1 and one.source and one.date for one in regions())


def test_a_region_that_is_not_known_is_refused_with_the_nearest() -> None:
    with pytest.raises(NotFound, match="germany"):
        region("Germani")


def test_a_description_names_its_region_and_keeps_what_is_usual_around_its_accelerators() -> None:
    tariff = cluster_described({"base": "h100:8", "tariff": "france"}).tariff
    assert (tariff.co2_kg_per_kwh, tariff.host_power_w) == (0.044, load_cluster("h100:8").tariff.host_power_w)


def test_a_description_changes_fields_of_a_region() -> None:
    said = {"base": "sweden", "is_spot": True, "power_usage_effectiveness": 1.05}
    tariff = cluster_described({"base": "h100:8", "tariff": said}).tariff
    assert (tariff.co2_kg_per_kwh, tariff.power_usage_effectiveness, tariff.is_spot) == (0.036, 1.05, True)


def test_spot_hours_without_a_price_are_refused() -> None:
    bare = {"base": "h100:8", "tariff": {"is_spot": True, "spot_price_per_accelerator_hour": 0.0}}
    with pytest.raises(InvalidInput, match=r"tariff\.is_spot"):
        cluster_described(bare)
