from __future__ import annotations

import torch
from torch import nn

from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.choices import Precision
from tests.builders import tiny_model
from trials.model.attention import attend
from trials.model.decoder import Layer
from trials.model.experts import ALL_EXPERTS, LocalExperts, SparseFeedForward
from trials.model.weights import materialise, parameter_dtype


def layer(path: str, seed: int = 0, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    with torch.device("meta"):
        module = Layer(tiny_model(attention_bias="qkv"), attend)
    materialise(module, path, seed=seed, device=torch.device("cpu"), dtype=dtype)
    return module.state_dict()


def test_a_tensor_has_the_same_values_whenever_it_is_made() -> None:
    first, second = layer("layers.1"), layer("layers.1")
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_layers_and_seeds_differ_in_every_matrix() -> None:
    base = layer("layers.1")
    for other in (layer("layers.2"), layer("layers.1", seed=1)):
        assert not any(torch.equal(base[name], other[name]) for name in base if base[name].dim() == 2)


def test_norms_begin_at_one_and_biases_at_zero() -> None:
    values = layer("layers.0")
    assert torch.equal(values["mlp_norm.weight"], torch.ones(64))
    assert torch.equal(values["attention.query.bias"], torch.zeros(64))


def test_a_bf16_model_is_the_fp32_model_rounded() -> None:
    exact, rounded = layer("layers.0"), layer("layers.0", dtype=parameter_dtype(Precision.BF16))
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
