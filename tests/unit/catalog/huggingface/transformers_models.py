"""How many parameters transformers gives a model, built on the meta device: shapes without memory."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch

from tests.unit.catalog.huggingface.published import Published

__all__ = ["num_parameters", "version"]

_ITS_NAME = {"kimi_k2": "deepseek_v3", "qwen2_5_vl": "qwen2"}
"""What transformers calls a language model of that type."""


def num_parameters(model: Published) -> int:
    """Elements of all parameters, a tied table once, and of balancing biases, which transformers keeps as buffers."""
    transformers = _transformers()
    keys = _language_model(model)
    config = transformers.AutoConfig.for_model(_ITS_NAME.get(model.model_type, model.model_type), **keys)
    with torch.device("meta"):
        built = transformers.AutoModelForCausalLM.from_config(config)
    biases = (buffer for name, buffer in built.named_buffers() if name.endswith("e_score_correction_bias"))
    return int(built.num_parameters()) + sum(int(bias.numel()) for bias in biases)


def version() -> str:
    """Of transformers."""
    return str(_transformers().__version__)


def _language_model(model: Published) -> dict[str, Any]:
    """The keys of the language model alone: of several parts each is built by a class of its own."""
    outer = copy.deepcopy(model.config)
    keys: dict[str, Any] = outer.get("text_config", outer)
    if "tie_word_embeddings" in outer:
        keys.setdefault("tie_word_embeddings", outer["tie_word_embeddings"])
    return {key: value for key, value in keys.items() if key not in ("model_type", "vision_config")}


def _transformers() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what it imports: optional packages of other releases
        import transformers  # noqa: PLC0415  # five seconds, not to be spent by who only collects tests

    return transformers
