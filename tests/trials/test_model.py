from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.choices import AttentionKernel, ContextExchange, Precision, Recompute, ShardLevel
from autotuner.core.layout import Layout
from autotuner.core.model import Norm, TransformerSpec
from autotuner.training.batches import NO_LABEL, WHOLE_ROWS, Documents
from autotuner.trials import model as model_package
from autotuner.trials.model.attention import attend, attention_core, kernel_context
from autotuner.trials.model.decoder import (
    Decoder,
    Layer,
    TokenPositions,
    cross_entropy,
    every_position,
    materialise,
    norm,
    parameter_dtype,
    rotary_table,
    rotate,
)
from autotuner.trials.model.experts import (
    ALL_EXPERTS,
    Experts,
    LocalExperts,
    SparseFeedForward,
    count_on_host,
    histogram,
    inverse,
    permuted,
)
from tests.builders import cpu_layout, tiny_model
from tests.trials.agreement import Trainer, for_each
from tests.trials.specs import CONTEXT, GPT_2, HEAD_NORMS, PIPELINE, SEQUENCE, TENSOR, ddp, fsdp

# ---------------------------------------------------------------- attention
SEQ_LEN = 150  # a block and a part of one
CPU = torch.device("cpu")
ALL = slice(None)
MATH, FLASH, FLEX = AttentionKernel.MATH, AttentionKernel.FLASH, AttentionKernel.FLEX


def heads(num_heads: int, seed: int) -> Tensor:
    return torch.randn(2, SEQ_LEN, num_heads, 16, generator=torch.Generator().manual_seed(seed))


def attended(kernel: AttentionKernel, num_kv_heads: int, documents: Documents = (), tokens: slice = ALL) -> Tensor:
    core = attention_core(kernel, seq_len=SEQ_LEN, device=CPU)
    with torch.no_grad(), kernel_context(cpu_layout(attention_kernel=kernel)):
        q, k, v = (heads(num, seed)[:, tokens] for num, seed in ((4, 0), (num_kv_heads, 1), (num_kv_heads, 2)))
        return core(q, k, v, documents)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")  # as is meant on a CPU
@pytest.mark.parametrize("num_kv_heads", [4, 2])
@pytest.mark.parametrize("kernel", [FLASH, FLEX], ids=str)
def test_every_kernel_attends_alike(kernel: AttentionKernel, num_kv_heads: int) -> None:
    # weights of up to 150 tokens are summed in another order, each rounded by 6e-8
    torch.testing.assert_close(attended(kernel, num_kv_heads), attended(MATH, num_kv_heads), rtol=1e-5, atol=1e-6)


def test_attention_is_causal_scaled_and_sums_to_one() -> None:
    ones = torch.ones(1, SEQ_LEN, 1, 16)
    positions = torch.arange(float(SEQ_LEN)).reshape(1, SEQ_LEN, 1, 1).expand(1, SEQ_LEN, 1, 16)
    with kernel_context(cpu_layout(attention_kernel=MATH)):
        means = attend(ones, ones, positions)  # equal scores: each token sees the mean of the positions up to its own
    torch.testing.assert_close(means, positions / 2, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")  # as is meant on a CPU
@pytest.mark.parametrize("kernel", [MATH, FLASH, FLEX], ids=str)
def test_documents_of_a_row_attend_each_to_itself_by_every_kernel(kernel: AttentionKernel) -> None:
    documents = (100, 1, 49)
    whole = attended(kernel, 2, documents)
    alone = attended(kernel, 2, tokens=slice(101, 150))
    # weights of up to 150 tokens are summed in another order, each rounded by 6e-8
    torch.testing.assert_close(whole[:, 101:], alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kernel", [AttentionKernel.EFFICIENT, AttentionKernel.CUDNN], ids=str)
def test_a_kernel_that_the_device_lacks_is_not_quietly_replaced(kernel: AttentionKernel) -> None:
    with (
        kernel_context(cpu_layout(attention_kernel=kernel)),
        pytest.raises(RuntimeError, match="No viable backend"),
    ):
        attend(heads(4, 0), heads(4, 1), heads(4, 2))


# ---------------------------------------------------------------- decoder
DECODER_SEQ_LEN = 16
EXPERTS = MixtureOfExperts(num_experts=4, experts_per_token=2, expert_ffn_size=24)
DEEPSEEK = replace(EXPERTS, num_shared_experts=2, num_dense_layers=1, router_bias=True)
SHAPES: tuple[dict[str, Any], ...] = (
    {},
    {"num_kv_heads": 4, "head_dim": 24, "vocab_size": 77},
    {"qk_norm": True, "attention_bias": "qkv"},
    {"gated_mlp": False, "mlp_bias": True, "attention_bias": "all", "norm": "layernorm", "num_learned_positions": 32},
    {"experts": EXPERTS, "gated_mlp": False},
    {"experts": DEEPSEEK},
    {"experts": replace(EXPERTS, num_shared_experts=1, shared_expert_ffn_size=40, sparse_layer_interval=2)},
    {"norm": "layernorm_without_bias"},
    {"norm": "layernorm_without_weights"},
)


def decoder(spec: TransformerSpec, **choices: Any) -> Decoder:
    with torch.device("meta"):
        model = Decoder(spec, seq_len=DECODER_SEQ_LEN, layers=range(spec.num_layers), **choices)
    for name, child in model.named_children():
        materialise(child, name, seed=0, device=torch.device("cpu"), dtype=torch.float32)
    return model


def tokens(spec: TransformerSpec, num_sequences: int = 2) -> Tensor:
    return torch.randint(spec.vocab_size, (num_sequences, DECODER_SEQ_LEN), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_decoder_has_as_many_parameters_as_its_spec_says(shape: dict[str, Any]) -> None:
    spec = tiny_model(**shape)
    model = decoder(spec)
    # the routers' balancing biases count in published sizes, and are buffers: nothing trains them
    assert sum(tensor.numel() for tensor in (*model.parameters(), *model.buffers())) == spec.num_parameters


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_training_step_costs_exactly_the_model_flop_of_the_formula(shape: dict[str, Any]) -> None:
    spec = tiny_model(**shape)
    model, inputs = decoder(spec), tokens(spec)
    # the fused CPU kernel has no FLOP formula in torch, so it would be counted as nothing
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model(inputs).sum().backward()
    assert counter.get_total_flops() == spec.model_flop_per_token(DECODER_SEQ_LEN) * inputs.numel()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_token_changes_no_logits_before_it(shape: dict[str, Any]) -> None:
    spec = tiny_model(**shape)
    model, inputs = decoder(spec), tokens(spec)
    changed = inputs.clone()
    changed[:, 8] = (changed[:, 8] + 1) % spec.vocab_size
    before, after = model(inputs), model(changed)
    assert torch.equal(before[:, :8], after[:, :8])
    assert not torch.allclose(before[:, 8:], after[:, 8:])


def test_rotated_queries_and_keys_meet_by_their_distance_alone() -> None:
    query, key = torch.randn(2, 1, 1, 1, 32, generator=torch.Generator().manual_seed(0)).expand(2, 1, 8, 1, 32)
    table = rotary_table(torch.arange(8), 32)
    scores = (rotate(query, table)[0, :, 0] @ rotate(key, table)[0, :, 0].T).diagonal(offset=-3)
    assert torch.allclose(scores, scores[0].expand_as(scores), rtol=1e-4)  # fp32 angles of up to 7 radians


def test_the_parts_of_a_decoder_compute_what_the_whole_does() -> None:
    spec = tiny_model(num_layers=3)
    whole, inputs = decoder(spec), tokens(spec)
    hidden = inputs
    for layers in (range(2), range(2, 3)):
        part = Decoder(spec, seq_len=DECODER_SEQ_LEN, layers=layers)
        part.load_state_dict({name: whole.state_dict()[name] for name in part.state_dict()})
        hidden = part(hidden)
    assert torch.equal(hidden, whole(inputs))


@pytest.mark.parametrize("num_learned_positions", [0, 32])
def test_a_part_of_a_sequence_has_the_positions_that_it_has_in_the_whole(num_learned_positions: int) -> None:
    spec = tiny_model(num_learned_positions=num_learned_positions)
    held, inputs = torch.tensor([2, 3, 11, 12]), tokens(spec)
    part = first_queries(spec, inputs[:, held], lambda num_tokens, device: held)
    assert torch.equal(part, first_queries(spec, inputs, every_position)[:, held])


def first_queries(spec: TransformerSpec, inputs: Tensor, positions: TokenPositions) -> Tensor:
    """What the first layer attends with, its position included."""
    seen: list[Tensor] = []

    def core(q: Tensor, k: Tensor, v: Tensor, documents: Documents = WHOLE_ROWS, /) -> Tensor:
        seen.append(q)
        return attend(q, k, v, documents)

    decoder(spec, token_positions=positions, core=core)(inputs)
    return seen[0]


# ---------------------------------------------------------------- experts
ROUTED = MixtureOfExperts(num_experts=4, experts_per_token=2, expert_ffn_size=32)
MIXTRAL = tiny_model(name="mixtral", experts=ROUTED)
EXPERTS_DEEPSEEK = tiny_model(
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


ALWAYS = ((replace(EXPERTS_DEEPSEEK, num_layers=2), fsdp(2, **experts(**FULL))),)
MORE = (
    (EXPERTS_DEEPSEEK, cpu_layout(micro_batch_size=4, **FULL)),
    (EXPERTS_DEEPSEEK, cpu_layout(micro_batch_size=4, **SELECTIVE)),
    (EXPERTS_DEEPSEEK, fsdp(2, micro_batch_size=2)),
    (EXPERTS_DEEPSEEK, cpu_layout(micro_batch_size=4, **SEQUENCE)),
    (PLAIN, fsdp(2, micro_batch_size=4, **SEQUENCE)),
    (EXPERTS_DEEPSEEK, ddp(2, micro_batch_size=4, **TENSOR)),
    (EXPERTS_DEEPSEEK, fsdp(2, **experts(**SELECTIVE))),
    (EXPERTS_DEEPSEEK, fsdp(4, **experts())),
    (MIXTRAL, fsdp(4, **experts(4))),
    (MIXTRAL, fsdp(4, **experts(reshard_after_forward=True))),
    (EXPERTS_DEEPSEEK, replace(fsdp(4, **experts()), shard_level=ShardLevel.GRADIENTS)),
    (TWO, fsdp(4, **experts())),  # one expert on each of two shards: its matrices are cut
    (MIXTRAL, fsdp(2, **experts(4, **CONTEXT))),
    (EXPERTS_DEEPSEEK, fsdp(2, **experts(context_exchange=ContextExchange.ALL_GATHER, **CONTEXT))),
    (EXPERTS_DEEPSEEK, cpu_layout(**experts(**SEQUENCE))),
    (EXPERTS_DEEPSEEK, fsdp(2, **experts(**TENSOR))),
    (MIXTRAL, fsdp(2, **experts(4, **SEQUENCE))),
    (EXPERTS_DEEPSEEK, fsdp(2, **experts(4, **SEQUENCE, **PIPELINE))),
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


# ---------------------------------------------------------------- loss
def test_equal_logits_cost_the_logarithm_of_the_vocabulary_and_a_token_without_a_label_nothing() -> None:
    loss = cross_entropy(torch.zeros(2, 3, 10), torch.zeros(2, 3, dtype=torch.long))
    assert loss.item() == pytest.approx(6 * math.log(10), rel=1e-6)  # a few fp32 roundings
    labels = torch.tensor([[1, NO_LABEL, 2]])
    logits = torch.randn(1, 3, 10, generator=torch.Generator().manual_seed(0))
    kept = cross_entropy(logits[:, [0, 2]], labels[:, [0, 2]])
    assert torch.equal(cross_entropy(logits, labels), kept)


def test_bf16_logits_are_judged_in_fp32() -> None:
    logits = torch.randn(2, 3, 10, generator=torch.Generator().manual_seed(0)).bfloat16()
    labels = torch.zeros(2, 3, dtype=torch.long)
    assert torch.equal(cross_entropy(logits, labels), cross_entropy(logits.float(), labels))


# ---------------------------------------------------------------- norm
WIDTH = 64
NORMS: tuple[Norm, ...] = ("rmsnorm", "layernorm", "layernorm_without_bias", "layernorm_without_weights")
SPECS = tuple(tiny_model(norm=kind) for kind in NORMS)
PLAIN_NORM = (tiny_model(norm="layernorm_without_weights"), fsdp(2, **SEQUENCE, micro_batch_size=4, fused_norm=False))
RMS_NORM = (replace(HEAD_NORMS, num_layers=2), cpu_layout(**SEQUENCE, micro_batch_size=4, fused_norm=False))
LAYER_NORM = (GPT_2, fsdp(2, **TENSOR, micro_batch_size=4, fused_norm=False))


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.norm)
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [
        (torch.float32, 1e-6),  # a few roundings of 6e-8
        (torch.bfloat16, 2**-7),  # the two may round to neighbouring bf16 values, which are 2^-7 apart
    ],
)
def test_a_composed_norm_computes_what_the_fused_one_does(
    spec: TransformerSpec, dtype: torch.dtype, tolerance: float
) -> None:
    x = 3 * torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(0)) + 1
    fused, composed = (norm(spec, WIDTH, fused=is_fused).to(dtype) for is_fused in (True, False))
    with torch.no_grad():
        for parameter in fused.parameters():
            parameter.normal_(1.0, 0.5, generator=torch.Generator().manual_seed(1))
    composed.load_state_dict(fused.state_dict())
    torch.testing.assert_close(composed(x.to(dtype)), fused(x.to(dtype)), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.norm)
def test_both_norms_have_the_same_parameters_by_the_same_names(spec: TransformerSpec) -> None:
    fused, composed = (dict(norm(spec, WIDTH, fused=is_fused).named_parameters()) for is_fused in (True, False))
    assert {name: p.shape for name, p in fused.items()} == {name: p.shape for name, p in composed.items()}


@for_each([RMS_NORM], oracle=[LAYER_NORM, PLAIN_NORM])
def test_composed_norms_train_like_fused_ones_of_a_single_process(
    model: TransformerSpec, layout: Layout, trainer: Trainer
) -> None:
    trainer.assert_alike(layout, model)


# ---------------------------------------------------------------- routing
def test_indices_are_counted_absent_ones_too_and_without_values_nobody_has_a_preference() -> None:
    assert count_on_host(histogram(torch.tensor([2, 0, 2]), 4), total=3) == [1, 0, 2, 0]
    with FakeTensorMode():
        counts = histogram(torch.zeros(7, dtype=torch.long), 3)
    assert count_on_host(counts, total=7) == [3, 2, 2]


def test_rows_and_their_gradients_go_there_and_back() -> None:
    order = torch.tensor([2, 0, 3, 1])
    back = inverse(order)
    rows = torch.arange(8.0).view(4, 2).requires_grad_()
    there = permuted(rows, order, back)
    assert torch.equal(there, rows[order])
    assert torch.equal(permuted(there, back, order), rows)
    weights = torch.arange(4.0)[:, None]
    torch.autograd.backward([(there * weights).sum()])
    assert rows.grad is not None
    assert torch.equal(rows.grad, weights[back].expand(4, 2))


# ---------------------------------------------------------------- weights
def layer(path: str, seed: int = 0, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    with torch.device("meta"):
        module = Layer(tiny_model(attention_bias="qkv"), attend)
    materialise(module, path, seed=seed, device=torch.device("cpu"), dtype=dtype)
    return module.state_dict()


def test_a_tensor_has_the_same_values_whenever_it_is_made_and_others_in_each_layer_and_for_each_seed() -> None:
    base, again = layer("layers.1"), layer("layers.1")
    assert all(torch.equal(base[name], again[name]) for name in base)
    for other in (layer("layers.2"), layer("layers.1", seed=1)):
        assert not any(torch.equal(base[name], other[name]) for name in base if base[name].dim() == 2)


def test_norms_begin_at_one_biases_at_zero_and_a_bf16_model_as_the_fp32_model_rounded() -> None:
    exact, rounded = layer("layers.0"), layer("layers.0", dtype=parameter_dtype(Precision.BF16))
    assert torch.equal(exact["mlp_norm.weight"], torch.ones(64))
    assert torch.equal(exact["attention.query.bias"], torch.zeros(64))
    assert all(torch.equal(exact[name].bfloat16(), rounded[name]) for name in exact)


def test_a_tensor_of_the_whole_model_is_named_by_its_path() -> None:
    alone = nn.Linear(8, 8, bias=False, device="meta")
    materialise(alone, "output", seed=0, device=torch.device("cpu"), dtype=torch.float32)
    inside = nn.ModuleDict({"output": nn.Linear(8, 8, bias=False, device="meta")})
    materialise(inside["output"], "output", seed=0, device=torch.device("cpu"), dtype=torch.float32)
    assert torch.equal(alone.weight, inside["output"].state_dict()["weight"])


def test_an_expert_has_the_same_values_on_whichever_rank_it_lies() -> None:
    experts = MixtureOfExperts(num_experts=4, experts_per_token=2, expert_ffn_size=24, router_bias=True)
    spec = tiny_model(experts=experts)

    def values(share: LocalExperts) -> dict[str, torch.Tensor]:
        with torch.device("meta"):
            block = SparseFeedForward(spec, experts, share)
        materialise(block, "layers.2.mlp", seed=0, device=torch.device("cpu"), dtype=torch.float32)
        return block.state_dict()

    whole, half = values(ALL_EXPERTS), values(LocalExperts(rank=1, num_ranks=2))
    for name in ("gate", "up", "down"):
        assert torch.equal(half[f"routed.experts.{name}"], whole[f"routed.experts.{name}"][2:])
    assert len(torch.unique(whole["routed.experts.up"][:, 0, 0])) == 4
    assert torch.equal(whole["routed.router.weight"], half["routed.router.weight"])
    assert torch.equal(whole["routed.balance"], torch.zeros(4))


# ---------------------------------------------------------------- imports


MODULES = sorted(Path(next(iter(model_package.__path__))).glob("*.py"))


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_no_module_of_the_model_knows_ranks(module: Path) -> None:
    assert "torch.distributed" not in module.read_text()
