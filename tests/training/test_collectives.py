"""What ranks of these tests do: every collective of every kind, beside sums that each of them makes alone."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import product
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from autotuner.core.choices import CollectiveAlgorithm, CollectiveHierarchy, RankPlacement
from autotuner.core.placement import Nodes
from autotuner.training.communicator import Communicator, TorchCommunicator, future_of
from autotuner.training.ring_and_tree import Branch, branches
from autotuner.training.two_level import communicator_of, levels_of, new_group_of
from autotuner.trials.process.task import TaskContext
from tests.trials.fork_server import ForkServer
from tests.trials.joined import Noted, joined

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


def _communicators(partition: Sequence[tuple[int, ...]], nodes: Nodes) -> Iterator[Communicator]:
    for hierarchy, algorithm in product(CollectiveHierarchy, _ALGORITHMS):
        yield communicator_of(partition, nodes, hierarchy=hierarchy, algorithm=algorithm, device=torch.device("cpu"))
    group = new_group_of(partition)
    assert group is not None
    yield TorchCommunicator(group)


def _compare(own: Communicator, ranks: tuple[int, ...]) -> None:
    assert (own.size, own.rank) == (len(ranks), ranks.index(dist.get_rank()))
    for length, dtype in product(_LENGTHS, (torch.float32, torch.bfloat16)):
        tensor = _numbers(dist.get_rank(), 5 * length, dtype).clone()
        (reduced,) = own.all_reduce(tensor).get_future().wait()
        assert reduced.data_ptr() == tensor.data_ptr()
        assert torch.equal(tensor, _sum(ranks, 5 * length, dtype))

        whole = _numbers(dist.get_rank(), own.size * length, dtype).clone()
        part = torch.empty(length, dtype=dtype)
        own.reduce_scatter(part, whole).wait()
        assert torch.equal(part, _sum(ranks, own.size * length, dtype).chunk(own.size)[own.rank])
        assert torch.equal(whole, _numbers(dist.get_rank(), own.size * length, dtype))

        gathered = torch.empty(own.size * length, dtype=dtype)
        piece = gathered.chunk(own.size)[own.rank]
        piece.copy_(_numbers(dist.get_rank(), length, dtype))
        own.all_gather(gathered, piece).wait()
        assert torch.equal(gathered, torch.cat([_numbers(rank, length, dtype) for rank in ranks]))


@cache
def _numbers(rank: int, length: int, dtype: torch.dtype) -> Tensor:
    """Whole numbers below 20, of which six sum up exactly in bf16."""
    return (torch.arange(length) * (rank + 1) % 13 + rank).to(dtype)


@cache
def _sum(ranks: tuple[int, ...], length: int, dtype: torch.dtype) -> Tensor:
    return torch.stack([_numbers(rank, length, dtype) for rank in ranks]).sum(0)


# ---------------------------------------------------------------- choose
TASKS = "tests.training.test_collectives"


@pytest.mark.parametrize("case", [0, *(pytest.param(case, marks=pytest.mark.oracle) for case in range(1, len(CASES)))])
def test_every_kind_sums_and_gathers_alike_however_ranks_lie_on_nodes(
    case: int, fork_server: ForkServer, tmp_path: Path
) -> None:
    (tmp_path / "case").write_text(str(case))
    run = fork_server.have_done(f"{TASKS}:agree", tmp_path, NUM_RANKS)
    assert run.exit_codes == (0,) * NUM_RANKS, run.logs


def test_a_collective_that_fails_in_the_background_raises_where_it_is_waited_for(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    run = fork_server.have_done(f"{TASKS}:fail", tmp_path, 2)
    assert run.exit_codes == (0, 0), run.logs
    assert json.loads((tmp_path / "0.json").read_text())


# ---------------------------------------------------------------- groups
NODES = Nodes(num_nodes=2, ranks_per_node=3)


def test_a_group_is_seen_node_by_node_and_column_by_column() -> None:
    levels = levels_of((5, 0, 1, 4), NODES)
    assert levels.by_node == ((5, 4), (0, 1))
    assert levels.columns == ((5, 0), (4, 1))
    assert levels.order == [0, 1, 3, 2]
    assert levels.are_even
    assert not levels.are_one


def test_a_group_on_one_node_or_with_one_rank_on_each_has_one_level() -> None:
    cyclic = Nodes(num_nodes=2, ranks_per_node=3, placement=RankPlacement.CYCLIC)
    assert levels_of((0, 1, 2), NODES).are_one
    assert levels_of((0, 3), NODES).are_one
    assert not levels_of((0, 1, 2), cyclic).are_one
    assert not levels_of((0, 1, 2), cyclic).are_even


# ---------------------------------------------------------------- tree
@pytest.mark.parametrize("size", range(1, 34))
@pytest.mark.parametrize("number", [0, 1])
def test_every_rank_hangs_below_one_root_at_the_depth_of_a_binary_tree(size: int, number: int) -> None:
    tree = [branches(rank, size)[number] for rank in range(size)]
    depths = [_depth(tree, rank) for rank in range(size)]
    assert depths.count(0) == 1
    assert max(depths) <= math.ceil(math.log2(size)) + 1
    assert all(tree[child].parent == rank for rank, branch in enumerate(tree) for child in branch.children)
    assert sum(len(branch.children) for branch in tree) == size - 1


@pytest.mark.parametrize("size", range(2, 34))
def test_nobody_has_children_in_both_trees_but_the_first_of_an_odd_number(size: int) -> None:
    both = [rank for rank in range(size) if all(branch.children for branch in branches(rank, size))]
    assert both == ([0] if size % 2 else [])


def _depth(tree: list[Branch], rank: int) -> int:
    parent = tree[rank].parent
    return 0 if parent is None else 1 + _depth(tree, parent)


# ---------------------------------------------------------------- futures of pending collectives
def test_a_backward_pass_ends_when_the_collectives_are_over_whose_futures_its_hooks_took() -> None:
    collective, weight = Noted(torch.ones(1)), torch.ones(1, requires_grad=True)
    seen_in_hook = []

    def hook(gradient: Tensor) -> Tensor:
        (result,) = future_of(collective).value()
        seen_in_hook.append(collective.was_awaited)
        return gradient + result

    _backward(weight, hook)
    assert seen_in_hook == [False]
    assert collective.was_awaited
    assert weight.grad == 3.0


def test_a_collective_that_fails_fails_the_backward_pass() -> None:
    class Failing(Noted):
        def wait(self) -> None:
            raise RuntimeError("peer is gone")

    with pytest.raises(RuntimeError, match="peer is gone"):
        _backward(torch.ones(1, requires_grad=True), lambda gradient: future_of(Failing(gradient)).value()[0])


def _backward(weight: Tensor, hook: Callable[[Tensor], Tensor]) -> None:
    weight.register_hook(hook)  # type: ignore[no-untyped-call]
    weight.square().sum().backward()  # type: ignore[no-untyped-call]
