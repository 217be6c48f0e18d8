"""Chooses collectives: by an algorithm, on one level or on two."""

from __future__ import annotations

import torch
import torch.distributed as dist

from autotuner.core.choices import CollectiveAlgorithm, CollectiveHierarchy
from autotuner.core.placement import Nodes
from trials.collectives.background import background_of
from trials.collectives.collectives import Collectives, TorchCollectives
from trials.collectives.communicator import BackgroundCommunicator, Communicator, TorchCommunicator
from trials.collectives.groups import Partition, levels_of, new_group_of
from trials.collectives.ring import Ring
from trials.collectives.tree import Tree
from trials.collectives.two_level import Led, TwoLevel


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
