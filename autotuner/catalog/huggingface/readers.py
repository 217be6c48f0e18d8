"""Which function reads which ``model_type``, and how the language model of a larger document is found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from autotuner.catalog.huggingface import dense, gpt, latent, sparse
from autotuner.catalog.huggingface.keys import Config
from autotuner.catalog.huggingface.shapes import untold_modules
from autotuner.core.errors import InvalidInput
from autotuner.core.model import TransformerSpec

__all__ = ["MODEL_TYPES", "from_config"]

_READERS: dict[str, Callable[[Config, str], TransformerSpec]] = {
    "llama": dense.llama,
    "mistral": dense.mistral,
    "ministral": dense.mistral,
    "ministral3": dense.mistral,
    "qwen2": dense.qwen2,
    "qwen3": dense.qwen3,
    "phi3": dense.phi3,
    "granite": dense.llama,
    "internlm3": dense.llama,
    "gemma": dense.gemma,
    "gemma2": dense.gemma2,
    "gemma3_text": dense.gemma3,
    "glm": dense.glm,
    "glm4": dense.glm4,
    "olmo": dense.olmo,
    "olmo2": dense.olmo2,
    "olmo3": dense.olmo3,
    "starcoder2": dense.starcoder2,
    "nemotron": dense.nemotron,
    "smollm3": dense.smollm3,
    "seed_oss": dense.seed_oss,
    "ernie4_5": dense.ernie,
    "hunyuan_v1_dense": dense.hunyuan,
    "exaone4": dense.exaone4,
    "stablelm": dense.stablelm,
    "arcee": dense.arcee,
    "cohere": gpt.cohere,
    "cohere2": gpt.cohere2,
    "falcon": gpt.falcon,
    "gpt2": gpt.gpt2,
    "gpt_bigcode": gpt.gpt_bigcode,
    "gptj": gpt.gptj,
    "gpt_neox": gpt.gpt_neox,
    "phi": gpt.phi,
    "opt": gpt.opt,
    "bloom": gpt.bloom,
    "mpt": gpt.mpt,
    "mixtral": sparse.mixtral,
    "llama4_text": sparse.llama4,
    "qwen2_moe": sparse.qwen2_moe,
    "qwen3_moe": sparse.qwen3_moe,
    "gpt_oss": sparse.gpt_oss,
    "phimoe": sparse.phimoe,
    "olmoe": sparse.olmoe,
    "glm4_moe": sparse.glm4_moe,
    "granitemoe": sparse.granite_moe,
    "granitemoeshared": sparse.granite_moe,
    "minimax_m2": sparse.minimax_m2,
    "ernie4_5_moe": sparse.ernie_moe,
    "dots1": sparse.dots1,
    "deepseek_v2": latent.deepseek_v2,
    "deepseek_v3": latent.deepseek_v3,
    "deepseek_v32": latent.deepseek_v32,
    "glm_moe_dsa": latent.deepseek_v32,
    "glm4_moe_lite": latent.glm4_moe_lite,
    "kimi_linear": latent.kimi_linear,
    "qwen3_next": latent.qwen3_next,
    "qwen3_5_text": latent.qwen3_5,
    "qwen3_5_moe_text": latent.qwen3_next,
}

_ALSO: dict[str, str] = {
    "kimi_k2": "deepseek_v3",
    "kimi_k25": "deepseek_v3",
    "kimi_vl": "deepseek_v3",
    "mistral3": "mistral",
    "llama4": "llama4_text",
    "gemma3": "gemma3_text",
    "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen3_vl": "qwen3",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe": "qwen3_moe",
    "qwen3_vl_moe_text": "qwen3_moe",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "glm4v_moe": "glm4_moe",
    "glm4v_moe_text": "glm4_moe",
    "llava": "llama",
    "llava_next": "llama",
}
"""Other names of a type, and what the language model of a larger document is where that does not say so itself."""

_INNER_DEFAULTS: dict[str, Mapping[str, int]] = {
    "gemma3_text": {
        "vocab_size": 262_208,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
    },
    "llama4_text": {
        "vocab_size": 202_048,
        "hidden_size": 5120,
        "intermediate_size": 8192,
        "intermediate_size_mlp": 16_384,
        "num_hidden_layers": 48,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "num_local_experts": 16,
        "num_experts_per_tok": 1,
    },
}
"""What a document inside another one may leave out, since it is written as its differences to these defaults
(``Gemma3TextConfig`` and ``Llama4TextConfig`` of transformers 5.23.0): that of Gemma 3 4B has no heads."""

MODEL_TYPES: tuple[str, ...] = (*_READERS, *_ALSO)
"""Values of ``model_type`` that ``from_config`` reads."""


def from_config(document: Mapping[str, Any], name: str) -> TransformerSpec:
    """The model that a parsed ``config.json`` describes; of one that also sees or hears, the language model.

    Raises:
        InvalidInput: ``model_type`` is unknown, or a field is missing or does not fit; it names the field.
    """
    config = Config(document)
    inner = config.inner("text_config")
    if inner is None:
        return _reader(config, "model_type")(config, name)
    language = _language_model(config, inner)
    spec = _reader(language, "text_config.model_type")(language, name)
    return replace(spec, approximations=(*spec.approximations, *untold_modules(config)))


def _language_model(config: Config, inner: Config) -> Config:
    """The inner document with what only the outer one says, and with what it may leave out."""
    outer = {key: config.document[key] for key in ("model_type", "tie_word_embeddings") if config.has(key)}
    given = {key: value for key, value in inner.document.items() if value is not None or key == "sliding_window"}
    model_type = str(given.get("model_type", outer.get("model_type")))
    return Config({**_INNER_DEFAULTS.get(_ALSO.get(model_type, model_type), {}), **outer, **given})


def _reader(config: Config, field: str) -> Callable[[Config, str], TransformerSpec]:
    model_type = config.model_type
    if not isinstance(model_type, str):
        raise InvalidInput(field, model_type, f"must be one of {', '.join(MODEL_TYPES)}")
    known = _ALSO.get(model_type, model_type)
    if known not in _READERS:
        near = get_close_matches(model_type.lower(), MODEL_TYPES, 1, cutoff=0.4)
        rule = f"is none of the types that are read: {', '.join(MODEL_TYPES)}"
        raise InvalidInput(field, model_type, rule, near[0] if near else None)
    return _READERS[known]
