"""Accelerators, links, CPU cores, tariffs and clusters by name."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from autotuner.catalog.hardware import (
    accelerator_facts,
    accelerators,
    core_collectives,
    core_times,
    is_as_catalogued,
    load_accelerator,
    load_cluster,
    load_link,
    region,
    regions,
)
from autotuner.catalog.named import cluster_described
from autotuner.core.accelerator import Accelerator
from autotuner.core.choices import AttentionKernel, Precision
from autotuner.core.codec import from_plain, loads, to_plain
from autotuner.core.errors import InvalidInput, NotFound
from autotuner.core.profile import DeviceProfile
from tests.cases import each

LINK_ENDS = ("intra_node_link", "inter_node_link")


def test_the_promised_accelerators_are_there() -> None:
    promised = "a100-40gb a100-80gb a800 h100-sxm h100-96gb h100-nvl gh200 gh200-144gb h800 h100-pcie h200 h20 b200"
    promised += " b300 gb200 gb300 mi250x mi300x mi325x mi355x l40s v100 cpu"
    assert set(promised.split()) <= set(accelerators())


@each("name", accelerators())
def test_every_accelerator_and_its_cluster_can_be_built(name: str) -> None:
    assert load_accelerator(name).name == name
    cluster = load_cluster(f"{name}:2")
    assert cluster.world_size == 2
    assert cluster.price_per_accelerator_hour > 0


@each("name", accelerators())
def test_every_number_has_a_source_and_a_date(name: str) -> None:
    facts = {key: fact for key, fact in accelerator_facts(name).items() if key not in {"kind", "aliases"}}
    assert all(fact.source for fact in facts.values())
    assert all(date.fromisoformat(fact.date) for fact in facts.values())


def test_every_fact_of_an_accelerator_is_one_that_something_reads() -> None:
    told = {key for name in accelerators() for key in accelerator_facts(name)}
    of_a_cluster = {"accelerators_per_node", "nvlink_domain", "price_per_accelerator_hour", *LINK_ENDS}
    assert told - of_a_cluster - {field.name for field in fields(Accelerator)} == {"aliases"}


@pytest.mark.parametrize(
    ("written", "name"), [("H100", "h100-sxm"), ("H100-SXM", "h100-sxm"), ("GB200-NVL72", "gb200")]
)
def test_names_and_aliases_of_accelerators_are_read_in_any_case(written: str, name: str) -> None:
    assert load_accelerator(written) == load_accelerator(name)
    assert load_accelerator(written).name == name
    assert accelerator_facts(written) == accelerator_facts(name)


@pytest.mark.parametrize(
    ("written", "name"),
    [("H100:64", "h100:64"), ("H100-SXM:8X4", "h100-sxm:8x4"), ("h100:64@Fat-Tree-2to1", "h100:64@fat-tree-2to1")],
)
def test_a_short_form_is_read_in_any_case_and_names_its_cluster_in_lower_case(written: str, name: str) -> None:
    assert load_cluster(written) == load_cluster(name)
    assert load_cluster(written).name == name


def test_devices_links_and_clusters_are_what_their_data_sheets_say() -> None:
    h100 = load_accelerator("h100")
    assert h100.peak_flop_per_s(Precision.BF16) == 989.4e12
    assert 79 * 2**30 < h100.memory_bytes < 80 * 2**30  # "80 GB" are 80 GiB, less what the driver keeps
    assert "H100" in h100.peak_source
    v100 = load_accelerator("v100")
    assert v100.precisions == (Precision.FP32,)
    assert AttentionKernel.FLASH not in v100.attention_kernels
    assert [load_cluster(f"{name}:128").accelerators_per_domain for name in ("gb200", "gb300", "b200")] == [64, 64, 8]
    cluster = load_cluster("h100:64")
    assert (cluster.intra_node_link.name, cluster.inter_node_link.name) == ("nvlink4", "ndr400")
    assert cluster.intra_node_link.bandwidth_bytes_per_s == 450e9  # one direction
    rates = [load_link(f"nvlink{generation}").bandwidth_bytes_per_s for generation in (2, 3, 4, 5)]
    assert rates == sorted(rates)
    dgx_h100_w = 10_200
    cluster = load_cluster("h100:8")
    drawn_w = 8 * (load_accelerator("h100").power_w + cluster.tariff.host_power_w)
    assert drawn_w == pytest.approx(dgx_h100_w, rel=0.01)  # the share is rounded to two digits


@pytest.mark.parametrize(
    ("description", "num_nodes", "per_node"),
    [("h100", 1, 1), ("h100:3", 1, 3), ("h100:8", 1, 8), ("h100:64", 8, 8), ("h100:8x4", 8, 4), ("gb200:128", 32, 4)],
)
def test_a_short_form_is_nodes_and_accelerators(description: str, num_nodes: int, per_node: int) -> None:
    cluster = load_cluster(description)
    assert (cluster.num_nodes, cluster.accelerators_per_node, cluster.name) == (num_nodes, per_node, description)


@pytest.mark.parametrize(("count", "nearest"), [("9", 8), ("63", 64), ("1001", 1000), ("12", 16)])
def test_a_torn_node_is_refused_with_the_nearest_whole(count: str, nearest: int) -> None:
    with pytest.raises(InvalidInput) as caught:
        load_cluster(f"h100:{count}")
    assert (caught.value.value, caught.value.nearest) == (int(count), nearest)


@pytest.mark.parametrize("count", ["0", "x", "8x", "x8", "8x8x8", "-8", "8.0", "٨"])
def test_a_count_that_is_no_count_is_refused(count: str) -> None:
    with pytest.raises(InvalidInput, match="number of accelerators"):
        load_cluster(f"h100:{count}")


# ---------------------------------------------------------------- links
@each("name", sorted({accelerator_facts(a)[end].value for a in accelerators() for end in LINK_ENDS} | {"efa400"}))
def test_every_link_can_be_built(name: str) -> None:
    link = load_link(name)
    assert link.name == name
    assert 0 < link.efficiency <= 1


@pytest.mark.parametrize(
    "changed", [{"name": "a100x"}, {"name": "h100"}, {"bf16_flop_per_s": 1e15}, {"kind": "rocm"}], ids=str
)
def test_a_device_that_a_user_describes_is_not_the_catalogs_whatever_it_is_called(changed: dict[str, Any]) -> None:
    assert not is_as_catalogued(replace(load_accelerator("h100-sxm"), **changed))


def test_a_catalog_device_is_still_the_catalogs_after_a_way_through_json_and_with_a_profile_of_its_own() -> None:
    device = load_accelerator("h100-sxm")
    profiled = replace(device, memory_bandwidth_bytes_per_s=3e12, kernel_launch_s=4e-6)
    assert is_as_catalogued(from_plain(Accelerator, to_plain(device)))
    assert is_as_catalogued(profiled)


KEPT = Path("research/data/cpu_profile_4.json")


def numbers(value: object) -> list[float]:
    """All of a document's, in order."""
    if isinstance(value, dict):
        return [number for one in value.values() for number in numbers(one)]
    if isinstance(value, list):
        return [number for one in value for number in numbers(one)]
    return [float(value)] if isinstance(value, (int, float)) else []


def test_only_cores_have_times_and_these_are_what_the_kept_profile_says() -> None:
    profile = loads(DeviceProfile, KEPT.read_text())
    assert profile.core is not None
    # three digits are written
    assert numbers(to_plain(core_times())) == pytest.approx(numbers(to_plain(profile.core)), rel=5e-3)
    assert numbers(to_plain(core_collectives())) == pytest.approx(numbers(to_plain(profile.collectives)), rel=5e-3)
    assert load_accelerator("cpu").core == core_times()
    assert load_cluster("cpu:4").intra_node_link.measured == core_collectives()
    assert load_accelerator("h100").core is None
    assert load_cluster("h100:8").intra_node_link.measured == ()


H100 = load_accelerator("h100")


def test_hosts_ports_and_spot_hours_of_the_catalog_are_known() -> None:
    for name in accelerators():
        cluster = load_cluster(name)
        assert cluster.tariff.host_power_w > 0
        assert cluster.tariff.network_j_per_byte > 0
        assert 0 < cluster.tariff.spot_price_per_accelerator_hour < cluster.price_per_accelerator_hour


def test_every_region_has_a_mix_a_source_and_a_date_and_an_unknown_one_comes_back_with_the_nearest() -> None:
    assert len(regions()) > 10
    assert all(0 < one.co2_kg_per_kwh < 1 and one.source and one.date for one in regions())
    with pytest.raises(NotFound, match="germany"):
        region("Germani")


def test_a_description_names_or_changes_a_region_and_keeps_what_is_usual_around_its_accelerators() -> None:
    tariff = cluster_described({"base": "h100:8", "tariff": "france"}).tariff
    assert (tariff.co2_kg_per_kwh, tariff.host_power_w) == (0.044, load_cluster("h100:8").tariff.host_power_w)
    said = {"base": "sweden", "is_spot": True, "power_usage_effectiveness": 1.05}
    tariff = cluster_described({"base": "h100:8", "tariff": said}).tariff
    assert (tariff.co2_kg_per_kwh, tariff.power_usage_effectiveness, tariff.is_spot) == (0.036, 1.05, True)
    bare = {"base": "h100:8", "tariff": {"is_spot": True, "spot_price_per_accelerator_hour": 0.0}}
    with pytest.raises(InvalidInput, match=r"tariff\.is_spot"):
        cluster_described(bare)
