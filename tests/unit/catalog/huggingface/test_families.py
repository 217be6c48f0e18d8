"""Configurations of Hugging Face, by family of models, and what parameters they have."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.catalog.huggingface import MODEL_TYPES, from_config
from autotuner.catalog.models import load_model, models
from autotuner.core.errors import InvalidInput
from autotuner.core.model import TransformerSpec
from tests.cases import each
from tests.unit.catalog.huggingface.families import PAGE, page_rows
from tests.unit.catalog.huggingface.published import Published, config, published
from tests.unit.catalog.huggingface.transformers_models import num_parameters


# ---------------------------------------------------------------- families
def read(name: str, **changes: Any) -> TransformerSpec:
    return from_config(config(name, **changes), name)


# ---------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("model_type", "nearest"),
    [("qwen4", "qwen3"), ("llama5", "llama"), ("Mistral", "mistral"), ("deepseek_v3_lite", "deepseek_v3")],
)
def test_an_unknown_type_is_refused_with_the_nearest_known_one(model_type: str, nearest: str) -> None:
    with pytest.raises(InvalidInput, match="llama, mistral, ministral") as caught:
        from_config({"model_type": model_type}, "x")
    assert (caught.value.field, caught.value.nearest) == ("model_type", nearest)


@pytest.mark.parametrize("model_type", [None, 3, ["llama"]])
def test_a_type_that_is_no_word_is_refused_with_the_known_ones(model_type: object) -> None:
    with pytest.raises(InvalidInput, match="llama, mistral, ministral") as caught:
        from_config({"model_type": model_type}, "x")
    assert caught.value.field == "model_type"


FLAT = [model for model in published() if "text_config" not in model.config]


@each("model", FLAT, ids=lambda model: model.name)
def test_a_missing_shape_is_named(model: Published) -> None:
    document = {key: value for key, value in model.config.items() if key != "vocab_size"}
    with pytest.raises(InvalidInput, match=f"required for model_type {model.model_type}") as caught:
        from_config(document, "x")
    assert caught.value.field == "vocab_size"


@pytest.mark.parametrize("value", [0, -4, "4096", 4096.0, True, 10**30])
def test_a_shape_that_is_no_count_is_named(value: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        read("llama-3-8b", hidden_size=value)
    assert (caught.value.field, caught.value.value) == ("hidden_size", value)


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("llama-3-8b", "tie_word_embeddings", "no"),
        ("mistral-small-3.1-24b", "text_config", "mistral"),
        ("gpt-oss-20b", "layer_types", "sliding_attention"),
        ("gpt-oss-20b", "layer_types", [1, 2]),
        ("qwen3-30b-a3b", "mlp_only_layers", 3),
        ("qwen3-30b-a3b", "mlp_only_layers", [3]),
        ("deepseek-v3", "moe_layer_freq", 2),
        ("deepseek-v3", "attention_bias", True),
        ("opt-6.7b", "word_embed_proj_dim", 512),
        ("opt-6.7b", "do_layer_norm_before", False),
        ("phi-2", "qk_layernorm", True),
        ("ernie-4.5-21b-a3b", "moe_layer_end_index", 20),
        ("ernie-4.5-21b-a3b", "use_bias", True),
        ("glm-4.7-flash", "mlp_layer_types", ["dense", "sparse", "dense"]),
    ],
)
def test_an_underivable_setting_is_refused_by_its_key(name: str, field: str, value: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(name, **{field: value})
    assert caught.value.field == field


def test_heads_that_do_not_divide_the_hidden_size_are_named() -> None:
    with pytest.raises(InvalidInput) as caught:
        read("mistral-7b", num_attention_heads=33)
    assert caught.value.field == "num_attention_heads"


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@given(model=st.sampled_from(published()), data=st.data())
def test_any_document_is_read_or_refused(model: Published, data: st.DataObject) -> None:
    keys = sorted({*model.config} - {"model_type"})
    changed = data.draw(st.dictionaries(st.sampled_from(keys), _VALUES, max_size=4))
    try:
        spec = from_config({**model.config, **changed}, "x")
    except InvalidInput:
        return
    assert spec.num_parameters >= spec.num_active_parameters > 0


@given(model_type=st.sampled_from(MODEL_TYPES), document=st.dictionaries(st.text(max_size=8), _VALUES, max_size=5))
def test_a_document_that_only_names_its_type_is_refused(model_type: str, document: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        from_config({**document, "model_type": model_type}, "x")


# ---------------------------------------------------------------- what is read


def test_missing_keys_are_guessed_only_where_transformers_does() -> None:
    assert read("llama-3-8b", head_dim=None).head_dim == 128
    assert read("gpt2", n_inner=None).ffn_size == 3072
    plain, shared = config("llama-3-8b"), config("mistral-7b")
    del plain["num_key_value_heads"], shared["num_key_value_heads"]
    assert from_config(plain, "x").num_kv_heads == 32
    with pytest.raises(InvalidInput, match="required for model_type mistral"):
        from_config(shared, "x")
    assert read("llama-3-8b", head_dim=64).query_size == 2048


@pytest.mark.parametrize("spelling", ["num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"])
@pytest.mark.parametrize("name", ["mixtral-8x7b", "qwen3-30b-a3b", "gpt-oss-20b"])
def test_the_number_of_experts_is_read_in_every_spelling(name: str, spelling: str) -> None:
    document = {key: value for key, value in config(name).items() if key not in ("num_experts", "num_local_experts")}
    spec = from_config({**document, spelling: 16}, "x")
    assert spec.experts is not None
    assert spec.experts.num_experts == 16


def test_newer_spellings_that_say_nothing_of_shapes_change_nothing() -> None:
    rope = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0}
    newer = read("llama-3-8b", rope_parameters=rope, dtype="bfloat16", quantization_config={"quant_method": "fp8"})
    assert newer == read("llama-3-8b", rope_scaling=None, rope_theta=5e5, torch_dtype="bfloat16")


def test_the_language_model_of_a_larger_document_is_read_with_its_defaults_and_the_rest_is_said() -> None:
    spec = read("mistral-small-3.1-24b")
    alone = from_config(config("mistral-small-3.1-24b")["text_config"], spec.name)
    assert spec.num_parameters == alone.num_parameters
    assert "without the vision tower" in spec.approximations[-1]
    gemma = read("gemma-3-4b")
    assert (gemma.num_heads, gemma.num_kv_heads, gemma.head_dim, gemma.vocab_size) == (8, 4, 256, 262_208)
    llama4 = from_config({"model_type": "llama4", "text_config": {}}, "x")
    assert llama4.num_parameters == read("llama-4-scout").num_parameters
    with pytest.raises(InvalidInput) as caught:
        from_config({"model_type": "llava", "text_config": {"model_type": "mamba2"}}, "x")
    assert (caught.value.field, caught.value.value) == ("text_config.model_type", "mamba2")
    outer = {"model_type": "qwen3_vl", "tie_word_embeddings": True}
    inner = {key: value for key, value in config("qwen3-8b").items() if key != "tie_word_embeddings"}
    assert from_config({**outer, "text_config": inner}, "x").tied_embeddings
    told = {**inner, "tie_word_embeddings": False}
    assert not from_config({**outer, "text_config": told}, "x").tied_embeddings


@pytest.mark.parametrize(
    ("name", "window", "windowed"),
    [
        ("mistral-7b", 4096, 32),
        ("ministral-8b", 32768, 27),
        ("ministral-3-8b", 0, 0),
        ("mixtral-8x7b", 0, 0),
        ("qwen2-7b", 0, 0),
        ("gemma-2-9b", 4096, 21),
        ("gemma-3-1b", 512, 22),
        ("gemma-3-4b", 1024, 29),
        ("gpt-oss-20b", 128, 12),
        ("olmo-3-7b", 4096, 24),
        ("command-r7b", 4096, 24),
        ("phi-3-mini", 2047, 32),
        ("phi-4", 0, 0),
        ("llama-4-scout", 4096, 36),
        ("exaone-4.0-32b", 4096, 48),
    ],
)
def test_windows_are_read_with_the_layers_that_have_them(name: str, window: int, windowed: int) -> None:
    spec = read(name)
    assert (spec.attention_window, spec.num_windowed_layers) == (window, windowed)


@pytest.mark.parametrize(
    ("name", "every"),
    [("gemma-2-9b", 2), ("gemma-3-1b", 6), ("gpt-oss-20b", 2), ("olmo-3-7b", 4), ("exaone-4.0-32b", 4)],
)
def test_without_a_list_of_kinds_every_nth_layer_has_no_window(name: str, every: int) -> None:
    spec = read(name, layer_types=None)
    assert spec.num_windowed_layers == spec.num_layers - spec.num_layers // every


def test_windows_of_qwen_are_switched_on_and_begin_at_a_layer() -> None:
    on = read("qwen2-7b", use_sliding_window=True, max_window_layers=20, sliding_window=1024)
    assert (on.attention_window, on.num_windowed_layers) == (1024, 8)


def test_layers_of_experts_are_described_by_number_by_rhythm_or_not_at_all() -> None:
    leading = read("qwen3-30b-a3b", mlp_only_layers=[0, 1])
    every_third = read("qwen3-30b-a3b", decoder_sparse_step=3)
    assert (leading.num_sparse_layers, every_third.num_sparse_layers) == (46, 16)
    assert read("llama-4-maverick").num_sparse_layers == 24
    assert read("deepseek-v3", first_k_dense_replace=0).num_sparse_layers == 61
    huge = {"num_hidden_layers": 2**40, "moe_layers": [0, 1], "interleave_moe_layer_step": 1}
    with pytest.raises(InvalidInput, match="moe_layers"):
        from_config({"model_type": "llama4", "text_config": huge}, "x")
    dense = read("deepseek-v3", n_routed_experts=None, n_shared_experts=None)
    assert dense.experts is None


def test_linear_layers_are_described_by_a_list_or_by_a_rhythm() -> None:
    assert read("qwen3-next-80b-a3b").num_linear_layers == 36
    assert read("kimi-linear-48b-a3b").num_linear_layers == 20
    kinds = ["full_attention"] * 24 + ["linear_attention"] * 24
    assert read("qwen3-next-80b-a3b", layer_types=kinds).num_linear_layers == 24


def test_layers_that_predict_further_tokens_are_said_to_be_left_out() -> None:
    assert any("multi-token prediction" in sentence for sentence in read("deepseek-v3").approximations)
    assert read("kimi-k2").approximations == ()


@each("model", published(), ids=lambda model: model.name)
def test_the_description_of_a_model_ends_without_a_full_stop(model: Published) -> None:
    assert not any(sentence.endswith(".") for sentence in from_config(model.config, "x").approximations)


# ---------------------------------------------------------------- parameters
every_model = pytest.mark.parametrize("model", published(), ids=lambda model: model.name)

READ_AS_ANOTHER = {
    *("kimi_vl", "gemma3", "llama4", "mistral3", "kimi_k25", "llava", "llava_next", "qwen3_5", "qwen3_5_moe"),
    *("qwen2_vl", "qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl", "qwen3_vl_text", "qwen3_vl_moe", "qwen3_vl_moe_text"),
    *("glm4v_moe", "glm4v_moe_text"),
}
"""Documents around a language model of a type that is tried, or other names of one."""


@every_model
def test_a_family_has_as_many_parameters_as_transformers_builds(model: Published) -> None:
    assert from_config(model.config, model.name).num_parameters == num_parameters(model)


def test_a_model_of_every_type_is_tried() -> None:
    assert {model.model_type for model in published()} == {*MODEL_TYPES} - READ_AS_ANOTHER


@every_model
def test_the_page_says_what_was_counted(model: Published) -> None:
    total = from_config(model.config, model.name).num_parameters
    (row,) = (row for row in page_rows(PAGE.read_text(encoding="utf-8")) if row.name == model.name)
    assert (row.model_type, row.total, row.by_transformers) == (model.model_type, total, total)


@each("name", sorted({model.name for model in published()} & {*models()}))
def test_a_model_of_the_catalog_is_what_its_config_describes(name: str) -> None:
    (model,) = (model for model in published() if model.name == name)
    assert from_config(model.config, name) == load_model(name)
