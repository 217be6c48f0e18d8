"""Topologies that schedulers and drivers print."""

from __future__ import annotations

import pytest

from autotuner.catalog.hardware import load_cluster, load_link
from autotuner.catalog.topology.nccl_xml import read_nccl_xml
from autotuner.catalog.topology.nvidia_smi import read_nvidia_smi
from autotuner.catalog.topology.read import read_topology
from autotuner.catalog.topology.slurm import names_of, read_slurm_conf, read_slurm_yaml
from autotuner.catalog.topology.topology import FileKind, Topology, merged, on_cluster
from autotuner.core.errors import InvalidInput
from autotuner.core.network import PathKind, Wiring
from tests.unit.catalog.topology import published
from tests.unit.catalog.topology.published import (
    A100_PAIRS,
    DGX_A100,
    DGX_H100,
    HYPERPOD_YAML,
    IBM_H100,
    NERSC_A100,
    SLURM_BLOCKS,
    SLURM_TREE,
    SOPERATOR_YAML,
)


# ---------------------------------------------------------------- The XML of `NCCL_TOPO_FILE`
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
        ('<!DOCTYPE x [<!ENTITY a "b">]><system/>', "is the name in a DOCTYPE line"),
        ("<graphs/>", "line 1 = 'graphs': .* nearest legal value: system"),
        ("<system><gpu dev='x'/></system>", "line 1 = 'x': must be a whole number, because it is the dev of <gpu>"),
        ("<system>\n<gpu dev='0'/>\n<gpu dev='0'/></system>", "line 3 = 0: is already the number of another gpu"),
        ("<system/>", "is the last element of the file, but a topology of NCCL must have at least one gpu element"),
        ("<system>" + "<pci>" * 100, "has at most 64 levels"),
        ("<system><pci link_speed='fast'><gpu dev='0'/></pci></system>", "must be the rate of PCIe, such as 16.0 GT/s"),
        (
            "<system><pci><nvlink/></pci><gpu dev='0'/></system>",
            "must not contain an nvlink element, because only a gpu element may contain one",
        ),
    ],
)
def test_an_incomplete_file_is_refused_with_its_line(text: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        read_nccl_xml(text)


# ---------------------------------------------------------------- read
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (published.DGX_H100, FileKind.NVIDIA_SMI),
        (published.IBM_H100, FileKind.NCCL_XML),
        ("\ufeff" + published.SLURM_TREE, FileKind.SLURM_CONF),
        (published.SLURM_BLOCKS, FileKind.SLURM_CONF),
        (published.SOPERATOR_YAML, FileKind.SLURM_YAML),
        ('{"torus": [2, 2], "name": "ours"}', FileKind.JSON),
    ],
)
def test_the_kind_of_a_file_is_seen_by_its_look(text: str, kind: FileKind) -> None:
    assert read_topology(text).kind is kind


def test_json_says_a_network_a_wiring_or_both() -> None:
    network = read_topology('{"name": "ours", "num_rails": 8, "tiers": []}')
    wiring = read_topology('{"name": "ours", "sockets": [[0, 1], [2, 3]]}')
    both = read_topology('{"network": {"name": "ours"}, "wiring": {"name": "ours"}}')
    assert [network.network is None, network.wiring is None] == [False, True]
    assert [wiring.network is None, wiring.wiring is None] == [True, False]
    assert both.network is not None
    assert both.wiring is not None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("hello", "line 1 = 'hello': must be the output of nvidia-smi topo -m"),
        ("", "line 1 = ''"),
        ('{"network": ', "line 1 = .*must be JSON"),
        ('{"network": {"name": "x", "tiers": [{"name": "leaf", "nodes": 3}]}}', r"network\.tiers\.0\.nodes = 3"),
        (
            '{"network": {"name": "x"}, "wires": 1}',
            "wires = 1: is not a known field; the fields are network and wiring",
        ),
        (
            "x" * 2_000_001,
            "has 2,000,001 characters, but at most 2,000,000 can be read",
        ),
    ],
)
def test_a_text_of_no_known_kind_is_refused(text: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        read_topology(text)


# ---------------------------------------------------------------- Slurm's `topology.conf` and `topology.yaml`
def _sizes(topology: Topology) -> list[tuple[str, int]]:
    assert topology.network is not None
    return [(tier.name, tier.nodes_per_switch) for tier in topology.network.tiers]


def test_switches_and_blocks_are_tiers_of_the_sizes_that_are_plugged_or_planned() -> None:
    topology = read_slurm_conf(SLURM_TREE)
    assert _sizes(topology) == [("leaf", 6), ("spine", 18)]
    assert topology.nodes == tuple(f"dev{number}" for number in range(18))
    assert "does not say" in topology.notes[0]
    topology = read_slurm_conf(SLURM_BLOCKS)
    assert _sizes(topology) == [("block", 18), ("4 blocks", 72)]
    assert (topology.nodes[0], topology.nodes[-1]) == ("node01", "node72")
    assert _sizes(read_slurm_conf("BlockName=b Nodes=n[1-18]\nBlockSizes=16,32")) == [("block", 18), ("2 blocks", 36)]
    topology = read_slurm_conf("SwitchName=a Nodes=n[0-3]\nSwitchName=b Nodes=n[4-5]\nSwitchName=c Switches=a,b")
    assert _sizes(topology) == [("leaf", 4), ("spine", 8)]
    assert "2 to 4 nodes" in topology.notes[1]
    text = "SwitchName=a Nodes=n[0,2]\nSwitchName=b Nodes=n[1,3]\nSwitchName=c Switches=b,a LinkSpeed=5"
    assert read_slurm_conf(text).nodes == ("n1", "n3", "n0", "n2")


def test_the_default_topology_of_a_yaml_file_is_read_and_a_flat_one_is_one_switch() -> None:
    assert _sizes(read_slurm_yaml(HYPERPOD_YAML)) == [("leaf", 2), ("spine", 4)]
    several = read_slurm_yaml(SOPERATOR_YAML)
    assert several.network is not None
    assert several.network.name == "eth-cpu"
    assert several.notes[-1].endswith("ib-gpu")
    blocks = read_slurm_yaml(SOPERATOR_YAML.replace("default: true", "default: false"))
    assert _sizes(blocks) == [("block", 8), ("2 blocks", 16)]
    network = read_slurm_yaml("- topology: plain\n  flat: true\n").network
    assert network is not None
    assert network.tiers == ()


def test_host_lists_keep_their_zeros_and_take_several_brackets() -> None:
    assert names_of("n[08-10],login1", "line 1") == ("n08", "n09", "n10", "login1")
    assert names_of("r[0-1]n[0,2]", "line 1") == ("r0n0", "r0n2", "r1n0", "r1n2")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SwitchName=s0 Node=x", "line 1 = 'Node=x': .* nearest legal value: Nodes"),
        ("SwitchName=s0 Nodes=x\n\nSwitchName=s0 Nodes=y", "line 3 = 's0': must be defined only once; line 1"),
        ("SwitchName=s0 Nodes=x\nSwitchName=s1 Nodes=x", "line 2 = 'x': must be connected to one switch only; line 1"),
        ("SwitchName=s0 Switches=leef\nSwitchName=leaf Nodes=x", "line 1 = 'leef': .* nearest legal value: leaf"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a", "must not be below itself, directly or through"),
        ("SwitchName=a Nodes=n[3-1]", r"line 1 = '3-1': must be a range .* nearest legal value: 1-3"),
        ("SwitchName=a Nodes=n[0-999999999]", "of fewer than 200,000"),
        ("SwitchName=a Nodes=n[0-999]m[0-999]", "at most 200,000 names"),
        ("BlockName=b Nodes=n[0-3]\nBlockSizes=4,6", "block_sizes = 6: must be a multiple of the first block size, 4"),
        ("BlockName=b Nodes=n0\nSwitchName=s Nodes=n1", "must not be in a file that also has switches"),
        ("SwitchName=a Nodes=x \\\n", None),
    ],
)
def test_a_conf_file_that_slurm_would_refuse_is_refused_with_its_line(text: str, told: str | None) -> None:
    if told is None:
        assert read_slurm_conf(text).nodes == ("x",)
        return
    with pytest.raises(InvalidInput, match=told):
        read_slurm_conf(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            HYPERPOD_YAML.replace("switches:", "switch:"),
            "line 4, switches: is required; rename the field switch to switches",
        ),
        (HYPERPOD_YAML.replace("  tree:", "  tre:"), "line 1 = 'tre': .* nearest legal value: tree"),
        (
            HYPERPOD_YAML.replace("nodes: compute-1", "node: compute-1"),
            "line 7 = 'node': .* nearest legal value: nodes",
        ),
        ("- topology: a\n  tree: [", "line 3 = .*must be YAML"),
        ("topology: a", "line 1 = '': must be a list"),
        ("- topology: a\n  block:\n    block_sizes: [x]\n    blocks: []", "line 3 = 'x': must be a number of nodes"),
    ],
)
def test_a_yaml_file_that_slurm_would_refuse_is_refused_with_its_line(text: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        read_slurm_yaml(text)


# ---------------------------------------------------------------- topology
def test_a_node_and_a_network_may_come_from_two_files_that_do_not_say_the_same() -> None:
    both = merged([read_topology(published.DGX_A100), read_topology(published.SLURM_TREE)])
    cluster = on_cluster(both, load_cluster("a100:64"))
    assert cluster.network is not None
    assert cluster.wiring is not None
    assert cluster.network.tiers[0].nodes_per_switch == 6
    assert cluster.intra_node_link == load_link("nvlink3")
    with pytest.raises(InvalidInput, match="give only one file"):
        merged([read_topology(published.DGX_A100), read_topology(published.NERSC_A100)])
    with pytest.raises(InvalidInput, match="must be 4, the accelerators of a node in the file; nearest legal value: 4"):
        on_cluster(read_topology(published.NERSC_A100), load_cluster("a100:16"))
    with pytest.raises(InvalidInput, match="num_nodes = 32: must be at most 18, the number of nodes"):
        on_cluster(read_topology(published.SLURM_TREE), load_cluster("h100:256"))


def test_ports_are_as_fast_as_the_file_says_and_accelerators_that_share_few_share_their_rate() -> None:
    cluster = on_cluster(read_topology(published.IBM_H100), load_cluster("h100:16"))
    assert cluster.inter_node_link.bandwidth_bytes_per_s == 25e9
    assert cluster.inter_node_link.name == "200 Gbit/s ports"
    text = "GPU0 GPU1 NIC0\nGPU0 X NV18 PHB\nGPU1 NV18 X PHB\nNIC0 PHB PHB X"
    cluster = on_cluster(read_topology(text), load_cluster("h100:4x2"))
    assert cluster.network is not None
    assert cluster.network.ports_per_node == 1


def test_a_mesh_of_nvlinks_and_plain_pcie_change_the_link_within_a_node() -> None:
    mesh = on_cluster(read_topology(published.NERSC_A100), load_cluster("a100:2x4"))
    assert mesh.intra_node_link.mesh_peers == 3
    plain = read_topology("GPU0 GPU1\nGPU0 X PHB\nGPU1 PHB X")
    assert on_cluster(plain, load_cluster("a100:2x2")).intra_node_link == load_link("pcie4")


def test_blocks_are_nvlink_domains_where_the_accelerator_has_domains_of_nodes() -> None:
    blocks = read_topology(published.SLURM_BLOCKS.replace("18,72", "18,36"))
    assert on_cluster(blocks, load_cluster("gb200:288")).nvlink_domain == 72
    assert on_cluster(blocks, load_cluster("h100:512")).nvlink_domain is None


# ---------------------------------------------------------------- nvidia smi
def _smi_wiring(text: str) -> Wiring:
    wiring = read_nvidia_smi(text).wiring
    assert wiring is not None
    return wiring


def test_a_dgx_a100_has_a_pair_of_gpus_and_of_ports_below_each_pair_of_switches() -> None:
    wiring = _smi_wiring(DGX_A100)
    assert wiring.nvlink_groups == (tuple(range(8)),)
    assert wiring.switches == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert [(port.name, port.nearest) for port in wiring.ports[:3]] == [
        ("mlx5_0", (0, 1)),
        ("mlx5_1", (0, 1)),
        ("mlx5_2", (2, 3)),
    ]
    assert len(wiring.ports) == 8  # the ports of storage are near to none


def test_a_dgx_has_its_ports_near_its_gpus_and_heads_that_a_terminal_underlines_are_read() -> None:
    wiring = _smi_wiring(DGX_H100)
    assert wiring.sockets == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert [port.name for port in wiring.ports] == [f"mlx5_{number}" for number in (0, 3, 4, 5, 6, 9, 10, 11)]
    assert [port.nearest for port in wiring.ports] == [(number,) for number in range(8)]
    assert _smi_wiring(DGX_H100.replace("\tGPU0", "\t\x1b[4mGPU0", 1).replace("NUMA Aff", "\x1b[0mNUMA Aff")).sockets


def test_nvlinks_that_are_few_are_a_mesh_bridges_or_pass_on_what_others_send() -> None:
    cells = {f"GPU{one}": ["X" if one == other else "NV4" for other in range(4)] for one in range(4)}
    text = "\t" + "\t".join(cells) + "\n" + "\n".join(f"{gpu}\t" + "\t".join(row) for gpu, row in cells.items())
    assert read_nvidia_smi(text).mesh_peers == 3
    assert read_nvidia_smi(DGX_A100).mesh_peers == 0
    wiring = _smi_wiring(A100_PAIRS)
    assert wiring.nvlink_groups == wiring.sockets == ((0, 1), (2, 3))
    assert wiring.limiting_path(range(4)) is PathKind.SOCKETS
    text = "GPU0 GPU1 GPU2\nGPU0 X NV1 PHB\nGPU1 NV1 X NV1\nGPU2 PHB NV1 X"
    topology = read_nvidia_smi(text)
    assert topology.wiring is not None
    assert topology.wiring.nvlink_groups == ((0, 1, 2),)
    assert "not join every pair" in topology.notes[0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("GPU0 GPU1\nGPU0 X NVL\nGPU1 NVL X", "line 2 = 'NVL': must be one of X, PIX"),
        (
            "GPU0 GPU1\nGPU0 X PIX\nGPU1 PXB X",
            "line 2 = 'PIX': must be the same from GPU0 to GPU1 as from GPU1 to GPU0, .* PXB",
        ),
        ("GPU0 GPU1\nGPU0 X PIX", "line 1 = 'GPU1': is a column of the table, but no line begins with this name"),
        ("GPU0 GPU1\nGPU0 X\nGPU1 PIX X", "line 2 = 'GPU0 X': must have 2 cells"),
        ("GPU0 GPU2\nGPU0 X PIX\nGPU2 PIX X", "must be all numbers of GPUs from 0 on without a gap"),
    ],
)
def test_a_matrix_that_is_not_whole_is_refused_with_its_line(text: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        read_nvidia_smi(text)
