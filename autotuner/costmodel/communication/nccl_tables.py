"""Constants of NCCL's tuning model: latencies in microseconds, bandwidths in GB/s, by algorithm and protocol.

Source: NCCL 2.28.3, src/graph/tuning.cc (``ncclTunerConstantsDefaults``, ``treeCorrectionFactor``, ``nvlsEfficiency``)
and src/graph/topo.h (what it takes a link for). Triples are LL, LL128, Simple.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import TypeAlias

Triple: TypeAlias = tuple[float, float, float]
"""LL, LL128, Simple; or one node, two, and more."""


class Generation(IntEnum):
    """GPUs that NCCL tells apart, by their compute capability: 7.x, 8.x, 9.x, and 10 and above."""

    VOLTA = 0
    AMPERE = 1
    HOPPER = 2
    BLACKWELL = 3


class NcclAlgorithm(StrEnum):
    """Ways of bytes, as NCCL names them in ``NCCL_ALGO``; PAT is left out, which only lone GPUs of nodes gather by."""

    TREE = "tree"
    RING = "ring"
    COLLNET_DIRECT = "collnetdirect"
    COLLNET_CHAIN = "collnetchain"
    NVLS = "nvls"
    NVLS_TREE = "nvlstree"


class NcclProtocol(IntEnum):
    """The place of a protocol in a triple."""

    LL = 0
    LL128 = 1
    SIMPLE = 2

    def __str__(self) -> str:
        return ("LL", "LL128", "Simple")[self]


_A = NcclAlgorithm

BASE_US: Mapping[NcclAlgorithm, Triple] = {
    _A.TREE: (6.8, 14.0, 8.4),
    _A.RING: (6.6, 14.0, 8.4),
    _A.COLLNET_DIRECT: (0.0, 0.0, 0.0),
    _A.COLLNET_CHAIN: (0.0, 0.0, 0.0),
    _A.NVLS: (0.0, 0.0, 0.0),
    _A.NVLS_TREE: (0.0, 0.0, 0.0),
}
"""Before the first step."""

INSIDE_US: Mapping[NcclAlgorithm, Triple] = {
    _A.TREE: (0.6, 1.25, 4.0),
    _A.RING: (0.6, 1.9, 3.4),
    _A.COLLNET_DIRECT: (0.0, 0.0, 3.7),
    _A.COLLNET_CHAIN: (0.0, 0.0, 2.8),
    _A.NVLS: (0.0, 0.0, 25.0),
    _A.NVLS_TREE: (0.0, 0.0, 25.0),
}
"""A step over NVLink."""

PCIE_US: Mapping[NcclAlgorithm, Triple] = {
    _A.TREE: (1.0, 1.9, 4.0),
    _A.RING: (1.0, 2.5, 5.7),
    _A.COLLNET_DIRECT: (0.0, 0.0, 3.7),
    _A.COLLNET_CHAIN: (0.0, 0.0, 2.8),
    _A.NVLS: (0.0, 0.0, 0.0),
    _A.NVLS_TREE: (0.0, 0.0, 0.0),
}
"""A step over PCIe."""

NETWORK_US: Mapping[NcclAlgorithm, Triple] = {
    _A.TREE: (5.0, 8.5, 14.0),
    _A.RING: (2.7, 4.0, 14.0),
    _A.COLLNET_DIRECT: (0.0, 0.0, 31.0),
    _A.COLLNET_CHAIN: (0.0, 0.0, 30.0),
    _A.NVLS: (0.0, 0.0, 18.0),
    _A.NVLS_TREE: (0.0, 0.0, 14.0),
}
"""A step over the network."""

LL_GB_PER_S: tuple[Triple, ...] = ((39.0, 39.0, 20.4), (87.7, 22.5, 19.0), (141.0, 45.0, 35.0), (282.0, 90.0, 70.0))
"""What LL reaches at most: on one node by the generation of the GPUs; on two and on more by the maker of the hosts'
processors, of which the first row stands for Intel and the second for AMD."""

RING_LL128_GB_PER_S: tuple[Triple, ...] = ((20.0,) * 3, (20.0,) * 3, (36.7,) * 3, (73.4,) * 3)
TREE_LL128_GB_PER_S: tuple[Triple, ...] = ((20.0,) * 3, (20.0,) * 3, (36.7, 36.7, 29.0), (55.6, 31.67, 20.0))
TREE_GB_PER_S: tuple[Triple, ...] = ((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (38.7, 41.4, 36.0), (70.0, 42.8, 24.0))
TREE_SWITCHED_GB_PER_S: tuple[Triple, ...] = (*TREE_GB_PER_S[:2], (0.0, 57.7, 45.5), (0.0, 96.0, 43.1))
"""What one channel reaches at most, by generation, on one node, two, and more: rings and trees with flags in every 128
bytes, trees, and trees between nodes whose switches add."""

NVLS_EFFICIENCY = (0.0, 0.0, 0.85, 0.74)
"""Share of NVLink that switches which add reach, by generation."""

TREE_SHARES: tuple[tuple[float, ...], ...] = (
    (1.0, 1.0, 1.0, 1.0, 0.9, 0.8, *(0.7,) * 4, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, *(1.0,) * 4),
    (*(1.0,) * 5, 0.9, 0.8, 0.8, 0.8, 0.7, *(0.6,) * 6, 0.8, 0.9, 0.9, 0.9, 0.9, 1.0, 1.0),
    (*(0.9,) * 7, 0.8, 0.7, 0.6, 0.6, *(0.5,) * 4, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9),
)
"""What trees reach of their bandwidth at 64 B, 128 B ... 256 MB, by protocol: measured, and no law."""

SUSTAINED_SHARE = (0.8, 0.8, 0.824, 0.802)
"""What NCCL takes of NVLink's nominal bandwidth, by generation: 20, 20, 20.6 and 40.1 of 25, 25, 25 and 50 GB/s."""

CHANNEL_GB_PER_S = (20.0, 20.0, 30.0, 45.0)
"""What a channel takes of NVLink inside a node, by generation: 12 channels of 20 on an A100, 12 of 30 on an H100."""

MOST_CHANNELS = (32, 32, 16, 16)
"""Channels that rings are searched for at most, by generation."""
