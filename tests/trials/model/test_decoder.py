from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.model import TransformerSpec
from tests.builders import tiny_model
from trials.batches.documents import WHOLE_ROWS, Documents
from trials.model.attention import attend
from trials.model.decoder import Decoder, TokenPositions, every_position, rotary_table, rotate
from trials.model.weights import materialise

SEQ_LEN = 16
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
        model = Decoder(spec, seq_len=SEQ_LEN, layers=range(spec.num_layers), **choices)
    for name, child in model.named_children():
        materialise(child, name, seed=0, device=torch.device("cpu"), dtype=torch.float32)
    return model


def tokens(spec: TransformerSpec, num_sequences: int = 2) -> Tensor:
    return torch.randint(spec.vocab_size, (num_sequences, SEQ_LEN), generator=torch.Generator().manual_seed(0))


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
    assert counter.get_total_flops() == spec.model_flop_per_token(SEQ_LEN) * inputs.numel()


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
        part = Decoder(spec, seq_len=SEQ_LEN, layers=layers)
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
