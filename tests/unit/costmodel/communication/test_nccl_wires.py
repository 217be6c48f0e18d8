"""Channels of equal nodes, as NCCL's logs show them for machines that many people have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.catalog.hardware import load_cluster
from autotuner.core.network import Network
from autotuner.costmodel.communication.nccl_tables import Generation
from autotuner.costmodel.communication.nccl_wires import generation_of, wires_of


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
