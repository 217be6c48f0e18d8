"""Examples of networks, and of files that describe one."""

from __future__ import annotations

from typing import Any

from api.schemas import NetworkList, TopologyReading
from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.networks import load_preset
from autotuner.catalog.topology.read import read_topology

_SLURM = """\
SwitchName=leaf1 Nodes=node[01-04]
SwitchName=leaf2 Nodes=node[05-08]
SwitchName=spine Switches=leaf[1-2]
"""

_PAIRS = """\
        GPU0    GPU1    GPU2    GPU3    CPU Affinity    NUMA Affinity
GPU0     X      NV12    SYS     SYS     0-23            0
GPU1    NV12     X      SYS     SYS     0-23            0
GPU2    SYS     SYS      X      NV12    24-47           1
GPU3    SYS     SYS     NV12     X      24-47           1
"""


def topology_bodies() -> dict[str, Any]:
    """Bodies of ``POST /topologies``."""
    return {
        "a network alone": {"files": [_SLURM]},
        "a network and its nodes, of a cluster": {"files": [_SLURM, _PAIRS], "cluster": "a100:8x4"},
    }


def topology_reading() -> TopologyReading:
    """A leaf and spine of a cluster."""
    return TopologyReading.of((read_topology(_SLURM),), load_cluster("h100:64"))


def network_list() -> NetworkList:
    """A fat tree."""
    return NetworkList(items=(load_preset("fat-tree-2to1"),))
