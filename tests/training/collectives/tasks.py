"""What ranks of these tests do: every collective of every kind, beside sums that each of them makes alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import product

import torch
import torch.distributed as dist
from torch import Tensor

from autotuner.core.choices import CollectiveAlgorithm, CollectiveHierarchy, RankPlacement
from autotuner.core.placement import Nodes
from autotuner.training.communicator import Communicator, TorchCommunicator
from autotuner.training.two_level import communicator_of, new_group_of
from tests.trials.joined import joined
from trials.process.task import TaskContext

NUM_RANKS = 6
_ALGORITHMS = (CollectiveAlgorithm.AUTO, CollectiveAlgorithm.RING, CollectiveAlgorithm.TREE)
_ALL = ((0, 1, 2, 3, 4, 5),)
_TWO_GROUPS = ((5, 1, 2, 0), (3, 4))
"""Four in an order of their own, three of them on one of two nodes, and two that are on either."""
CASES = (
    (_TWO_GROUPS, Nodes(num_nodes=2, ranks_per_node=3)),
    (_ALL, Nodes(num_nodes=2, ranks_per_node=3, placement=RankPlacement.CYCLIC)),
    (_ALL, Nodes(num_nodes=3, ranks_per_node=2)),
)
_LENGTHS = (1, 120_011)
"""So few that a sum of five times as many leaves ranks without an element; and so many that it goes in several pieces
on two levels and in several segments up a tree, which nothing divides."""


def agree(context: TaskContext) -> int:
    """Every kind's results are those of plain sums, bit by bit: all numbers are small and whole."""
    rank = joined(context).rank()
    partition, nodes = CASES[int((context.folder / "case").read_text())]
    ranks = next(ranks for ranks in partition if rank in ranks)
    for own in _communicators(partition, nodes):
        _compare(own, ranks)
    return 0


def fail(context: TaskContext) -> int:
    """A rank that is left alone says so where it waits."""
    rank = joined(context, timeout_s=60.0).rank()
    nodes = Nodes(num_nodes=2, ranks_per_node=1)
    ring = communicator_of(
        [[0, 1]],
        nodes,
        hierarchy=CollectiveHierarchy.FLAT,
        algorithm=CollectiveAlgorithm.RING,
        device=torch.device("cpu"),
    )
    dist.barrier()  # else the other rank may be gone before this one is connected with it
    words = ""
    if rank == 0:
        pending = ring.all_reduce(torch.ones(4))
        try:
            pending.wait()
        except RuntimeError as error:
            words = str(error)
    (context.folder / f"{rank}.json").write_text(json.dumps(words))
    return 0


def _communicators(partition: Sequence[Sequence[int]], nodes: Nodes) -> Iterator[Communicator]:
    for hierarchy, algorithm in product(CollectiveHierarchy, _ALGORITHMS):
        yield communicator_of(partition, nodes, hierarchy=hierarchy, algorithm=algorithm, device=torch.device("cpu"))
    group = new_group_of(partition)
    assert group is not None
    yield TorchCommunicator(group)


def _compare(own: Communicator, ranks: Sequence[int]) -> None:
    assert (own.size, own.rank) == (len(ranks), ranks.index(dist.get_rank()))
    for length, dtype in product(_LENGTHS, (torch.float32, torch.bfloat16)):
        tensor = _numbers(dist.get_rank(), 5 * length, dtype)
        (reduced,) = own.all_reduce(tensor).get_future().wait()
        assert reduced.data_ptr() == tensor.data_ptr()
        assert torch.equal(tensor, _sum(ranks, 5 * length, dtype))

        whole = _numbers(dist.get_rank(), own.size * length, dtype)
        part = torch.empty(length, dtype=dtype)
        own.reduce_scatter(part, whole).wait()
        assert torch.equal(part, _sum(ranks, own.size * length, dtype).chunk(own.size)[own.rank])
        assert torch.equal(whole, _numbers(dist.get_rank(), own.size * length, dtype))

        gathered = torch.empty(own.size * length, dtype=dtype)
        piece = gathered.chunk(own.size)[own.rank]
        piece.copy_(_numbers(dist.get_rank(), length, dtype))
        own.all_gather(gathered, piece).wait()
        assert torch.equal(gathered, torch.cat([_numbers(rank, length, dtype) for rank in ranks]))


def _numbers(rank: int, length: int, dtype: torch.dtype) -> Tensor:
    """Whole numbers below 20, of which six sum up exactly in bf16."""
    return (torch.arange(length) * (rank + 1) % 13 + rank).to(dtype)


def _sum(ranks: Sequence[int], length: int, dtype: torch.dtype) -> Tensor:
    return torch.stack([_numbers(rank, length, dtype) for rank in ranks]).sum(0)
