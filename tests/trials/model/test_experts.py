"""Mixtures of experts, alone and with expert parallelism, against the single process."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.choices import ContextExchange, Recompute, ShardLevel
from autotuner.core.layout import Layout
from autotuner.core.model import TransformerSpec
from tests.builders import cpu_layout, tiny_model
from tests.trials.agreement import Trainer, for_each
from tests.trials.specs import CONTEXT, PIPELINE, SEQUENCE, TENSOR, ZBV, ddp, fsdp, hsdp
from trials.model.experts import ALL_EXPERTS, Experts, SparseFeedForward
from trials.model.weights import materialise

ROUTED = MixtureOfExperts(num_experts=4, experts_per_token=2, expert_ffn_size=32)
MIXTRAL = tiny_model(name="mixtral", experts=ROUTED)
DEEPSEEK = tiny_model(
    name="deepseek",
    experts=replace(ROUTED, num_experts=8, num_shared_experts=2, num_dense_layers=1, router_bias=True),
)
EVERY_OTHER = tiny_model(
    name="every-other",
    experts=replace(ROUTED, num_shared_experts=1, shared_expert_ffn_size=48, sparse_layer_interval=2),
)
PLAIN = tiny_model(name="plain-experts", experts=ROUTED, gated_mlp=False)
TWO = tiny_model(name="two-experts", experts=replace(ROUTED, num_experts=2, experts_per_token=1))

FULL = {"recompute": Recompute.FULL}
SELECTIVE = {"recompute": Recompute.SELECTIVE}


def experts(degree: int = 2, **changes: Any) -> dict[str, Any]:
    return {"expert_parallel_degree": degree, "micro_batch_size": 2, **changes}


ALWAYS = ((DEEPSEEK, fsdp(2, **experts(**FULL))),)
MORE = (
    (MIXTRAL, cpu_layout(micro_batch_size=2)),
    (DEEPSEEK, cpu_layout(micro_batch_size=4, **FULL)),
    (DEEPSEEK, cpu_layout(micro_batch_size=4, **SELECTIVE)),
    (MIXTRAL, ddp(2, micro_batch_size=2)),
    (DEEPSEEK, fsdp(2, micro_batch_size=2)),
    (MIXTRAL, cpu_layout(micro_batch_size=2, **ZBV)),
    (MIXTRAL, cpu_layout(micro_batch_size=4, **TENSOR)),
    (DEEPSEEK, cpu_layout(micro_batch_size=4, **SEQUENCE)),
    (PLAIN, fsdp(2, micro_batch_size=4, **SEQUENCE)),
    (DEEPSEEK, ddp(2, micro_batch_size=4, **TENSOR)),
    (MIXTRAL, fsdp(2, **experts())),
    (DEEPSEEK, fsdp(2, **experts(**SELECTIVE))),
    (DEEPSEEK, fsdp(4, **experts())),
    (MIXTRAL, fsdp(4, **experts(4))),
    (MIXTRAL, fsdp(4, **experts(reshard_after_forward=True))),
    (DEEPSEEK, replace(fsdp(4, **experts()), shard_level=ShardLevel.GRADIENTS)),
    (TWO, fsdp(4, **experts())),  # one expert on each of two shards: its matrices are cut
    (MIXTRAL, hsdp(2, 2, **experts())),
    (MIXTRAL, fsdp(2, **experts(4, **CONTEXT))),
    (DEEPSEEK, fsdp(2, **experts(context_exchange=ContextExchange.ALL_GATHER, **CONTEXT))),
    (MIXTRAL, fsdp(2, **experts(**PIPELINE))),
    (MIXTRAL, fsdp(2, **experts(**ZBV))),
    (MIXTRAL, cpu_layout(**experts(**TENSOR))),
    (DEEPSEEK, cpu_layout(**experts(**SEQUENCE))),
    (DEEPSEEK, fsdp(2, **experts(**TENSOR))),
    (MIXTRAL, fsdp(2, **experts(4, **SEQUENCE))),
    (DEEPSEEK, fsdp(2, **experts(4, **SEQUENCE, **PIPELINE))),
    (EVERY_OTHER, fsdp(2, **experts(**SEQUENCE))),
    (EVERY_OTHER, fsdp(2, **experts(**PIPELINE))),
)


def test_a_token_is_answered_by_its_most_likely_experts_in_proportion() -> None:
    block = sparse_block(experts_per_token=2)
    tokens = torch.randn(5, 64, generator=torch.Generator().manual_seed(1))
    for token, answer in zip(tokens, block(tokens[None])[0], strict=True):
        likely = block.routed.router(token).softmax(-1).topk(2)
        weights = likely.values / likely.values.sum()
        answers = [expert_answer(block.routed.experts, int(expert), token) for expert in likely.indices]
        expected = (torch.stack(answers) * weights[:, None]).sum(0)
        assert torch.allclose(answer, expected, atol=1e-7)  # values are of the order of 1e-4


def test_an_expert_that_nobody_chooses_has_a_gradient_of_zero() -> None:
    block = sparse_block(experts_per_token=1)
    block(torch.ones(1, 3, 64)).sum().backward()  # equal tokens choose equally
    gradient = block.routed.experts.up.grad
    assert gradient is not None
    assert sorted(bool(of_one.any()) for of_one in gradient) == [False, False, False, True]


def test_a_balancing_bias_moves_the_choice_and_no_share() -> None:
    block = sparse_block(experts_per_token=1, router_bias=True)
    tokens = torch.randn(1, 4, 64, generator=torch.Generator().manual_seed(1))
    block.routed.balance[3] = 10.0
    expected = torch.stack([expert_answer(block.routed.experts, 3, token) for token in tokens[0]])
    assert torch.allclose(block(tokens)[0], expected, atol=1e-7)  # values are of the order of 1e-4


def sparse_block(**changes: Any) -> Any:
    experts = replace(ROUTED, **changes)
    with torch.device("meta"):
        block = SparseFeedForward(tiny_model(), experts, ALL_EXPERTS)
    materialise(block, "mlp", seed=0, device=torch.device("cpu"), dtype=torch.float32)
    return block


def expert_answer(experts: Experts, index: int, token: Tensor) -> Tensor:
    assert experts.gate is not None
    inner = functional.silu(experts.gate[index] @ token) * (experts.up[index] @ token)
    return experts.down[index] @ inner


@for_each(ALWAYS, oracle=MORE)
def test_a_mixture_of_experts_trains_as_on_a_single_process(
    model: TransformerSpec, layout: Layout, trainer: Trainer
) -> None:
    trainer.assert_alike(layout, model)
