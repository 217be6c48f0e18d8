"""Reading a Hugging Face config.json; the fixtures hold the facts that are read and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autotuner.catalog.huggingface import MODEL_TYPES, from_config
from autotuner.catalog.load import load_model
from autotuner.errors import InvalidInput

CONFIGS = Path(__file__).parent / "configs"
SAME_AS_CATALOG = {
    "llama": "llama-3-8b",
    "mistral": "mistral-7b",
    "qwen2": "qwen2-7b",
    "qwen3": "qwen3-8b",
    "gpt2": "gpt2",
    "gpt_neox": "gpt-neox-20b",
    "mixtral": "mixtral-8x7b",
    "deepseek_v3": "deepseek-v3",
}


def config(model_type: str, **changes: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((CONFIGS / f"{model_type}.json").read_text(encoding="utf-8"))
    return {**document, **changes}


@pytest.mark.parametrize(("model_type", "name"), SAME_AS_CATALOG.items())
def test_a_published_config_describes_the_model_of_the_catalog(model_type: str, name: str) -> None:
    assert from_config(config(model_type), name) == load_model(name)


def test_qwen3_with_experts_has_its_published_size() -> None:
    # Qwen3-30B-A3B: 30.5 B parameters by its model card
    assert from_config(config("qwen3_moe"), "qwen3-30b-a3b").num_parameters == 30_532_122_624


def test_deepseek_v2_lite_does_not_compress_its_queries_and_has_its_published_size() -> None:
    # DeepSeek-V2-Lite: 15.7 B parameters by its model card
    lite = from_config(config("deepseek_v2"), "deepseek-v2-lite")
    assert lite.latent_attention is not None
    assert lite.latent_attention.query_rank is None
    assert lite.num_parameters == 15_706_484_224


def test_every_readable_type_has_a_fixture() -> None:
    assert {path.stem for path in CONFIGS.glob("*.json")} == set(MODEL_TYPES)


@pytest.mark.parametrize("model_type", ["bert", None, 3])
def test_an_unknown_model_type_is_refused_with_the_known_ones(model_type: object) -> None:
    with pytest.raises(InvalidInput, match="llama, mistral, qwen2") as caught:
        from_config({"model_type": model_type}, "x")
    assert caught.value.field == "model_type"


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_missing_shape_is_named(model_type: str) -> None:
    document = config(model_type)
    del document["vocab_size"]
    with pytest.raises(InvalidInput, match=f"required for model_type {model_type}") as caught:
        from_config(document, "x")
    assert caught.value.field == "vocab_size"


@pytest.mark.parametrize("value", [0, -4, "4096", 4096.0, True])
def test_a_shape_that_is_no_count_is_named(value: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        from_config(config("llama", hidden_size=value), "x")
    assert (caught.value.field, caught.value.value) == ("hidden_size", value)


def test_a_flag_that_is_no_flag_is_named() -> None:
    with pytest.raises(InvalidInput) as caught:
        from_config(config("llama", tie_word_embeddings="no"), "x")
    assert caught.value.field == "tie_word_embeddings"


def test_heads_that_do_not_divide_the_hidden_size_are_named() -> None:
    with pytest.raises(InvalidInput) as caught:
        from_config(config("mistral", num_attention_heads=33), "x")
    assert caught.value.field == "num_attention_heads"


def test_without_kv_heads_every_head_has_its_own() -> None:
    document = config("llama")
    del document["num_key_value_heads"]
    assert from_config(document, "x").num_kv_heads == 32


def test_null_means_missing() -> None:
    assert from_config(config("llama", head_dim=None), "x").head_dim == 128
    assert from_config(config("gpt2", n_inner=None), "x").ffn_size == 3072


def test_biases_of_a_llama_are_counted_when_it_has_them() -> None:
    plain, biased = from_config(config("llama"), "x"), from_config(config("llama", attention_bias=True), "x")
    assert biased.num_parameters - plain.num_parameters == 32 * (4096 + 2 * 1024 + 4096)


def test_deepseek_without_dense_layers_is_sparse_throughout() -> None:
    assert from_config(config("deepseek_v3", first_k_dense_replace=0), "x").num_sparse_layers == 61


@pytest.mark.parametrize(("field", "value"), [("decoder_sparse_step", 2), ("mlp_only_layers", [0])])
def test_sparse_layers_in_another_rhythm_are_refused(field: str, value: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        from_config(config("qwen3_moe", **{field: value}), "x")
    assert caught.value.field == field
