"""Number of ranks of a group below one switch or on one node.

Ranks are numbered in blocks of ``num_ranks * stride`` ranks, and each block contains ``stride`` groups. A part of the
cluster is a window of consecutive rank numbers. The traffic that leaves the window depends on how many ranks of a block
it cuts off at each end. A few divisions give this number, and the busiest window is the maximum over all distinct
windows.

Ranks are placed on nodes in blocks or cyclically. Both placements are regular, so that a few divisions give the result
for columns of groups. tests/unit/costmodel/communication/flows.py enumerates the ranks instead, and tests compare both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from autotuner.core.columns import Booleans, Floats, Integers


@dataclass(frozen=True, eq=False, kw_only=True)
class Windows:
    """A job's ranks, cut into parts of ``size`` consecutive rank numbers, to count the traffic that leaves a part.

    A part is a node, or the nodes below one switch. The ranks are also divided into communication groups, with one row
    per layout.
    """

    num_ranks: Integers
    """Number of ranks of one group."""
    stride: Integers
    """Distance between the rank numbers of neighbours in a group."""
    size: int
    """Number of ranks in one part of the cluster."""
    world_size: int
    """Number of ranks of the job. The last part may have fewer ranks than the others."""

    def rings_out(self) -> Floats:
        """Return the largest number of rings that leave one part of the cluster, over all parts."""
        return self._fullest(_rings_out)

    def sends_out(self) -> Floats:
        """Return the largest number of ranks in one part of the cluster that send to a later part, over all parts.

        Each rank sends to the next rank of its group.
        """
        return self._fullest(_sends_out)

    def shares_out(self) -> Floats:
        """Return the all-to-all bytes that leave the busiest part of the cluster, divided by the bytes of one rank."""
        return self._fullest(_shares_out)

    def _fullest(self, count: Callable[[Integers, Integers, Integers, Integers], Floats]) -> Floats:
        both = np.stack([self.num_ranks, self.stride])
        few, which = np.unique(both, axis=1, return_inverse=True)
        starts = np.arange(0, self.world_size, self.size)[None, :]
        stops = np.minimum(starts + self.size, self.world_size)
        found: Floats = count(few[0][:, None], few[1][:, None], starts, stops).max(axis=1)
        return found[which.reshape(-1)]


def _rings_out(num_ranks: Integers, stride: Integers, starts: Integers, stops: Integers) -> Floats:
    block = num_ranks * stride
    before, behind, is_within = _cut_off(block, starts, stops)
    first, length = starts % block, stops - starts
    # groups that lie inside the part
    whole = np.clip(np.minimum(stride, first + length - block + stride) - first, 0, None)
    within = np.minimum(stride, length) - whole
    ends = _cut(num_ranks, stride, before) + _cut(num_ranks, stride, behind)
    return np.where(is_within, within, ends).astype(np.float64)


def _sends_out(num_ranks: Integers, stride: Integers, starts: Integers, stops: Integers) -> Floats:
    cut = _cut(num_ranks, stride, stops % (num_ranks * stride))
    return np.asarray(np.minimum(cut, stops - starts), dtype=np.float64)


def _shares_out(num_ranks: Integers, stride: Integers, starts: Integers, stops: Integers) -> Floats:
    before, behind, is_within = _cut_off(num_ranks * stride, starts, stops)
    ends = _sent_from(num_ranks, stride, before) + _sent_from(num_ranks, stride, behind)
    pairs = np.where(is_within, _sent_from(num_ranks, stride, stops - starts), ends)
    shares: Floats = pairs / num_ranks
    return shares


def _cut_off(block: Integers, starts: Integers, stops: Integers) -> tuple[Integers, Integers, Booleans]:
    """Return the numbers of ranks of a window before its first and after its last block border.

    The third column is True where the window has no border.
    """
    return -starts % block, stops % block, (starts // block == (stops - 1) // block) & (stops % block > 0)


def _cut(num_ranks: Integers, stride: Integers, length: Integers) -> Integers:
    """Return the number of groups of a block that have ranks both among its first ``length`` ranks and after them."""
    groups: Integers = np.minimum(np.minimum(stride, length), num_ranks * stride - length)
    return groups


def _sent_from(num_ranks: Integers, stride: Integers, length: Integers) -> Integers:
    """Return the number of pairs of one group's ranks with one rank inside and one outside a run of a block's ranks."""
    each, more = np.divmod(length, stride)
    pairs: Integers = more * (each + 1) * (num_ranks - each - 1) + (stride - more) * each * (num_ranks - each)
    return pairs


@dataclass(frozen=True, eq=False, kw_only=True)
class Places:
    """The nodes on which the ranks of communication groups lie, one row per layout.

    The ranks of a group have evenly spaced numbers. A *part* of the cluster is one node, or several consecutive nodes
    below one switch.
    """

    num_ranks: Integers
    """Number of ranks of one group."""
    stride: Integers
    """Distance between the rank numbers of neighbours in a group."""
    is_cyclic: Booleans
    """True if rank i lies on node ``i % num_nodes``; otherwise on node ``i // ranks_per_node``."""
    num_nodes: int
    """Number of nodes of the job."""
    ranks_per_node: int
    """Number of ranks of each node."""
    sorts_ring: bool
    """True if rings visit the nodes one after the other, as NCCL's rings do; otherwise in the order of rank numbers."""

    @property
    def span(self) -> Integers:
        """The number of ranks in a block, which consists of ``stride`` groups. Ranks are numbered block by block."""
        return self.num_ranks * self.stride

    def ranks_below(self, part_nodes: int) -> Integers:
        """Return the smallest number of ranks that a group has in one part of the cluster, ignoring parts without any.

        Args:
            part_nodes: Number of nodes of a part.
        """
        if not self.is_cyclic.any():
            return self._in_blocks(part_nodes)
        return np.where(self.is_cyclic, self._in_turn(part_nodes), self._in_blocks(part_nodes))

    def leave(self, part_nodes: int) -> Booleans:
        """Return a mask over the rows: True where a group's ranks lie in more than one part of ``part_nodes`` nodes."""
        return self.ranks_below(part_nodes) < self.num_ranks

    def num_parts(self, part_nodes: int) -> Integers:
        """Return the number of parts, of ``part_nodes`` nodes each, in which a group has ranks."""
        return -(-self.num_ranks // self.ranks_below(part_nodes))

    def ring_ranks(self, part_nodes: int, *, by_node: bool = False) -> Floats:
        """Return the number of ranks whose network ports one ring can use alone when it leaves a part of the cluster.

        The result is the number of the part's ranks, divided by the number of rings that leave the part.

        Args:
            part_nodes: Number of nodes of a part, in which no row's group lies as a whole.
            by_node: True to count rings that visit the nodes one after the other, even if ``sorts_ring`` is False.
        """
        blocks, below = self._ring_ranks_in_blocks(part_nodes), self.ranks_below(part_nodes).astype(np.float64)
        in_turn = below if self.sorts_ring or by_node else self._ring_ranks_in_turn(part_nodes, below)
        return np.where(self.is_cyclic, in_turn, blocks)

    def ring_steps_out(self, part_nodes: int) -> Floats:
        """Return how many steps of one ring round carry data out of a part of the cluster.

        The last step of the round is not counted.

        Args:
            part_nodes: Number of nodes of a part.
        """
        steps = (self.num_parts(part_nodes) - 1).astype(np.float64)
        if self.sorts_ring or not self.is_cyclic.any():
            return steps
        return np.where(
            self.is_cyclic & self.leave(part_nodes), (self.num_ranks - 1) * self._edges_out(part_nodes), steps
        )

    def share_sent_out(self, part_nodes: int) -> Floats:
        """Return the share of the ranks in a part of the cluster that send to a rank in another part.

        Each rank sends to the next rank of its group.

        Args:
            part_nodes: Number of nodes of a part.
        """
        num_ranks = self.ranks_per_node * part_nodes
        blocks = self._fullest(part_nodes, Windows.sends_out, np.minimum(self.stride, num_ranks) / num_ranks)
        shares = np.where(self.is_cyclic, self._out_of(part_nodes, self.stride), blocks)
        return np.where(self.leave(part_nodes), shares, 0.0)

    def share_scattered_out(self, part_nodes: int) -> Floats:
        """Return the share of all-to-all bytes from ranks in one part of the cluster that goes to ranks in other parts.

        Args:
            part_nodes: Number of nodes of a part.
        """
        shares = (self.num_ranks - self.ranks_below(part_nodes)) / self.num_ranks
        return np.where(self.is_cyclic, shares, self._fullest(part_nodes, Windows.shares_out, shares))

    # ------------------------------------------------------------ blocks
    def _in_blocks(self, part_nodes: int) -> Integers:
        part = self.ranks_per_node * part_nodes
        below = np.clip(np.gcd(part, self.span) // self.stride, 1, self.num_ranks)
        return np.where(part >= self.num_nodes * self.ranks_per_node, self.num_ranks, below)

    def _ring_ranks_in_blocks(self, part_nodes: int) -> Floats:
        part = self.ranks_per_node * part_nodes
        return 1 / self._fullest(part_nodes, Windows.rings_out, np.minimum(self.stride, part) / part)

    def _fullest(self, part_nodes: int, count: Callable[[Windows], Floats], even: Floats) -> Floats:
        """Return the traffic per rank that leaves the busiest part.

        The traffic is even unless borders of parts cut groups.
        """
        part = self.ranks_per_node * part_nodes
        rows = np.flatnonzero((self.span % part != 0) & (part % self.span != 0))
        if not len(rows):
            return even
        windows = Windows(
            num_ranks=self.num_ranks[rows],
            stride=self.stride[rows],
            size=part,
            world_size=self.num_nodes * self.ranks_per_node,
        )
        found = even.copy()
        found[rows] = count(windows) / part
        return found

    # ------------------------------------------------------------ cyclic placement
    def _in_turn(self, part_nodes: int) -> Integers:
        """Return the number of ranks of a group in a part of the cluster, with cyclic placement.

        The nodes of a group are ``stride`` apart. If the group passes all nodes, the distance is the greatest common
        divisor of ``stride`` and the number of nodes.
        """
        nodes, part = self.num_nodes, min(part_nodes, self.num_nodes)
        apart = np.gcd(self.stride, nodes)
        around = np.clip(part // apart, 1, nodes // apart) * np.maximum(1, self.num_ranks * apart // nodes)
        together = np.where(self.span > part, part, np.gcd(part, self.span))
        once = together // self.stride
        below = np.clip(np.where(self.span > nodes, around, once), 1, self.num_ranks)
        return np.where(part == nodes, self.num_ranks, below)

    def _ring_ranks_in_turn(self, part_nodes: int, below: Floats) -> Floats:
        """Return the number of ranks of a part per ring, if rings visit ranks in numbered order and nodes in turn."""
        return np.where(self.span > self.num_nodes, 1 / self._edges_out(part_nodes), below)

    def _edges_out(self, part_nodes: int) -> Floats:
        """Return the share of a ring's edges that leave a part, if rings visit ranks in numbered order."""
        onward, back = self._out_of(part_nodes, self.stride), self._out_of(part_nodes, self.span - self.stride)
        shares = ((self.num_ranks - 1) * onward + back) / self.num_ranks
        return np.where(shares > 0, shares, 1.0)

    def _out_of(self, part_nodes: int, distance: Integers) -> Floats:
        """Return the share of a part's nodes from which a node at this distance is in another part."""
        apart = distance % self.num_nodes
        shares: Floats = np.minimum(np.minimum(apart, self.num_nodes - apart), part_nodes) / part_nodes
        return shares
