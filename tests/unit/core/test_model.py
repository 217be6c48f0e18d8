"""Parameter and FLOP counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.catalog.models import load_model
from autotuner.core.blocks import LinearAttention, MixtureOfExperts
from tests.builders import tiny_model

PUBLISHED_COUNTS = {
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "mistral-7b": 7_241_732_096,
    "qwen2-7b": 7_615_616_512,
    "qwen3-8b": 8_190_735_360,
    "gpt2": 124_439_808,
    "gpt-neox-20b": 20_554_567_680,
    "mixtral-8x7b": 46_702_792_704,
    "deepseek-v3": 671_026_419_200,
}


@pytest.mark.parametrize(("name", "count"), PUBLISHED_COUNTS.items())
def test_parameter_counts_equal_the_published_checkpoints(name: str, count: int) -> None:
    assert load_model(name).num_parameters == count


def test_parameters_are_those_of_layers_tables_and_the_final_norm_with_tied_tables_once() -> None:
    spec = tiny_model()
    attention = 64 * (64 + 2 * 2 * 16) + 64 * 64
    mlp = 3 * 64 * 128
    assert spec.num_layer_parameters == 4 * (attention + mlp + 2 * 64)
    assert spec.num_parameters == spec.num_layer_parameters + 2 * 256 * 64 + 64
    untied, tied = tiny_model(), tiny_model(tied_embeddings=True)
    assert untied.num_parameters - tied.num_parameters == untied.embedding_parameters
    spec = tiny_model()
    assert spec.num_active_parameters == spec.num_parameters


def test_a_token_meets_its_own_experts_and_six_flop_per_element_and_attention() -> None:
    mixtral = load_model("mixtral-8x7b")
    assert mixtral.experts is not None
    idle = mixtral.num_layers * (8 - 2) * mixtral.expert_matrix_parameters
    everything = replace(mixtral.experts, experts_per_token=8)
    busy = replace(mixtral, experts=everything)
    assert busy.num_active_matrix_parameters - mixtral.num_active_matrix_parameters == idle
    spec, seq_len = tiny_model(num_kv_heads=4), 64
    matrices = spec.num_layers * (4 * 64 * 64 + 3 * 64 * 128) + 256 * 64
    assert spec.model_flop_per_token(seq_len) == 6 * matrices + 12 * spec.num_layers * 64 * seq_len
    assert tiny_model(num_kv_heads=1).attention_flop_per_token(64) == tiny_model().attention_flop_per_token(64)
    # a matrix of 16 x 8 per head is read twice and written once for each token: 6 FLOP an element
    linear = LinearAttention(num_key_heads=2, num_value_heads=4, key_head_dim=16, value_head_dim=8)
    spec = tiny_model(linear_attention=linear, num_linear_layers=3)
    attending = 4 * 64 * 4 * 16  # one layer: scores and values
    assert spec.attention_flop_per_token(64) == attending + 3 * 6 * 4 * 16 * 8
    assert spec.attention_flop_per_token(128) - spec.attention_flop_per_token(64) == attending


@pytest.mark.parametrize(
    ("name", "billions"),
    [("mixtral-8x7b", 12.9), ("llama-3-8b", 8.0), ("qwen3-30b-a3b", 3.3)],  # as their model cards say, in two digits
)
def test_active_parameters_are_those_of_the_model_card(name: str, billions: float) -> None:
    assert load_model(name).num_active_parameters / 1e9 == pytest.approx(billions, rel=0.02)


@pytest.mark.parametrize(("num_dense", "interval"), [(0, 1), (2, 1), (0, 2), (3, 2), (1, 3)])
def test_sparse_layers_are_as_many_as_say_so_one_by_one(num_dense: int, interval: int) -> None:
    experts = MixtureOfExperts(
        num_experts=4,
        experts_per_token=1,
        expert_ffn_size=8,
        num_dense_layers=num_dense,
        sparse_layer_interval=interval,
    )
    assert experts.num_sparse(7) == sum(experts.is_sparse(layer) for layer in range(7))


def test_a_model_with_other_layers_keeps_the_shares_of_each_kind() -> None:
    linear = LinearAttention(num_key_heads=2, num_value_heads=4, key_head_dim=16, value_head_dim=8)
    spec = tiny_model(
        num_layers=12, attention_window=8, num_windowed_layers=3, linear_attention=linear, num_linear_layers=6
    ).with_num_layers(4)
    assert (spec.num_layers, spec.num_windowed_layers, spec.num_linear_layers) == (4, 1, 2)
