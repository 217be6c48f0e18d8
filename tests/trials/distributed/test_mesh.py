from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product

import pytest
import torch
import torch.distributed as dist

from autotuner.core.choices import GradientSync, RankOrder, ShardLevel
from autotuner.core.layout import Layout
from autotuner.core.placement import place_of
from trials.distributed.mesh import Grid
from trials.dry_run.fake_ranks import fake_ranks

SHARDED = Layout(
    pipeline_parallel_degree=2,
    data_parallel_replicate_degree=2,
    data_parallel_shard_degree=2,
    context_parallel_degree=2,
    tensor_parallel_degree=2,
    shard_level=ShardLevel.PARAMETERS,
)
REPLICATED = Layout(data_parallel_replicate_degree=2, context_parallel_degree=2, tensor_parallel_degree=2)


@contextmanager
def grid(layout: Layout, rank: int) -> Iterator[Grid]:
    """The grid as one of the ranks sees it, without the others."""
    with fake_ranks(rank, layout.world_size):
        yield Grid(layout, torch.device("cpu"))


def test_ranks_are_numbered_tensor_innermost_then_context_shard_replica_and_pipeline() -> None:
    for rank, (pp, replicate, shard, cp, tp) in enumerate(product(range(2), repeat=5)):
        with grid(SHARDED, rank) as found:
            assert (found.position("pp"), found.position("tp")) == (pp, tp)
            assert found.data_parallel_rank == 2 * replicate + shard
            assert found.context_rank == found.context.get_local_rank() == cp
            assert found.position("shard") == 2 * shard + cp


def test_shards_are_the_ranks_of_a_replica_that_see_other_tokens() -> None:
    with grid(SHARDED, 5) as found:
        assert found.axis("shard").mesh.tolist() == [1, 3, 5, 7]
        assert found.context.mesh.tolist() == [5, 7]
        assert found.num_losses == 8


@pytest.mark.parametrize(("rank", "copies"), [(0, [0, 2, 4, 6]), (3, [1, 3, 5, 7])])
def test_copies_are_all_ranks_that_see_other_tokens_through_the_same_parameters(rank: int, copies: list[int]) -> None:
    with grid(REPLICATED, rank) as found:
        assert found.replicas.mesh.tolist() == copies


@pytest.mark.parametrize("order", RankOrder)
def test_a_replica_that_exchanges_less_than_its_gradient_holds_one_of_its_own(order: RankOrder) -> None:
    lossy = replace(SHARDED, gradient_sync=GradientSync.DEMO, rank_order=order, stage_rotation=1)
    for rank in range(32):
        with grid(lossy, rank) as found:
            own = dist.get_process_group_ranks(found.gradient)
            assert {place_of(lossy, other).replica for other in own} == {found.position("dp_replicate")}
            assert len(own) == 16
            assert found.num_losses == 4
    with grid(SHARDED, 5) as found:
        assert found.gradient.size() == 32


def test_context_ranks_of_a_replica_sum_its_gradient_though_replicas_do_not() -> None:
    with grid(replace(REPLICATED, gradient_sync=GradientSync.RANDOM), 4) as found:
        assert found.replicas.mesh.tolist() == [4, 6]
