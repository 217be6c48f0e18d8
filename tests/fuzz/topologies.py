"""Descriptions of networks and nodes: what nvidia-smi prints, NCCL's XML, Slurm's files, names of the catalog."""

from __future__ import annotations

from collections.abc import Callable

from autotuner.catalog.networks import load_preset
from autotuner.catalog.topology.nccl_xml import read_nccl_xml
from autotuner.catalog.topology.nvidia_smi import read_nvidia_smi
from autotuner.catalog.topology.read import read_topology
from autotuner.catalog.topology.slurm import read_slurm_conf, read_slurm_yaml
from autotuner.catalog.topology.topology import Topology
from autotuner.core.codec import from_plain, to_plain
from autotuner.core.network import Network, Wiring
from tests.fuzz.target import Target, text_of
from tests.unit.catalog.topology import published


def _reading(read: Callable[[str], Topology]) -> Callable[[bytes], None]:
    """What was read can be stored, and names only accelerators that the node has."""

    def check(data: bytes) -> None:
        topology = read(text_of(data))
        if topology.network is not None:
            assert from_plain(Network, to_plain(topology.network)) == topology.network
        if topology.wiring is not None:
            assert from_plain(Wiring, to_plain(topology.wiring)) == topology.wiring
            if topology.num_accelerators is not None:
                topology.wiring.require_accelerators(topology.num_accelerators)
                topology.wiring.limiting_path(range(topology.num_accelerators))

    return check


def _network(data: bytes) -> None:
    name, _, count = text_of(data).partition(":")
    num_nodes = int(count[:5]) if count[:5].isascii() and count[:5].isdigit() else 1
    load_preset(name).joining(num_nodes or 1).require_nodes(num_nodes or 1)


TARGETS = (
    Target(
        name="nvidia_smi",
        check=_reading(read_nvidia_smi),
        seeds=(published.DGX_A100.encode(), published.DGX_H100.encode(), published.A100_PAIRS.encode()),
        words=("GPU0", "GPU1", "NIC0", "NV4", "NV18", "PIX", "PXB", "PHB", "NODE", "SYS", " X ", "\t", "CPU Affinity"),
    ),
    Target(
        name="nccl_xml",
        check=_reading(read_nccl_xml),
        seeds=(published.NERSC_A100.encode(), published.IBM_H100.encode()),
        words=(
            *("<pci>", "</pci>", "<gpu dev='0'/>", "<nvlink/>", "<net/>", "busid", "<!DOCTYPE", "&a;"),
            'link_width="16"',
        ),
    ),
    Target(
        name="slurm_conf",
        check=_reading(read_slurm_conf),
        seeds=(published.SLURM_TREE.encode(), published.SLURM_BLOCKS.encode()),
        words=("SwitchName=", "Nodes=", "Switches=", "BlockName=", "BlockSizes=", "[0-", "]", "\\\n", "#", "[0-99999]"),
    ),
    Target(
        name="slurm_yaml",
        check=_reading(read_slurm_yaml),
        seeds=(published.HYPERPOD_YAML.encode(), published.SOPERATOR_YAML.encode()),
        words=("- topology: ", "tree:", "block:", "flat: true", "switches:", "children: ", "&a", "*a", "[", "{", "  "),
    ),
    Target(
        name="any",
        check=_reading(read_topology),
        seeds=(
            b'{"network": {"name": "ours", "tiers": [{"name": "leaf", "nodes_per_switch": 4}]}}',
            b'{"name": "ours", "nvlink_groups": [[0, 1], [2, 3]], "ports": [{"name": "mlx5_0", "nearest": [0]}]}',
            published.SLURM_TREE.encode(),
        ),
        is_json=True,
    ),
    Target(name="network", check=_network, seeds=(b"torus-3d:64", b"fat-tree-2to1:16", b"nvl72:36", b"torus-2d:7")),
)
