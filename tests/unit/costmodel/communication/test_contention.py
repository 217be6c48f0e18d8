"""What NCCL chooses, and what axes that share links do to each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.network import Network, Tier
from autotuner.core.placement import Spread
from autotuner.core.workload import Workload
from autotuner.costmodel.communication.contention import ContendingTraffic, PassTraffic, fair_slowdowns
from autotuner.costmodel.communication.group import LinkTime
from autotuner.costmodel.communication.layout_groups import group_of
from autotuner.costmodel.communication.nccl import (
    Channels,
    Collective,
    Generation,
    NcclAlgorithm,
    bands,
    chosen,
    generation_of,
    ways,
    wires_of,
)
from autotuner.costmodel.communication.nccl import Wires as NcclWires
from autotuner.costmodel.predict import predict_one
from tests.builders import big_job, h100_cluster
from tests.unit.costmodel.communication.flows import AxisTraffic, Floats, Streams, Wires, fair_rates


def links(*busy: float) -> list[LinkTime]:
    """A link inside the node, a port, and what is above."""
    return [LinkTime(str(place), np.array([seconds])) for place, seconds in enumerate((1.0, *busy))]


def both(one: list[LinkTime], other: list[LinkTime]) -> tuple[float, float]:
    found = fair_slowdowns(one, other)
    return float(found.one[0]), float(found.other[0])


def test_axes_share_ports_by_what_they_send_for_as_long_as_they_meet() -> None:
    assert both(links(3, 0), links(1, 0)) == (2, 2)
    # one is held to a quarter of a port by its uplinks, over which the other has nothing to send
    assert both(links(1, 4), links(1, 0)) == pytest.approx((1, 4 / 3))
    assert both(links(0, 0), links(1, 4)) == (1, 1)
    # collectives of 12 s get 10 s of links under computation, and 2 s worth in the 4 s that sends of 2 s then take
    assert added_s(12, 10, 2) == pytest.approx(0)  # 14 s, as many as when they hide under computation alone
    assert added_s(10, 10, 2) == pytest.approx(2 * 10 / 12)
    assert added_s(1.2, 10, 2) == pytest.approx(0.2)
    assert added_s(100, 10, 2) == pytest.approx(0)
    assert added_s(5, 0, 2) == 0


@pytest.mark.parametrize("oversubscription", [1.0, 2.0, 6.0])
@pytest.mark.parametrize(("ring", "stage"), [((4, 8), 256), ((16, 8), 512), ((8, 64), 32)])
def test_rings_beside_sends_are_as_much_slower_as_when_all_flows_are_followed(
    oversubscription: float, ring: tuple[int, int], stage: int
) -> None:
    tier = Tier(name="leaf", nodes_per_switch=4, oversubscription=oversubscription)
    cluster = h100_cluster(num_nodes=128, network=Network(name="thin", tiers=(tier,)))
    wires, capacities = Wires(cluster), Wires(cluster).capacities()
    rings = AxisTraffic(wires=wires, spread=Spread(*ring)).rings()
    sends = AxisTraffic(wires=wires, spread=Spread(1024 // stage, stage)).sends()
    together, num_rings = fair_rates(rings.beside(sends), capacities), rings.num_streams
    followed = _slower(rings, together[:num_rings], capacities), _slower(sends, together[num_rings:], capacities)
    groups = [
        group_of(np.array([size]), np.array([stride]), cluster) for size, stride in (ring, (1024 // stage, stage))
    ]
    found = fair_slowdowns(groups[0].ring_links(), groups[1].send_links())
    assert (float(found.one[0]), float(found.other[0])) == pytest.approx(followed, rel=1e-9)


def _slower(alone: Streams, together: Floats, capacities: Floats) -> float:
    return float(fair_rates(alone, capacities).min() / together.min())


CLOS = Network(name="clos", tiers=(Tier(name="leaf", nodes_per_switch=4),))


def met(sent_s: float) -> ContendingTraffic:
    """Shards of 8 nodes that meet sends between stages, both through the same ports."""
    layout = Layout(tensor_parallel_degree=8, data_parallel_shard_degree=4, pipeline_parallel_degree=2)
    x = LayoutColumns.from_layouts([layout])
    nothing = np.zeros(1)
    traffic = PassTraffic(tensor_s=nothing, context_s=nothing, expert_s=nothing, sent_s=np.array([sent_s]))
    return ContendingTraffic.of(x, replace(big_job(), cluster=h100_cluster(network=CLOS)), traffic)


def added_s(wire_s: float, window_s: float, sent_s: float) -> float:
    return float(met(sent_s).added_s(np.array([wire_s]), np.array([window_s]))[0])


def job(network: Network | None) -> Job:
    return Job(
        model=load_model("mixtral-8x7b"),
        cluster=replace(load_cluster("h100:128"), num_nodes=32, accelerators_per_node=4, network=network),
        workload=Workload(seq_len=4096, global_batch_size=512),
    )


def test_experts_on_several_nodes_make_sharded_parameters_take_longer_and_experts_inside_a_node_do_not() -> None:
    wide = Layout.parse("fsdp64 tp2 ep8 mb8 sp")
    narrow = replace(wide, expert_parallel_degree=4)
    longer = {}
    for layout in (wide, narrow):
        seconds = [predict_one(layout, job(network)).step_time.data_communication_s for network in (None, CLOS)]
        longer[layout.expert_parallel_degree] = seconds[1] - seconds[0]
    assert longer[4] == pytest.approx(0, abs=1e-12)  # 4 expert ranks fill a node
    assert longer[8] > 0.01  # seconds, of a step of several


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


def test_ports_have_channels_of_their_own_and_a_lone_wide_one_is_doubled() -> None:
    wires = wires_of(32, 8, load_cluster("a100:32"))
    assert wires.rings.count == 8
    assert wires.rings.between_gb_per_s == pytest.approx(24)
    assert wires.trees.inside_gb_per_s == pytest.approx(30)  # NVLink's 240 GB/s over 8 trees
    wires = wires_of(4, 1, load_cluster("h100:32"))
    assert wires.rings.count == 2
    assert wires.rings.between_gb_per_s == pytest.approx(24)  # both of one port of 400 Gbit/s, of which NCCL counts 48
    cluster = load_cluster("a100:32")
    shared = replace(cluster, network=Network(name="half", ports_per_node=4))
    assert wires_of(32, 8, shared).rings.count == wires_of(32, 8, cluster).rings.count // 2


PORTS = Channels(count=8, inside_gb_per_s=46.0, between_gb_per_s=46.0)


def hopper(num_nodes: int = 4, **changes: object) -> NcclWires:
    given = {"rings": PORTS, "trees": PORTS, "switched": PORTS, **changes}
    return NcclWires(
        num_ranks=8 * num_nodes,
        num_nodes=num_nodes,
        generation=Generation.HOPPER,
        has_nvlink=True,
        **given,  # type: ignore[arg-type]  # each field has its own type
    )


def algorithms(collective: Collective, wires: NcclWires) -> set[NcclAlgorithm]:
    return {way.algorithm for way in ways(collective, wires)}


def test_algorithms_are_those_that_the_nodes_switches_and_network_have() -> None:
    assert algorithms("all_gather", hopper(1)) == {NcclAlgorithm.RING, NcclAlgorithm.NVLS}
    assert algorithms("reduce_scatter", hopper(4)) == {NcclAlgorithm.RING}
    switched = {NcclAlgorithm.COLLNET_DIRECT, NcclAlgorithm.COLLNET_CHAIN, NcclAlgorithm.NVLS}
    assert not switched & algorithms("all_reduce", hopper(4))
    assert switched <= algorithms("all_reduce", hopper(4, network_adds=True))
    assert NcclAlgorithm.NVLS_TREE in algorithms("all_reduce", hopper(2))
    assert NcclAlgorithm.NVLS_TREE not in algorithms("all_reduce", hopper(1))
    assert NcclAlgorithm.NVLS_TREE not in algorithms("all_reduce", hopper(2, switched=None))
    pcie = NcclWires(
        num_ranks=16, num_nodes=2, generation=Generation.AMPERE, has_nvlink=False, rings=PORTS, trees=PORTS
    )
    assert {str(way.protocol) for way in ways("all_reduce", pcie)} == {"LL", "Simple"}
    cluster = replace(load_cluster("h100:16"), network=Network(name="sharp", adds=True))
    assert wires_of(16, 8, cluster).network_adds
    assert not wires_of(8, 8, cluster).network_adds
    alone = NcclWires(num_ranks=1, num_nodes=1, generation=Generation.AMPERE, has_nvlink=True, rings=PORTS, trees=PORTS)
    with pytest.raises(ValueError, match="two ranks"):
        ways("all_reduce", alone)


def test_the_fastest_way_is_chosen_in_bands_that_begin_where_it_changes() -> None:
    wires = hopper(8)
    for size in (2**10, 2**20, 2**30):
        least = chosen("all_reduce", size, wires).seconds(size)
        assert all(way.seconds(size) >= least for way in ways("all_reduce", wires))
    found = bands("all_reduce", hopper(8))
    assert [band.from_bytes for band in found] == sorted({band.from_bytes for band in found})
    for band in found[1:]:
        before, after = (str(chosen("all_reduce", size, hopper(8))) for size in (band.from_bytes // 2, band.from_bytes))
        assert before != after == str(band.way)
