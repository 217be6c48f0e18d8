"""Tests of ``autotuner.costmodel.communication.nccl``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.catalog.hardware import load_cluster
from autotuner.core.network import Network
from autotuner.costmodel.communication.nccl import (
    Channels,
    Collective,
    Generation,
    NcclAlgorithm,
    Wires,
    bands,
    chosen,
    generation_of,
    ways,
    wires_of,
)


@pytest.mark.parametrize(
    ("name", "generation", "channels"),
    [
        ("v100:8", Generation.VOLTA, 6),  # 12 after NCCL has doubled what it found
        ("a100:8", Generation.AMPERE, 12),
        ("h100:8", Generation.HOPPER, 12),
        ("b200:8", Generation.BLACKWELL, 16),
    ],
)
def test_a_node_has_the_channels_of_its_generation(name: str, generation: Generation, channels: int) -> None:
    cluster = load_cluster(name)
    assert generation_of(cluster.accelerator) is generation
    assert wires_of(8, 8, cluster).rings.count == channels


def test_between_nodes_each_port_has_a_channel_of_its_own() -> None:
    wires = wires_of(32, 8, load_cluster("a100:32"))
    assert wires.rings.count == 8
    assert wires.rings.between_gb_per_s == pytest.approx(24)
    assert wires.trees.inside_gb_per_s == pytest.approx(30)  # NVLink's 240 GB/s over 8 trees


def test_a_lone_wide_channel_is_doubled() -> None:
    wires = wires_of(4, 1, load_cluster("h100:32"))
    assert wires.rings.count == 2
    assert wires.rings.between_gb_per_s == pytest.approx(24)  # both of one port of 400 Gbit/s, of which NCCL counts 48


def test_accelerators_that_share_ports_have_fewer_channels() -> None:
    cluster = load_cluster("a100:32")
    shared = replace(cluster, network=Network(name="half", ports_per_node=4))
    assert wires_of(32, 8, shared).rings.count == wires_of(32, 8, cluster).rings.count // 2


def test_switches_of_the_network_add_between_nodes_alone() -> None:
    cluster = replace(load_cluster("h100:16"), network=Network(name="sharp", adds=True))
    assert wires_of(16, 8, cluster).network_adds
    assert not wires_of(8, 8, cluster).network_adds


PORTS = Channels(count=8, inside_gb_per_s=46.0, between_gb_per_s=46.0)


def hopper(num_nodes: int = 4, **changes: object) -> Wires:
    given = {"rings": PORTS, "trees": PORTS, "switched": PORTS, **changes}
    return Wires(
        num_ranks=8 * num_nodes,
        num_nodes=num_nodes,
        generation=Generation.HOPPER,
        has_nvlink=True,
        **given,  # type: ignore[arg-type]  # each field has its own type
    )


def algorithms(collective: Collective, wires: Wires) -> set[NcclAlgorithm]:
    return {way.algorithm for way in ways(collective, wires)}


def test_gathers_go_around_rings_and_on_one_node_through_switches() -> None:
    assert algorithms("all_gather", hopper(1)) == {NcclAlgorithm.RING, NcclAlgorithm.NVLS}
    assert algorithms("reduce_scatter", hopper(4)) == {NcclAlgorithm.RING}


def test_the_networks_switches_add_where_nccl_is_told_so() -> None:
    switched = {NcclAlgorithm.COLLNET_DIRECT, NcclAlgorithm.COLLNET_CHAIN, NcclAlgorithm.NVLS}
    assert not switched & algorithms("all_reduce", hopper(4))
    assert switched <= algorithms("all_reduce", hopper(4, network_adds=True))


def test_trees_of_switches_need_several_nodes_whose_switches_add() -> None:
    assert NcclAlgorithm.NVLS_TREE in algorithms("all_reduce", hopper(2))
    assert NcclAlgorithm.NVLS_TREE not in algorithms("all_reduce", hopper(1))
    assert NcclAlgorithm.NVLS_TREE not in algorithms("all_reduce", hopper(2, switched=None))


def test_without_nvlink_no_128_bytes_are_flagged() -> None:
    pcie = Wires(num_ranks=16, num_nodes=2, generation=Generation.AMPERE, has_nvlink=False, rings=PORTS, trees=PORTS)
    assert {str(way.protocol) for way in ways("all_reduce", pcie)} == {"LL", "Simple"}


def test_nothing_rated_is_faster_than_what_is_chosen() -> None:
    wires = hopper(8)
    for size in (2**10, 2**20, 2**30):
        least = chosen("all_reduce", size, wires).seconds(size)
        assert all(way.seconds(size) >= least for way in ways("all_reduce", wires))


def test_bands_begin_where_the_way_changes() -> None:
    found = bands("all_reduce", hopper(8))
    assert [band.from_bytes for band in found] == sorted({band.from_bytes for band in found})
    for band in found[1:]:
        before, after = (str(chosen("all_reduce", size, hopper(8))) for size in (band.from_bytes // 2, band.from_bytes))
        assert before != after == str(band.way)


def test_one_rank_asks_nobody() -> None:
    alone = Wires(num_ranks=1, num_nodes=1, generation=Generation.AMPERE, has_nvlink=True, rings=PORTS, trees=PORTS)
    with pytest.raises(ValueError, match="two ranks"):
        ways("all_reduce", alone)
