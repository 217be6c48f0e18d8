"""The XML of ``NCCL_TOPO_FILE``."""

from __future__ import annotations

import pytest

from autotuner.catalog.topology.nccl_xml import read_nccl_xml
from autotuner.core.errors import InvalidInput
from autotuner.core.network import Wiring
from tests.unit.catalog.topology.published import IBM_H100, NERSC_A100


def _wiring(text: str) -> Wiring:
    wiring = read_nccl_xml(text).wiring
    assert wiring is not None
    return wiring


def test_a_node_of_perlmutter_is_a_mesh_over_four_numa_nodes() -> None:
    topology, wiring = read_nccl_xml(NERSC_A100), _wiring(NERSC_A100)
    assert (topology.num_accelerators, topology.mesh_peers) == (4, 3)
    assert wiring.nvlink_groups == ((0, 1, 2, 3),)
    assert wiring.sockets == ((0,), (1,), (2,), (3,))
    assert [port.name for port in wiring.ports] == ["hsn0", "hsn1", "hsn2", "hsn3"]  # and no bond of 1 Gbit/s
    assert {port.bandwidth_bytes_per_s for port in wiring.ports} == {25e9}
    assert wiring.pcie_bandwidth_bytes_per_s == pytest.approx(31.5e9, rel=1e-3)  # 16 GT/s on 16 lanes, 128b/130b
    assert wiring.socket_bandwidth_bytes_per_s == 16e9


def test_a_guest_of_ibm_cloud_has_switched_nvlink_and_a_port_below_each_bridge() -> None:
    topology, wiring = read_nccl_xml(IBM_H100), _wiring(IBM_H100)
    assert (topology.num_accelerators, topology.mesh_peers) == (8, 0)
    assert wiring.nvlink_groups == (tuple(range(8)),)
    assert wiring.sockets == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert [port.name for port in wiring.ports] == [f"mlx5_{number}" for number in range(7, -1, -1)]
    assert {port.path for port in wiring.ports} == {"pcie_switch"}
    assert wiring.pcie_bandwidth_bytes_per_s is None  # the guest sees widths of 0 lanes
    assert wiring.socket_bandwidth_bytes_per_s == 22e9  # Sapphire Rapids, model 143


def test_nodes_that_were_dumped_into_one_file_are_described_by_the_first() -> None:
    node = '<cpu host_hash="{0}" numaid="0"><pci busid="{1}"><gpu dev="0"/></pci></cpu>'
    text = f"<system>{node.format('0x1', '0000:01:00.0')}{node.format('0x2', '0000:02:00.0')}</system>"
    assert read_nccl_xml(text).num_accelerators == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("<system>\n<cpu>\n</system>", "line 3 = '</system>': must be XML: mismatched tag"),
        ('<!DOCTYPE x [<!ENTITY a "b">]><system/>', "must have no document type"),
        ("<graphs/>", "line 1 = 'graphs': .* nearest legal value: system"),
        ("<system><gpu dev='x'/></system>", "line 1 = 'x': must be a whole number: dev of <gpu>"),
        ("<system>\n<gpu dev='0'/>\n<gpu dev='0'/></system>", "line 3 = 0: is the number of another gpu"),
        ("<system/>", "there must be one"),
        ("<system>" + "<pci>" * 100, "nested deeper than 64"),
        ("<system><pci link_speed='fast'><gpu dev='0'/></pci></system>", "must be a rate such as 16.0 GT/s"),
        ("<system><pci><nvlink/></pci><gpu dev='0'/></system>", "must hold no nvlink; nearest legal value: gpu"),
    ],
)
def test_what_is_not_whole_is_refused_with_its_line(text: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        read_nccl_xml(text)
