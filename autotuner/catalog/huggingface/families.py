"""Families of models by ``model_type``, and the language model that a multimodal ``config.json`` contains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from autotuner.catalog.huggingface.config import Config, Table, read_model, untold_modules
from autotuner.catalog.huggingface.dense import GPTS, LLAMAS
from autotuner.catalog.huggingface.sparse import LATENT, SPARSE
from autotuner.core.errors import InvalidInput
from autotuner.core.model import TransformerSpec

_FAMILIES: Mapping[str, Table] = {**LLAMAS, **GPTS, **SPARSE, **LATENT}

_OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "deepseek_v3": ("kimi_k2", "kimi_k25", "kimi_vl"),
    "mistral": ("mistral3",),
    "llama4_text": ("llama4",),
    "gemma3_text": ("gemma3",),
    "qwen2": ("qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"),
    "qwen3": ("qwen3_vl", "qwen3_vl_text"),
    "qwen3_moe": ("qwen3_vl_moe", "qwen3_vl_moe_text"),
    "qwen3_5_text": ("qwen3_5",),
    "qwen3_5_moe_text": ("qwen3_5_moe",),
    "glm4_moe": ("glm4v_moe", "glm4v_moe_text"),
    "llama": ("llava", "llava_next"),
}
"""Other names of a model type, and names of multimodal documents that may leave out the type of their language
model."""

_ALSO = {other: name for name, others in _OTHER_NAMES.items() for other in others}

_SIZES = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads"),
)
_INNER_DEFAULTS: Mapping[str, Mapping[str, int]] = {
    "gemma3_text": dict(zip(_SIZES, (262_208, 2304, 9216, 26, 8, 4), strict=True)),
    "llama4_text": {
        **dict(zip(_SIZES, (202_048, 5120, 8192, 48, 40, 8), strict=True)),
        "intermediate_size_mlp": 16_384,
        "num_local_experts": 16,
        "num_experts_per_tok": 1,
    },
}
"""Defaults of keys that a document inside another one may leave out, because it contains only the differences to these
defaults (``Gemma3TextConfig`` and ``Llama4TextConfig`` of transformers 5.23.0). The one of Gemma 3 4B, for example, has
no number of heads."""

MODEL_TYPES: tuple[str, ...] = (*_FAMILIES, *_ALSO)
"""Values of ``model_type`` that ``from_config`` reads."""


def from_config(document: Mapping[str, Any], name: str) -> TransformerSpec:
    """Return the model that a parsed ``config.json`` describes; for a multimodal model only its language model.

    Args:
        document: The parsed ``config.json``.
        name: Name of the model in answers.

    Raises:
        InvalidInput: ``model_type`` is unknown, or a field is missing or has a wrong value. The error names the field.
    """
    config = Config(document)
    inner = config.inner("text_config")
    if inner is None:
        return read_model(config, name, _family(config, "model_type"))
    language = _language_model(config, inner)
    spec = read_model(language, name, _family(language, "text_config.model_type"))
    return replace(spec, approximations=(*spec.approximations, *untold_modules(config)))


def _language_model(config: Config, inner: Config) -> Config:
    """Return the document of the language model, with missing keys filled in.

    They are taken from the outer document, or from the defaults of its model type.
    """
    outer = {key: config.document[key] for key in ("model_type", "tie_word_embeddings") if config.has(key)}
    given = {key: value for key, value in inner.document.items() if value is not None or key == "sliding_window"}
    model_type = str(given.get("model_type", outer.get("model_type")))
    return Config({**_INNER_DEFAULTS.get(_ALSO.get(model_type, model_type), {}), **outer, **given})


def _family(config: Config, field: str) -> Table:
    """Return the table of the family that the document's ``model_type`` names.

    Raises:
        InvalidInput: The model type is not supported. The error names the most similar supported type.
    """
    model_type = config.model_type
    if not isinstance(model_type, str):
        raise InvalidInput(field, model_type, f"must be one of {', '.join(MODEL_TYPES)}")
    known = _ALSO.get(model_type, model_type)
    if known not in _FAMILIES:
        near = get_close_matches(model_type.lower(), MODEL_TYPES, 1, cutoff=0.4)
        rule = f"is not one of the supported types: {', '.join(MODEL_TYPES)}"
        raise InvalidInput(field, model_type, rule, near[0] if near else None)
    return _FAMILIES[known]
