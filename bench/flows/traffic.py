"""Traffic of all groups of an axis at once: rings, all-to-alls and sends, rank by rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotuner.core.choices import RankPlacement
from autotuner.core.placement import Spread
from bench.flows.streams import Floats, Integers, Streams
from bench.flows.wires import Wires


@dataclass(frozen=True, eq=False, kw_only=True)
class AxisTraffic:
    """The groups of one axis on the wires of a cluster."""

    wires: Wires
    """Of the cluster."""
    spread: Spread
    """How the groups lie in the numbers of ranks."""
    placement: RankPlacement = RankPlacement.BLOCK
    """How ranks are dealt to nodes."""
    sorts_ring: bool = True
    """Rings pass nodes one after the other, a ring through each port, as NCCL's do; else one ring passes the ranks in
    the order of their numbers."""

    def rings(self) -> Streams:
        """A stream per group, whose progress by one moves a byte over each edge of its ring."""
        members = self._members()
        if not self.sorts_ring:
            return self._along(members, np.roll(members, -1, axis=1), np.ones(members.shape))
        members = np.sort(members, axis=1)
        node = members // self.wires.cluster.accelerators_per_domain
        channels, first = _of_nodes(node)
        return self._channels(members, channels, first)

    def all_to_alls(self) -> Streams:
        """A stream per rank, whose progress by one moves an equal share of a byte to each rank of its group."""
        members = self._members()
        num_groups, size = members.shape
        source = np.repeat(members[:, :, None], size, axis=2).ravel()
        target = np.repeat(members[:, None, :], size, axis=1).ravel()
        stream = np.repeat(np.arange(num_groups * size), size)
        shares = np.full(len(stream), 1 / size)
        return self.wires.passed(stream, source, target, shares, num_groups * size)

    def sends(self) -> Streams:
        """A stream per rank but the last of each group, which sends to the next."""
        members = self._members()
        source, target = members[:, :-1].ravel(), members[:, 1:].ravel()
        stream = np.arange(len(source))
        return self.wires.passed(stream, source, target, np.ones(len(stream)), len(stream))

    # ------------------------------------------------------------ where ranks lie
    def _members(self) -> Integers:
        """Accelerators of each group's ranks, in the order of rank numbers, of shape (groups, ranks)."""
        size, stride = self.spread
        cluster = self.wires.cluster
        starts = np.arange(0, cluster.world_size, size * stride)[:, None] + np.arange(stride)
        ranks = starts.reshape(-1, 1) + stride * np.arange(size)
        if self.placement == RankPlacement.BLOCK:
            return ranks
        return ranks % cluster.num_nodes * cluster.accelerators_per_node + ranks // cluster.num_nodes

    # ------------------------------------------------------------ rings
    def _along(self, source: Integers, target: Integers, weight: Floats) -> Streams:
        stream = np.repeat(np.arange(len(source)), source.shape[1])
        return self.wires.passed(stream, source.ravel(), target.ravel(), weight.ravel(), len(source))

    def _channels(self, members: Integers, channels: int, first: Integers) -> Streams:
        """Rings through the first ranks of each node, through the second ones ...; on a torus in both directions."""
        both = bool(self.wires.network.torus)
        parts = []
        for channel in range(channels):
            ring = np.take_along_axis(members, first + channel, axis=1)
            after = np.roll(ring, -1, axis=1)
            share = np.full(ring.shape, (0.5 if both else 1.0) / channels)
            parts.append(self._along(ring, after, share))
            if both:
                parts.append(self._along(after, ring, share))
        return Streams.joined(parts)


def _of_nodes(node: Integers) -> tuple[int, Integers]:
    """Ranks that each node has of a group at least, and the places of the first of each node.

    Groups lie on as many nodes each, or are cut at every place where any group changes nodes.
    """
    changes = np.flatnonzero((node[:, 1:] != node[:, :-1]).any(axis=0)) + 1
    first = np.concatenate([[0], changes])
    channels = int(np.diff(np.append(first, node.shape[1])).min())
    return channels, np.repeat(first[None, :], len(node), axis=0)
