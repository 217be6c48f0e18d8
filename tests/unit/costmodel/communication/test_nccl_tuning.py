"""Ways that NCCL may take, and which of them a group has."""

from __future__ import annotations

import pytest

from autotuner.costmodel.communication.nccl_tables import Generation, NcclAlgorithm
from autotuner.costmodel.communication.nccl_tuning import Channels, Collective, Wires, bands, chosen, ways

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
