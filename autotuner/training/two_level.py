"""Two-level collectives, the groups of ranks they run in, and the choice between them and one level."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor

from autotuner.core.choices import CollectiveAlgorithm, CollectiveHierarchy
from autotuner.core.placement import Nodes
from autotuner.core.stages import num_pieces
from autotuner.training.communicator import (
    BackgroundCommunicator,
    Collectives,
    Communicator,
    TorchCollectives,
    TorchCommunicator,
    background_of,
)
from autotuner.training.pending import Pending
from autotuner.training.ring_and_tree import Ring, Tree

# Two-level collectives: inside nodes, between nodes with as few bytes as there can be, inside nodes again.
#
# A node of L ranks sends M * (N - 1) / N of M bytes to N - 1 others in a reduce-scatter or an all-gather, and twice
# that in an all-reduce, split evenly over its ranks and so over its ports; a flat ring that leaves the node once
# sends almost the whole M over one of them, and up to L times that where neighbours lie on different nodes.
#
# A tensor goes through the levels in pieces: while one is between the nodes, the next one is at work inside them.


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoLevel:
    """``Collectives`` of a group that has equally many ranks on each of its nodes."""

    inside: Collectives
    """Of the group's ranks on this node."""
    between: Communicator
    """Of the ranks that have this one's place on their nodes."""
    order: Sequence[int]
    """The group's ranks sorted by place, then by node."""
    ranks_per_node: int

    def all_reduce(self, tensor: Tensor) -> None:
        """See ``Collectives``."""
        begun = [self._begin_to_sum(piece) for piece in _pieces(tensor.view(-1), self.ranks_per_node)]
        for piece, padded, part, pending in begun:
            pending.wait()
            self.inside.all_gather(padded, part)
            if padded is not piece:
                piece.copy_(padded[: piece.numel()])

    def reduce_scatter(self, part: Tensor, whole: Tensor) -> None:
        """See ``Collectives``."""
        begun = []
        for piece, of_rank in self._columns(part, whole):
            by_place = piece[list(self.order)].view(-1)
            of_place = torch.empty_like(by_place[: by_place.numel() // self.ranks_per_node])
            self.inside.reduce_scatter(of_place, by_place)
            begun.append(self.between.reduce_scatter(of_rank, of_place))
        for pending in begun:
            pending.wait()

    def all_gather(self, whole: Tensor, part: Tensor) -> None:
        """See ``Collectives``."""
        begun = []
        for piece, of_rank in self._columns(part, whole):
            of_place = part.new_empty(piece.numel() // self.ranks_per_node)
            begun.append((piece, of_place, self.between.all_gather(of_place, of_rank)))
        for piece, of_place, pending in begun:
            by_place = piece.new_empty(piece.shape)
            pending.wait()
            self.inside.all_gather(by_place.view(-1), of_place)
            piece[list(self.order)] = by_place

    def _begin_to_sum(self, piece: Tensor) -> tuple[Tensor, Tensor, Tensor, Pending]:
        """Sum a piece inside nodes, and begin to sum this rank's part of it between them."""
        padded = _padded(piece, self.ranks_per_node)
        part = torch.empty_like(padded[: padded.numel() // self.ranks_per_node])
        self.inside.reduce_scatter(part, padded)
        return piece, padded, part, self.between.all_reduce(part)

    def _columns(self, part: Tensor, whole: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Pieces of every rank's part of the whole, a row each, and of this rank's own."""
        num = _num_pieces(whole)
        rows = whole.view(len(self.order), -1)
        return zip(rows.tensor_split(num, dim=1), part.view(-1).tensor_split(num), strict=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Led:
    """``Collectives`` of a group with more ranks on some of its nodes: the first of each node speaks for them all."""

    inside: dist.ProcessGroup
    """The group's ranks on this node, their first one leading."""
    between: Communicator | None
    """Of the leaders, on these."""
    rank: int
    """Of this process in the group."""
    size: int
    """Of the group."""

    def all_reduce(self, tensor: Tensor) -> None:
        """See ``Collectives``."""
        begun = []
        pieces = _pieces(tensor.view(-1), 1)
        for piece in pieces:
            dist.reduce(piece, group=self.inside, group_dst=0)
            begun += [] if self.between is None else [self.between.all_reduce(piece)]
        for number, piece in enumerate(pieces):
            if begun:
                begun[number].wait()
            dist.broadcast(piece, group=self.inside, group_src=0)

    def reduce_scatter(self, part: Tensor, whole: Tensor) -> None:
        """See ``Collectives``; as an all-reduce, of which a part is kept."""
        total = whole.clone()
        self.all_reduce(total)
        part.copy_(total.view(self.size, -1)[self.rank].view_as(part))

    def all_gather(self, whole: Tensor, part: Tensor) -> None:
        """See ``Collectives``; as an all-reduce of parts among nothing."""
        own = part.clone()
        whole.zero_()
        whole.view(self.size, -1)[self.rank].copy_(own.view(-1))
        self.all_reduce(whole)


def _num_pieces(whole: Tensor) -> int:
    """One on a GPU: two communicators of NCCL at work at once may wait for each other's kernels, and none was tried."""
    return 1 if whole.is_cuda else num_pieces(whole.nbytes)


def _pieces(flat: Tensor, multiple: int) -> Sequence[Tensor]:
    """Pieces of a tensor; the lengths of all but the last are multiples."""
    length = -(-flat.numel() // _num_pieces(flat))
    return torch.split(flat, max(length + -length % multiple, 1))


def _padded(flat: Tensor, multiple: int) -> Tensor:
    """The tensor itself, or longer so that it divides."""
    missing = -flat.numel() % multiple
    return flat if missing == 0 else torch.cat((flat, flat.new_zeros(missing)))


# Groups: the ranks of a job as parts of nodes, each a process group that all ranks heard of.

Partition: TypeAlias = Sequence[Sequence[int]]
"""Ranks of the job as groups, in the order of each; a rank is in one, or in none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """A group of ranks, node by node."""

    ranks: tuple[int, ...]
    """In the order of the group."""
    by_node: tuple[tuple[int, ...], ...]
    """Those of each node, in that order."""

    @property
    def are_one(self) -> bool:
        """The group lies on one node, or has one rank on each."""
        return len(self.by_node) in (1, len(self.ranks))

    @property
    def are_even(self) -> bool:
        """Every node has equally many."""
        return len({len(node) for node in self.by_node}) == 1

    @property
    def columns(self) -> tuple[tuple[int, ...], ...]:
        """The first rank of every node, the second of each, and so on while all have one."""
        return tuple(zip(*self.by_node, strict=False))

    @property
    def order(self) -> list[int]:
        """Positions in the group, column by column."""
        return [self.ranks.index(rank) for column in self.columns for rank in column]


def levels_of(ranks: Sequence[int], nodes: Nodes) -> Levels:
    """A group's ranks by the nodes that they lie on."""
    by_node: dict[int, list[int]] = {}
    for rank in ranks:
        by_node.setdefault(nodes.node_of(rank), []).append(rank)
    return Levels(ranks=tuple(ranks), by_node=tuple(map(tuple, by_node.values())))


def new_group_of(partition: Partition) -> dist.ProcessGroup | None:
    """A new group of the ranks that are with this one, in their order; None where it is in none.

    Every rank of the job calls it: all have to hear of every group (torch names those that only their own ranks make by
    how many groups each of these had before, which need not be equal).
    """
    own = None
    for ranks in partition:
        group = dist.new_group(list(ranks), sort_ranks=False)
        own = group if dist.get_rank() in ranks else own
    return own


# Chooses collectives: by an algorithm, on one level or on two.


def communicator_of(
    partition: Partition,
    nodes: Nodes,
    *,
    hierarchy: CollectiveHierarchy,
    algorithm: CollectiveAlgorithm,
    device: torch.device,
) -> Communicator:
    """The communicator of this rank's group, which runs beside what the rank computes.

    Args:
        partition: Every rank of the job in one of its groups; all ranks ask for the same at the same time.
        nodes: Which ranks share one.
        hierarchy: Whether collectives know these.
        algorithm: ``auto``, ``ring`` or ``tree``, on two levels on either; NCCL, which has its own, is to be told by
            its environment (``NCCL_ALGO``).
        device: Where tensors lie.
    """
    collectives = collectives_of(partition, nodes, hierarchy=hierarchy, algorithm=algorithm, device=device)
    ranks = next(ranks for ranks in partition if dist.get_rank() in ranks)
    return BackgroundCommunicator(
        collectives, background_of(device), rank=ranks.index(dist.get_rank()), size=len(ranks)
    )


def collectives_of(
    partition: Partition,
    nodes: Nodes,
    *,
    hierarchy: CollectiveHierarchy,
    algorithm: CollectiveAlgorithm,
    device: torch.device,
) -> Collectives:
    """The collectives of this rank's group, over groups of their own: nobody else's messages are taken for theirs.

    A group that lies on one node, or has one rank on each, has one level.

    Args:
        partition: See ``communicator_of``.
        nodes: See there.
        hierarchy: See there.
        algorithm: See there.
        device: See there.
    """
    groups = [levels_of(ranks, nodes) for ranks in partition]
    is_flat = hierarchy == CollectiveHierarchy.FLAT
    own = next(group for group in groups if dist.get_rank() in group.ranks)
    # every rank of the job has to hear of every group, so that all go through the same lines
    flat = _flat([group.ranks for group in groups if is_flat or group.are_one], algorithm)
    uneven = [group for group in groups if not is_flat and not group.are_one and not group.are_even]
    led = new_group_of([node for group in uneven for node in group.by_node])
    leaders = _begun([group.columns[0] for group in uneven], algorithm, device)
    even = [group for group in groups if not is_flat and not group.are_one and group.are_even]
    inside = _flat([node for group in even for node in group.by_node], algorithm)
    between = _begun([column for group in even for column in group.columns], algorithm, device)
    if flat is not None:
        return flat
    if led is not None:
        return Led(inside=led, between=leaders, rank=own.ranks.index(dist.get_rank()), size=len(own.ranks))
    assert inside is not None
    assert between is not None
    return TwoLevel(inside=inside, between=between, order=own.order, ranks_per_node=len(own.by_node[0]))


def _flat(partition: Partition, algorithm: CollectiveAlgorithm) -> Collectives | None:
    """On one level; None for a rank that is in none of the groups."""
    group = new_group_of(partition)
    return None if group is None else _by(algorithm, group) or TorchCollectives(group)


def _begun(partition: Partition, algorithm: CollectiveAlgorithm, device: torch.device) -> Communicator | None:
    """The same, each begun beside what the rank does meanwhile."""
    group = new_group_of(partition)
    if group is None:
        return None
    own = _by(algorithm, group)
    if own is None:
        return TorchCommunicator(group)
    return BackgroundCommunicator(
        own, background_of(device), rank=dist.get_rank(group), size=dist.get_world_size(group)
    )


def _by(algorithm: CollectiveAlgorithm, group: dist.ProcessGroup) -> Collectives | None:
    """Collectives of our own; None where the algorithm is the backend's."""
    if algorithm == CollectiveAlgorithm.RING:
        return Ring(group)
    return Tree(group) if algorithm == CollectiveAlgorithm.TREE else None
