"""Topology: what a file says of a cluster's network or of its nodes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from autotuner.core.network import Network, Wiring

__all__ = ["MOST_NVLINKS", "FileKind", "Topology", "mesh_note"]

MOST_NVLINKS = 18
"""An accelerator has no more of them: NVLink 4 and 5, NVIDIA Hopper and Blackwell data sheets."""


class FileKind(Enum):
    """Who writes such files."""

    NVIDIA_SMI = "nvidia_smi"
    NCCL_XML = "nccl_xml"
    SLURM_CONF = "slurm_conf"
    SLURM_YAML = "slurm_yaml"
    JSON = "json"
    PRESET = "preset"

    @property
    def in_words(self) -> str:
        """What a sentence calls it."""
        return {
            FileKind.NVIDIA_SMI: "nvidia-smi topo -m",
            FileKind.NCCL_XML: "a topology of NCCL (NCCL_TOPO_FILE)",
            FileKind.SLURM_CONF: "Slurm's topology.conf",
            FileKind.SLURM_YAML: "Slurm's topology.yaml",
            FileKind.JSON: "JSON",
            FileKind.PRESET: "a network of the catalog",
        }[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """What was read of one file.

    Attributes:
        kind: Who writes such files.
        network: What joins nodes; None: the file does not say.
        wiring: What joins the accelerators of a node; None: the file does not say.
        num_accelerators: Of a node; None: the file does not say.
        nodes: Names of the nodes in the order in which those below one switch follow each other; empty: not told.
        mesh_peers: Others that NVLinks join each accelerator to without a switch; 0: by switches, or not told.
        nvlink_domain: Accelerators that one NVLink domain joins across nodes; None: the file does not say.
        notes: What was assumed, evened out or left out, sentences without full stops.
    """

    kind: FileKind
    network: Network | None = None
    wiring: Wiring | None = None
    num_accelerators: int | None = None
    nodes: tuple[str, ...] = ()
    mesh_peers: int = 0
    nvlink_domain: int | None = None
    notes: tuple[str, ...] = ()


def mesh_note(num_links: int, num_peers: int) -> str:
    """What is said of accelerators that NVLink joins without a switch."""
    return f"{num_links} of {num_links * num_peers} NVLinks lead to each other accelerator: no switch joins them"
