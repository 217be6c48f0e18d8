"""Two-level collectives: inside nodes, between nodes on as few bytes as possible, and inside nodes again.

For M bytes on N nodes of L ranks, a node sends M * (N - 1) / N bytes to the N - 1 other nodes in a reduce-scatter or an
all-gather, and twice that in an all-reduce, split evenly over its ranks and so over its network ports. A flat ring that
leaves the node once sends almost all M bytes over one port, and up to L times that if neighbours in the ring are on
different nodes.

A tensor is processed in pieces: while one piece is sent between nodes, the next piece is summed inside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
    Pending,
    TorchCollectives,
    TorchCommunicator,
)
from autotuner.training.ring_and_tree import Ring, Tree

Partition = Sequence[Sequence[int]]
"""Groups of the job's ranks, in the order of each group. A rank is in one group at most."""


def communicator_of(
    partition: Partition,
    nodes: Nodes,
    *,
    hierarchy: CollectiveHierarchy,
    algorithm: CollectiveAlgorithm,
    device: torch.device,
) -> Communicator:
    """Return a communicator for this rank's group. The function creates the process groups that it needs.

    If a group lies on one node, or has one rank on each node, it has only one level, whatever the hierarchy.

    Args:
        partition: Groups of ranks; every rank of the job is in one of them. All ranks must call this at the same time
            with equal arguments.
        nodes: Placement of ranks on nodes.
        hierarchy: One level (flat), or two levels: inside nodes and between nodes.
        algorithm: ``auto``, ``ring`` or ``tree``, used on each level. NCCL ignores it and reads its algorithm from the
            environment variable ``NCCL_ALGO``.
        device: Device of the tensors.
    """
    levels = [levels_of(ranks, nodes) for ranks in partition]
    is_flat = hierarchy == CollectiveHierarchy.FLAT
    own = next(group for group in levels if dist.get_rank() in group.ranks)
    rank, size = own.ranks.index(dist.get_rank()), len(own.ranks)
    # every rank of the job must take part in making every group, so that all ranks run the same lines
    collectives: Collectives | None = _flat([group.ranks for group in levels if is_flat or group.are_one], algorithm)
    several = [group for group in levels if not is_flat and not group.are_one]
    uneven = [group for group in several if not group.are_even]
    led = new_group_of([node for group in uneven for node in group.by_node])
    leaders = _between([group.columns[0] for group in uneven], algorithm, device)
    even = [group for group in several if group.are_even]
    inside = _flat([node for group in even for node in group.by_node], algorithm)
    between = _between([column for group in even for column in group.columns], algorithm, device)
    if led is not None:
        collectives = Led(inside=led, between=leaders, rank=rank, size=size)
    elif inside is not None and between is not None:
        collectives = TwoLevel(inside=inside, between=between, order=own.order, ranks_per_node=len(own.by_node[0]))
    assert collectives is not None  # the partition contains this rank
    return BackgroundCommunicator(collectives, device, rank=rank, size=size)


def _flat(partition: Partition, algorithm: CollectiveAlgorithm) -> Collectives | None:
    """Return one-level collectives; None for a rank that is in none of the groups."""
    group = new_group_of(partition)
    return None if group is None else _own(algorithm, group) or TorchCollectives(group)


def _between(partition: Partition, algorithm: CollectiveAlgorithm, device: torch.device) -> Communicator | None:
    """Return a one-level communicator; None for a rank that is in none of the groups."""
    group = new_group_of(partition)
    if group is None:
        return None
    if (own := _own(algorithm, group)) is None:
        return TorchCommunicator(group)
    return BackgroundCommunicator(own, device, rank=dist.get_rank(group), size=dist.get_world_size(group))


def _own(algorithm: CollectiveAlgorithm, group: dist.ProcessGroup) -> Collectives | None:
    """Return this project's collectives for an algorithm; None if the backend has the algorithm itself."""
    if algorithm == CollectiveAlgorithm.RING:
        return Ring(group)
    return Tree(group) if algorithm == CollectiveAlgorithm.TREE else None


def new_group_of(partition: Partition) -> dist.ProcessGroup | None:
    """Make a process group for each part of the partition, and return the group of this rank, or None if it has none.

    Every rank of the job must call this, because all ranks must take part in making each group. If only the ranks of a
    group made it, torch would name the group by the number of groups that a rank has made before, and this number may
    differ between ranks.
    """
    own = None
    for ranks in partition:
        group = dist.new_group(list(ranks), sort_ranks=False)
        own = group if dist.get_rank() in ranks else own
    return own


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """The ranks of a group, sorted by node, to communicate first inside nodes and then between nodes."""

    ranks: tuple[int, ...]
    """Ranks of the group, in order."""
    by_node: tuple[tuple[int, ...], ...]
    """Ranks of the group on each node, in the order of the group."""

    @property
    def are_one(self) -> bool:
        """True if two levels make no sense, because the group lies on one node or has one rank on each node."""
        return len(self.by_node) in (1, len(self.ranks))

    @property
    def are_even(self) -> bool:
        """True if the group has the same number of ranks on each of its nodes."""
        return len({len(node) for node in self.by_node}) == 1

    @property
    def columns(self) -> tuple[tuple[int, ...], ...]:
        """The groups of ranks that communicate between nodes: the first ranks of all nodes, the second ranks, etc."""
        return tuple(zip(*self.by_node, strict=False))

    @property
    def order(self) -> list[int]:
        """The positions of the ranks in the group, sorted by each rank's place on its node and then by node.

        A collective between nodes has its parts in this order.
        """
        return [self.ranks.index(rank) for column in self.columns for rank in column]


def levels_of(ranks: Sequence[int], nodes: Nodes) -> Levels:
    """Return the ranks of a group together with the ranks on each of its nodes."""
    by_node: dict[int, list[int]] = {}
    for rank in ranks:
        by_node.setdefault(nodes.node_of(rank), []).append(rank)
    return Levels(ranks=tuple(ranks), by_node=tuple(map(tuple, by_node.values())))


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoLevel:
    """``Collectives`` in two steps, inside nodes and between nodes, for equally many ranks on each node."""

    inside: Collectives
    """Collectives among the group's ranks on this node."""
    between: Communicator
    """Communicator among the ranks that have the same place on their nodes as this rank."""
    order: Sequence[int]
    """Ranks of the group, sorted by place, then by node."""
    ranks_per_node: int

    def all_reduce(self, tensor: Tensor) -> None:
        """Replace the tensor by its sum over all ranks, with sums inside nodes first and then between nodes."""
        begun = [self._begin_to_sum(piece) for piece in _pieces(tensor.view(-1), self.ranks_per_node)]
        for piece, padded, part, pending in begun:
            pending.wait()
            self.inside.all_gather(padded, part)
            if padded is not piece:
                piece.copy_(padded[: piece.numel()])

    def reduce_scatter(self, part: Tensor, whole: Tensor) -> None:
        """Sum ``whole`` over all ranks and write this rank's part of the sum into ``part``."""
        begun = []
        for piece, of_rank in self._columns(part, whole):
            by_place = piece[list(self.order)].view(-1)
            of_place = torch.empty_like(by_place[: by_place.numel() // self.ranks_per_node])
            self.inside.reduce_scatter(of_place, by_place)
            begun.append(self.between.reduce_scatter(of_rank, of_place))
        for pending in begun:
            pending.wait()

    def all_gather(self, whole: Tensor, part: Tensor) -> None:
        """Write the parts of all ranks into ``whole``, in the order of the ranks."""
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
        """Sum a piece inside the nodes, and start to sum this rank's part of the piece between nodes."""
        padded = _padded(piece, self.ranks_per_node)
        part = torch.empty_like(padded[: padded.numel() // self.ranks_per_node])
        self.inside.reduce_scatter(part, padded)
        return piece, padded, part, self.between.all_reduce(part)

    def _columns(self, part: Tensor, whole: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield pieces of the whole tensor and of this rank's own part.

        A piece of the whole has one row for every rank's part.
        """
        num = _num_pieces(whole)
        rows = whole.view(len(self.order), -1)
        return zip(rows.tensor_split(num, dim=1), part.view(-1).tensor_split(num), strict=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Led:
    """``Collectives`` of a group with different numbers of ranks on its nodes.

    The first rank of each node exchanges data with other nodes for all ranks of its node.
    """

    inside: dist.ProcessGroup
    """Process group of this node's ranks. The first rank is the leader."""
    between: Communicator | None
    """Communicator among the leaders; None on the other ranks."""
    rank: int
    size: int

    def all_reduce(self, tensor: Tensor) -> None:
        """Replace the tensor by its sum over all ranks. The first rank of each node communicates with other nodes."""
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
        """Sum ``whole`` over all ranks and write this rank's part of the sum into ``part``.

        The method runs an all-reduce and drops the parts of other ranks.
        """
        total = whole.clone()
        self.all_reduce(total)
        part.copy_(total.view(self.size, -1)[self.rank].view_as(part))

    def all_gather(self, whole: Tensor, part: Tensor) -> None:
        """Write the parts of all ranks into ``whole``, in the order of the ranks.

        The method runs an all-reduce, for which each rank writes zeros at the places of other ranks.
        """
        own = part.clone()
        whole.zero_()
        whole.view(self.size, -1)[self.rank].copy_(own.view(-1))
        self.all_reduce(whole)


def _num_pieces(whole: Tensor) -> int:
    """Return the number of pieces of a tensor.

    It is 1 on a GPU, because two NCCL communicators that work at the same time may wait for each other's kernels (not
    tried).
    """
    return 1 if whole.is_cuda else num_pieces(whole.nbytes)


def _pieces(flat: Tensor, multiple: int) -> Sequence[Tensor]:
    """Return the pieces of a tensor. The lengths of all pieces but the last are multiples of ``multiple``."""
    length = -(-flat.numel() // _num_pieces(flat))
    return torch.split(flat, max(length + -length % multiple, 1))


def _padded(flat: Tensor, multiple: int) -> Tensor:
    """Return the tensor, padded to a multiple of ``multiple`` elements."""
    missing = -flat.numel() % multiple
    return flat if missing == 0 else torch.cat((flat, flat.new_zeros(missing)))
