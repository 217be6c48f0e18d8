"""Reads the shapes of a model from a Hugging Face ``config.json``.

The keys and their defaults are those of the ``transformers`` configuration classes (4.57, 2025-10).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from autotuner.domain.jobs.model import LatentAttention, MixtureOfExperts, TransformerSpec
from autotuner.errors import InvalidInput

__all__ = ["MODEL_TYPES", "from_config"]


def from_config(document: Mapping[str, Any], name: str) -> TransformerSpec:
    """The model that a parsed ``config.json`` describes.

    Raises:
        InvalidInput: ``model_type`` is unknown, or a field is missing or does not fit; it names the field.
    """
    config = _Config(document)
    model_type = config.document.get("model_type")
    if not isinstance(model_type, str) or model_type not in _READERS:
        raise InvalidInput("model_type", model_type, f"must be one of {', '.join(MODEL_TYPES)}")
    return _READERS[model_type](config, name)


@dataclass(frozen=True, slots=True)
class _Config:
    """Typed access to a document that somebody else wrote."""

    document: Mapping[str, Any]

    def integer(self, key: str, default: int | None = None) -> int:
        """A whole number above zero; ``null`` counts as missing."""
        value = self.document.get(key)
        if value is None:
            value = default
        if value is None:
            raise InvalidInput(key, None, f"is required for model_type {self.document.get('model_type')}")
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InvalidInput(key, value, "must be a whole number above 0", 1)
        return value

    def count(self, key: str, default: int) -> int:
        """A whole number, zero allowed."""
        value = self.document.get(key)
        return default if value is None else 0 if value == 0 and value is not False else self.integer(key)

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.document.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise InvalidInput(key, value, "must be true or false")
        return value


def _decoder(config: _Config, name: str, **changes: Any) -> TransformerSpec:
    """The shapes that Llama and its descendants share, with what a descendant changes."""
    hidden_size = config.integer("hidden_size")
    num_heads = config.integer("num_attention_heads")
    shapes = {
        "num_layers": config.integer("num_hidden_layers"),
        "hidden_size": hidden_size,
        "num_heads": num_heads,
        "num_kv_heads": config.integer("num_key_value_heads", num_heads),
        "head_dim": config.integer("head_dim", _per_head(hidden_size, num_heads)),
        "ffn_size": config.integer("intermediate_size"),
        "vocab_size": config.integer("vocab_size"),
        "tied_embeddings": config.flag("tie_word_embeddings", default=False),
    }
    return TransformerSpec(name=name, **{**shapes, **changes})


def _per_head(hidden_size: int, num_heads: int) -> int:
    if hidden_size % num_heads:
        raise InvalidInput("num_attention_heads", num_heads, f"must divide hidden_size ({hidden_size})")
    return hidden_size // num_heads


def _llama(config: _Config, name: str) -> TransformerSpec:
    return _decoder(
        config,
        name,
        attention_bias="all" if config.flag("attention_bias", default=False) else "none",
        mlp_bias=config.flag("mlp_bias", default=False),
    )


def _qwen2(config: _Config, name: str) -> TransformerSpec:
    return _decoder(config, name, attention_bias="qkv")


def _qwen3(config: _Config, name: str) -> TransformerSpec:
    bias = "all" if config.flag("attention_bias", default=False) else "none"
    return _decoder(config, name, attention_bias=bias, head_dim=config.integer("head_dim", 128), qk_norm=True)


def _qwen3_moe(config: _Config, name: str) -> TransformerSpec:
    if config.integer("decoder_sparse_step", 1) != 1:
        raise InvalidInput("decoder_sparse_step", config.document["decoder_sparse_step"], "must be 1: every layer", 1)
    if config.document.get("mlp_only_layers"):
        raise InvalidInput("mlp_only_layers", config.document["mlp_only_layers"], "must be empty", "[]")
    experts = MixtureOfExperts(
        num_experts=config.integer("num_experts"),
        experts_per_token=config.integer("num_experts_per_tok"),
        expert_ffn_size=config.integer("moe_intermediate_size"),
    )
    return _decoder(config, name, head_dim=config.integer("head_dim", 128), qk_norm=True, experts=experts)


def _mixtral(config: _Config, name: str) -> TransformerSpec:
    experts = MixtureOfExperts(
        num_experts=config.integer("num_local_experts"),
        experts_per_token=config.integer("num_experts_per_tok"),
        expert_ffn_size=config.integer("intermediate_size"),
    )
    return _decoder(config, name, experts=experts)


def _gpt2(config: _Config, name: str) -> TransformerSpec:
    hidden_size = config.integer("n_embd")
    num_heads = config.integer("n_head")
    return TransformerSpec(
        name=name,
        num_layers=config.integer("n_layer"),
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=_per_head(hidden_size, num_heads),
        ffn_size=config.integer("n_inner", 4 * hidden_size),
        vocab_size=config.integer("vocab_size"),
        gated_mlp=False,
        tied_embeddings=config.flag("tie_word_embeddings", default=True),
        norm="layernorm",
        attention_bias="all",
        mlp_bias=True,
        num_learned_positions=config.integer("n_positions"),
    )


def _gpt_neox(config: _Config, name: str) -> TransformerSpec:
    bias = "all" if config.flag("attention_bias", default=True) else "none"
    return _decoder(config, name, gated_mlp=False, norm="layernorm", attention_bias=bias, mlp_bias=True)


def _deepseek_v2(config: _Config, name: str) -> TransformerSpec:
    return _deepseek(config, name, router_bias=False)


def _deepseek_v3(config: _Config, name: str) -> TransformerSpec:
    return _deepseek(config, name, router_bias=True)


def _deepseek(config: _Config, name: str, *, router_bias: bool) -> TransformerSpec:
    experts = MixtureOfExperts(
        num_experts=config.integer("n_routed_experts"),
        experts_per_token=config.integer("num_experts_per_tok"),
        expert_ffn_size=config.integer("moe_intermediate_size"),
        num_shared_experts=config.count("n_shared_experts", 0),
        num_dense_layers=config.count("first_k_dense_replace", 0),
        router_bias=router_bias,
    )
    latent = LatentAttention(
        query_rank=config.count("q_lora_rank", 0) or None,
        key_value_rank=config.integer("kv_lora_rank"),
        rope_head_dim=config.integer("qk_rope_head_dim"),
        value_head_dim=config.integer("v_head_dim"),
    )
    head_dim = config.integer("qk_nope_head_dim")
    return _decoder(config, name, head_dim=head_dim, experts=experts, latent_attention=latent)


_READERS: dict[str, Callable[[_Config, str], TransformerSpec]] = {
    "llama": _llama,
    "mistral": _decoder,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "mixtral": _mixtral,
    "deepseek_v2": _deepseek_v2,
    "deepseek_v3": _deepseek_v3,
}

MODEL_TYPES: tuple[str, ...] = tuple(_READERS)
"""Values of ``model_type`` that ``from_config`` reads."""
