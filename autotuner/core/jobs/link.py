"""A link: what one accelerator can send over it, and what a profile timed on it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Self

from autotuner.core import check

__all__ = ["CollectiveKind", "Link", "MeasuredCollective"]

CollectiveKind = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCollective:
    """What one kind of collective among so many ranks of this very machine takes: a start, and a time per byte.

    Attributes:
        s_per_byte: Per byte of the whole tensor.
    """

    kind: CollectiveKind
    num_ranks: int
    start_s: float
    s_per_byte: float

    def __post_init__(self) -> None:
        check.non_negative(self, "start_s", "s_per_byte")


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What one accelerator can send, one direction, while all others send too.

    Attributes:
        name: What answers call it.
        bandwidth_bytes_per_s: What the maker states.
        latency_s: One step of a collective over it.
        start_s: Before a collective's first step.
        ramp_s: How long a long message takes to fill the link's pipeline (``costmodel.collectives``).
        efficiency: Share of the bandwidth that long messages reach; 0.74 to 0.95 where it was published.
        multicast_efficiency: Share of it where the switches copy and add (NVLink SHARP); 0 where they cannot.
        congestion: Exponent by which times grow with the number of nodes; 0 for a network that does not slow down.
        mesh_peers: Where no switch joins a node, the others that each get an equal part of the bandwidth: 3 in a node
            of 4. A group of two uses one such part. 0 behind a switch.
        measured: Collectives as a profile of this machine timed them, in the place of all that; empty without one.
        source: Where and when a profile measured it; empty: its maker and the catalog say all that.
    """

    name: str
    bandwidth_bytes_per_s: float
    latency_s: float
    start_s: float = 0.0
    ramp_s: float = 0.0
    efficiency: float = 0.8
    multicast_efficiency: float = 0.0
    congestion: float = 0.0
    mesh_peers: int = 0
    measured: tuple[MeasuredCollective, ...] = ()
    source: str = ""

    def __post_init__(self) -> None:
        check.positive(self, "bandwidth_bytes_per_s", "efficiency")
        check.fraction(self, "efficiency", "multicast_efficiency")
        check.non_negative(self, "latency_s", "start_s", "ramp_s", "congestion", "mesh_peers")

    def with_bandwidth(self, bandwidth_bytes_per_s: float) -> Self:
        """The link with another bandwidth; what was timed on it takes as much longer per byte, and starts as fast."""
        slower = self.bandwidth_bytes_per_s / bandwidth_bytes_per_s
        timed = tuple(replace(line, s_per_byte=slower * line.s_per_byte) for line in self.measured)
        return replace(self, bandwidth_bytes_per_s=bandwidth_bytes_per_s, measured=timed)
