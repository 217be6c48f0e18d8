from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from autotuner.core.choices import AttentionKernel, GradientSync, P2PTransport, PipelineSchedule, RankOrder, ShardLevel
from autotuner.core.layout import Layout
from autotuner.core.model import TransformerSpec
from autotuner.core.placement import place_of
from autotuner.training.clipping import Overlap
from autotuner.trials.distributed.block_attention import (
    BLOCK_KERNELS,
    Attended,
    BlockKernel,
    OnlineSoftmax,
    OnlineSoftmaxGradients,
    block_kernel,
)
from autotuner.trials.distributed.context import WHOLE, ContextPart
from autotuner.trials.distributed.mesh import Grid
from autotuner.trials.distributed.optimizer_shards import BucketShard, Reduction, buckets
from autotuner.trials.distributed.tensor import logits_per_token
from autotuner.trials.dry_run.fake_ranks import fake_ranks
from tests.builders import cpu_layout, tiny_model
from tests.trials.agreement import Trainer, for_each
from tests.trials.specs import ODD_VOCABULARY, PIPELINE, SEQUENCE, TENSOR, ddp, fsdp, zero


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


UNEVEN = (
    cpu_layout(**pipeline(ONE_F_ONE_B, first_stage_less_layers=1, last_stage_less_layers=1)),
    cpu_layout(**pipeline(INTERLEAVED, 2, first_stage_less_layers=1, last_stage_less_layers=1)),
    cpu_layout(**pipeline(ZBV, 2, first_stage_less_layers=1, last_stage_less_layers=1)),
)

TIED_TABLES = (
    cpu_layout(**pipeline(ONE_F_ONE_B, pipeline_parallel_degree=3)),
    cpu_layout(**pipeline(ZBV, 2)),
    ddp(2, **pipeline(ONE_F_ONE_B)),
    ddp(2, **TENSOR, micro_batch_size=4),
    fsdp(2, **SEQUENCE, **pipeline(INTERLEAVED, 2)),
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
    (tiny_model(), cpu_layout(**pipeline(ZERO_BUBBLE, micro_batch_size=1, pipeline_parallel_degree=4))),
    (tiny_model(), cpu_layout(**pipeline(ZBV, 2, micro_batch_size=4))),  # fewer micro-batches than the V is long
    *((SIX_LAYERS, layout) for layout in UNEVEN),
    *((TIED, layout) for layout in (*TIED_TABLES, *PLACES)),
)
"""Beside what ``tests/oracle`` trains: every pair of a schedule with shards, senders and whatever else there is."""


@for_each(ALWAYS, oracle=MORE)
def test_a_schedule_trains_as_a_single_process_does(model: TransformerSpec, layout: Layout, trainer: Trainer) -> None:
    trainer.assert_alike(layout, model)


# ---------------------------------------------------------------- tensor
GATHERED = ((tiny_model(num_layers=2), cpu_layout(**TENSOR, micro_batch_size=4, loss_parallel=False)),)
TENSOR_MORE = (
    (ODD_VOCABULARY, cpu_layout(**SEQUENCE, **PIPELINE, micro_batch_size=2, loss_parallel=False)),
    (tiny_model(), fsdp(2, **SEQUENCE, micro_batch_size=4, loss_parallel=False)),
)


@for_each(GATHERED, oracle=TENSOR_MORE)
def test_gathered_logits_give_the_loss_and_the_gradients_of_a_single_process(
    model: TransformerSpec, layout: Layout, trainer: Trainer
) -> None:
    trainer.assert_alike(layout, model)


# ---------------------------------------------------------------- block attention

HERE = (AttentionKernel.MATH, AttentionKernel.FLASH)
TOLERANCE = 1e-5  # fp32: sums of 16 products of unit normals in another order


def draw(heads: int, tokens: int, seed: int) -> Tensor:
    return torch.randn(2, heads, tokens, 8, generator=torch.Generator().manual_seed(seed))


def kernel_here(kernel: AttentionKernel) -> BlockKernel:
    return block_kernel(kernel, torch.device("cpu"))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kernel", HERE)
def test_a_block_is_attention_with_the_gradients_of_autograd(kernel: AttentionKernel, causal: bool) -> None:
    q, k, v = draw(4, 6, 1), draw(2, 6, 2), draw(2, 6, 3)
    leaves = tuple(x.clone().requires_grad_() for x in (q, k, v))
    query, key, value = leaves
    expected = functional.scaled_dot_product_attention(query, key, value, is_causal=causal, enable_gqa=True)
    gradient = draw(4, 6, 4)
    expected.backward(gradient)  # type: ignore[no-untyped-call]  # torch leaves it without types
    block = kernel_here(kernel)
    output, log_sum_exp, rest = block.forward(q, k, v, causal)
    assert torch.allclose(output, expected, atol=TOLERANCE)
    found = block.backward(gradient, Attended(q, k, v, output, log_sum_exp, rest), causal)
    for of_leaf, leaf in zip(found, leaves, strict=True):
        assert leaf.grad is not None
        assert torch.allclose(of_leaf, leaf.grad, atol=TOLERANCE)


@pytest.mark.parametrize("kernel", HERE)
def test_blocks_merge_to_attention_over_all_their_keys(kernel: AttentionKernel) -> None:
    """Six queries behind four keys, the last three of them behind two more in between."""
    q, k, v = draw(4, 12, 1), draw(2, 12, 2), draw(2, 12, 3)
    own = [4, 5, 6, 9, 10, 11]
    queries, keys, values = q[:, :, own], k[:, :, own], v[:, :, own]
    attended = OnlineSoftmax(kernel_here(kernel), queries, keys, values)
    attended.merge(k[:, :, :4], v[:, :, :4])
    attended.merge(k[:, :, 7:9], v[:, :, 7:9], first_query=3)
    expected = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)[:, :, own]
    assert torch.allclose(attended.output(), expected, atol=TOLERANCE)


@pytest.mark.parametrize("kernel", [AttentionKernel.FLASH, AttentionKernel.EFFICIENT])
def test_the_kernels_of_a_gpu_are_called_as_torch_declares_them(kernel: AttentionKernel) -> None:
    """On tensors without data: names, order and shapes of what goes in and comes out; no values."""
    q, k, v = (torch.empty(2, 4, 20, 8, device="meta", dtype=torch.bfloat16) for _ in range(3))
    block = BLOCK_KERNELS[kernel]
    attended = OnlineSoftmax(block, q, k, v)
    attended.merge(k, v, first_query=10)
    assert attended.output().shape == q.shape
    assert attended.log_sum_exp_BHS.shape == q.shape[:3]
    gradients = OnlineSoftmaxGradients(block, q, q, attended.output(), attended.log_sum_exp_BHS, attended.rest)
    assert gradients.own_block(k, v).shape == (2, *k.shape)
    assert gradients.merged_block(k, v, first_query=10).shape == (2, *k.shape)
    assert gradients.queries().shape == q.shape


# ---------------------------------------------------------------- zigzag


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_the_parts_of_all_ranks_form_the_sequence_and_can_be_reordered_and_restored(num_ranks: int) -> None:
    parts = [ContextPart(rank=rank, num_ranks=num_ranks) for rank in range(num_ranks)]
    held = torch.cat([part.positions(12) for part in parts])
    assert held.sort().values.tolist() == WHOLE.positions(12).tolist() == list(range(12))
    assert torch.equal(parts[0].in_order(held, 0), torch.arange(12))
    assert torch.equal(parts[0].by_rank(torch.arange(12), 0), held)


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_causal_attention_is_the_same_work_for_every_rank(num_ranks: int) -> None:
    pairs = {
        int((ContextPart(rank=rank, num_ranks=num_ranks).positions(64) + 1).sum())  # a token sees itself and all before
        for rank in range(num_ranks)
    }
    assert len(pairs) == 1


# ---------------------------------------------------------------- flat buckets

ALONE = Reduction(shards=None, replicas=None, num_losses=2, dtype=torch.float32, overlap=Overlap())


class Tied(nn.Module):
    """Two layers that share a matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = nn.Linear(3, 3)
        self.second.weight = self.first.weight


def flat(module: nn.Module) -> BucketShard:
    return BucketShard(module, list(module.parameters()), ALONE, num_replicas=2)


@given(st.lists(st.integers(1, 9), min_size=1), st.integers(1, 40))
def test_buckets_hold_all_parameters_in_order_and_none_goes_on_once_it_is_full(
    sizes: list[int], bucket_floats: int
) -> None:
    parameters = [nn.Parameter(torch.zeros(size)) for size in sizes]
    found = list(buckets(parameters, 4 * bucket_floats))
    assert [id(parameter) for bucket in found for parameter in bucket] == [id(parameter) for parameter in parameters]
    assert all(sum(parameter.numel() for parameter in bucket[:-1]) < bucket_floats for bucket in found)
    assert all(sum(parameter.numel() for parameter in bucket) >= bucket_floats for bucket in found[:-1])


def test_parameters_keep_their_values_and_ties_become_views_of_one_tensor_and_take_new_values() -> None:
    module = Tied()
    before = [parameter.detach().clone() for parameter in module.parameters()]
    slice_ = flat(module)
    after = list(module.parameters())
    assert all(torch.equal(old, new) for old, new in zip(before, after, strict=True))
    assert module.first.weight is module.second.weight
    assert len({parameter.untyped_storage().data_ptr() for parameter in after}) == 1
    assert slice_.values().numel() == sum(parameter.numel() for parameter in after)
    slice_.write(torch.arange(15.0))
    assert module.first.weight.flatten().tolist() == list(range(9))


def test_a_gradient_is_averaged_over_the_losses_and_taken_from_the_parameters() -> None:
    module = Tied()
    slice_ = flat(module)
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    slice_.start_reduction()
    slice_.start_reduction()  # a schedule says it, and the optimizer again
    assert torch.equal(slice_.take_gradient(), torch.full((15,), 0.5))
    assert all(parameter.grad is None for parameter in module.parameters())


def test_the_reduction_starts_with_the_last_gradient_of_the_last_backward_pass() -> None:
    module = nn.Linear(3, 3)
    slice_ = flat(module)
    module(torch.ones(3)).sum().backward()
    assert module.weight.grad is not None
    slice_.expect_backward_passes(1)
    module(torch.ones(3)).sum().backward()
    assert {parameter.grad for parameter in module.parameters()} == {None}
    assert torch.equal(slice_.take_gradient(), torch.ones(12))  # of two passes, over two losses
