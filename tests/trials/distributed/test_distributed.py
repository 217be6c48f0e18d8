from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
import torch.distributed as dist

from autotuner.core.choices import GradientSync, P2PTransport, PipelineSchedule, RankOrder, ShardLevel
from autotuner.core.layout import Layout
from autotuner.core.model import TransformerSpec
from autotuner.core.placement import place_of
from tests.builders import cpu_layout, tiny_model
from tests.trials.agreement import Trainer, for_each
from tests.trials.specs import ODD_VOCABULARY, PIPELINE, SEQUENCE, TENSOR, ddp, fsdp, hsdp, zero
from trials.distributed.mesh import Grid
from trials.distributed.tensor import logits_per_token
from trials.dry_run.fake_ranks import fake_ranks


# ---------------------------------------------------------------- loss
@pytest.mark.parametrize(("vocab_size", "num_ranks"), [(256, 2), (257, 2), (50257, 8), (9, 4)])
def test_the_parts_of_a_vocabulary_are_what_dtensor_makes_of_it(vocab_size: int, num_ranks: int) -> None:
    chunks = [len(chunk) for chunk in torch.empty(vocab_size).chunk(num_ranks)]
    layout = cpu_layout(tensor_parallel_degree=num_ranks)
    parts = [logits_per_token(layout, vocab_size, rank) for rank in range(num_ranks)]
    assert parts == chunks + [0] * (num_ranks - len(chunks))


def test_every_rank_has_all_logits_where_they_are_gathered() -> None:
    gathered = cpu_layout(tensor_parallel_degree=2, loss_parallel=False)
    assert [logits_per_token(gathered, 257, rank) for rank in range(2)] == [257, 257]
    assert logits_per_token(cpu_layout(), 257, 0) == 257


# ---------------------------------------------------------------- mesh
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


# ---------------------------------------------------------------- pipeline
GPIPE, ONE_F_ONE_B, INTERLEAVED, ZERO_BUBBLE, ZBV, DUALPIPEV, ADAPTIVE = PipelineSchedule
DELEGATED: dict[str, Any] = {"p2p_transport": P2PTransport.DELEGATED}
SIX_LAYERS = tiny_model(name="six-layers", num_layers=6)
TIED = tiny_model(name="tied", tied_embeddings=True)


def pipeline(schedule: PipelineSchedule, virtual: int = 1, **changes: Any) -> dict[str, Any]:
    ranks = {"pipeline_parallel_degree": 2, "pipeline_schedule": schedule, "virtual_stages_per_rank": virtual}
    return {**ranks, "micro_batch_size": 2, **changes}


SCHEDULES = (
    cpu_layout(**pipeline(INTERLEAVED, 2)),
    cpu_layout(**pipeline(ZERO_BUBBLE)),
    cpu_layout(**pipeline(ZERO_BUBBLE, micro_batch_size=1, pipeline_parallel_degree=4)),
    cpu_layout(**pipeline(ZERO_BUBBLE, 2)),
    cpu_layout(**pipeline(ZBV, 2, micro_batch_size=4)),  # fewer micro-batches than the V is long
    cpu_layout(**pipeline(DUALPIPEV, 2)),
)

UNEVEN = (
    cpu_layout(**pipeline(ONE_F_ONE_B, first_stage_less_layers=1, last_stage_less_layers=1)),
    cpu_layout(**pipeline(INTERLEAVED, 2, first_stage_less_layers=1, last_stage_less_layers=1)),
    cpu_layout(**pipeline(ZBV, 2, first_stage_less_layers=1, last_stage_less_layers=1)),
)

BESIDE_DATA_PARALLELISM = (
    ddp(2, **pipeline(INTERLEAVED, 2)),
    ddp(2, **pipeline(ZERO_BUBBLE)),
    ddp(2, **pipeline(ZBV, 2)),
    ddp(2, **pipeline(DUALPIPEV, 2, micro_batch_size=1)),
    fsdp(2, **pipeline(INTERLEAVED, 2)),
    fsdp(2, **pipeline(ZERO_BUBBLE)),
    fsdp(2, **pipeline(ZBV, 2)),
    fsdp(2, **pipeline(DUALPIPEV, 2, micro_batch_size=1)),
    hsdp(2, 2, **pipeline(ZBV, 2, micro_batch_size=1)),
    zero(2, **pipeline(GPIPE)),
    zero(2, **pipeline(INTERLEAVED, 2)),
    zero(2, **pipeline(ZBV, 2)),
    fsdp(2, **pipeline(ONE_F_ONE_B, reshard_after_forward=True)),
    fsdp(2, **pipeline(INTERLEAVED, 2, reshard_after_forward=True)),
    ddp(2, **SEQUENCE, **pipeline(ZBV, 2)),
    fsdp(2, **SEQUENCE, **pipeline(INTERLEAVED, 2)),
    zero(2, **SEQUENCE, **pipeline(ZBV, 2)),
)

TIED_TABLES = (
    cpu_layout(**pipeline(ONE_F_ONE_B, pipeline_parallel_degree=3)),
    cpu_layout(**pipeline(ZBV, 2)),
    ddp(2, **pipeline(ONE_F_ONE_B)),
    ddp(2, **TENSOR, micro_batch_size=4),
    fsdp(2, **SEQUENCE, **pipeline(INTERLEAVED, 2)),
)

DELEGATES = (
    cpu_layout(**pipeline(ONE_F_ONE_B, **DELEGATED)),
    cpu_layout(**pipeline(INTERLEAVED, 2, **DELEGATED)),
    cpu_layout(**pipeline(ZBV, 2, **DELEGATED)),
    cpu_layout(**pipeline(DUALPIPEV, 2, **DELEGATED)),
    fsdp(2, **SEQUENCE, **pipeline(ADAPTIVE, **DELEGATED, num_delegates=2)),
)

PLACES = (
    cpu_layout(**pipeline(ONE_F_ONE_B, pipeline_parallel_degree=4, micro_batch_size=1, stage_rotation=3)),
    cpu_layout(**pipeline(ZBV, 2, stage_rotation=1)),
    ddp(2, **pipeline(ADAPTIVE, rank_order=RankOrder.REPLICAS_OUTERMOST, stage_rotation=1)),
    zero(2, **pipeline(GPIPE, stage_rotation=1, data_parallel_replicate_degree=2)),
)

ALWAYS = (
    (TIED, ddp(2, **pipeline(ADAPTIVE, **DELEGATED, rank_order=RankOrder.REPLICAS_OUTERMOST, stage_rotation=1))),
    (tiny_model(), cpu_layout(**pipeline(ZBV, 2))),
    (TIED, zero(2, **pipeline(ZBV, 2))),
)
MORE = (
    *((tiny_model(), layout) for layout in SCHEDULES),
    *((SIX_LAYERS, layout) for layout in UNEVEN),
    *((tiny_model(), layout) for layout in BESIDE_DATA_PARALLELISM),
    *((TIED, layout) for layout in (*TIED_TABLES, *PLACES)),
    *((tiny_model(), layout) for layout in DELEGATES),
)


@for_each(ALWAYS, oracle=MORE)
def test_a_schedule_trains_as_a_single_process_does(model: TransformerSpec, layout: Layout, trainer: Trainer) -> None:
    trainer.assert_alike(layout, model)


# ---------------------------------------------------------------- tensor
GATHERED = ((tiny_model(), cpu_layout(**TENSOR, micro_batch_size=4, loss_parallel=False)),)
TENSOR_MORE = (
    (ODD_VOCABULARY, cpu_layout(**SEQUENCE, **PIPELINE, micro_batch_size=2, loss_parallel=False)),
    (tiny_model(), fsdp(2, **SEQUENCE, micro_batch_size=4, loss_parallel=False)),
)


@for_each(GATHERED, oracle=TENSOR_MORE)
def test_gathered_logits_give_the_loss_and_the_gradients_of_a_single_process(
    model: TransformerSpec, layout: Layout, trainer: Trainer
) -> None:
    trainer.assert_alike(layout, model)
