"""Families with attention by latents: DeepSeek and its descendants, and those that attend linearly between."""

from __future__ import annotations

from typing import Any

from autotuner.catalog.huggingface.keys import Config
from autotuner.catalog.huggingface.shapes import decoder
from autotuner.catalog.huggingface.sparse import gated_shared, qwen_experts, routed_experts
from autotuner.core.blocks import LatentAttention, LinearAttention, MixtureOfExperts
from autotuner.core.errors import InvalidInput
from autotuner.core.model import TransformerSpec

__all__ = ["deepseek_v2", "deepseek_v3", "deepseek_v32", "glm4_moe_lite", "kimi_linear", "qwen3_5", "qwen3_next"]


def deepseek_v2(config: Config, name: str) -> TransformerSpec:
    """DeepSeek-V2."""
    return _deepseek(config, name, num_dense_layers=config.count("first_k_dense_replace"))


def deepseek_v3(config: Config, name: str) -> TransformerSpec:
    """DeepSeek-V3 and R1, Kimi K2, Moonlight: a balancing bias."""
    num_dense_layers = config.count("first_k_dense_replace", default=3)
    return _deepseek(config, name, num_dense_layers=num_dense_layers, router_bias=True)


def deepseek_v32(config: Config, name: str) -> TransformerSpec:
    """DeepSeek-V3.2 and GLM-5: an indexer chooses the keys that a query sees."""
    kinds = config.words("indexer_types") or ()
    if "shared" in kinds or config.integer("index_topk_freq", default=1) > 1 or config.has("index_topk_pattern"):
        field = next(key for key in ("indexer_types", "index_topk_freq", "index_topk_pattern") if config.has(key))
        raise InvalidInput(field, config.document[field], "must give every layer an indexer of its own")
    dense = config.count("first_k_dense_replace", default=3)
    if config.has("mlp_layer_types"):
        dense = _leading_dense(config)
    return _deepseek(config, name, num_dense_layers=dense, router_bias=True)


def glm4_moe_lite(config: Config, name: str) -> TransformerSpec:
    """GLM-4.7-Flash."""
    return _deepseek(config, name, num_dense_layers=_leading_dense(config), router_bias=True)


def _leading_dense(config: Config) -> int:
    """How many leading layers have an ordinary block, by the list of kinds or its older key."""
    kinds = config.words("mlp_layer_types")
    if kinds is None:
        return config.count("first_k_dense_replace", default=1)
    leading = next((place for place, kind in enumerate(kinds) if kind == "sparse"), len(kinds))
    if "dense" in kinds[leading:]:
        raise InvalidInput("mlp_layer_types", list(kinds), "must be dense in leading layers only")
    return leading


def _deepseek(config: Config, name: str, **experts: Any) -> TransformerSpec:
    if config.integer("moe_layer_freq", default=1) != 1:
        raise InvalidInput("moe_layer_freq", config.document["moe_layer_freq"], "must be 1: every layer", 1)
    if config.flag("attention_bias", default=False):
        raise InvalidInput("attention_bias", True, f"must be false for model_type {config.model_type}", "false")
    return decoder(
        config,
        name,
        num_kv_heads=config.integer("num_attention_heads"),
        head_dim=config.integer("qk_nope_head_dim"),
        experts=_experts(config, **experts),
        latent_attention=_latents(config),
    )


def _experts(config: Config, **changes: Any) -> MixtureOfExperts | None:
    if not config.stated("n_routed_experts", "num_experts", "num_local_experts"):
        return None  # a small model of the family without any
    shared = config.stated("n_shared_experts", "num_shared_experts")
    return routed_experts(config, config.integer("moe_intermediate_size"), num_shared_experts=shared, **changes)


def _latents(config: Config) -> LatentAttention:
    return LatentAttention(
        query_rank=config.stated("q_lora_rank") or None,
        key_value_rank=config.integer("kv_lora_rank"),
        rope_head_dim=config.integer("qk_rope_head_dim"),
        value_head_dim=config.integer("v_head_dim"),
        indexer_heads=config.count("index_n_heads"),
        indexer_head_dim=config.count("index_head_dim"),
    )


def kimi_linear(config: Config, name: str) -> TransformerSpec:
    """Kimi Linear: latents in some layers, linear attention in the others."""
    told = config.inner("linear_attn_config") or Config({"model_type": config.model_type})
    kinds, linear_layers = config.words("layer_types"), told.numbers("kda_layers")
    if kinds is None and not linear_layers:
        raise InvalidInput("linear_attn_config", None, "is required for model_type kimi_linear, with its kda_layers")
    num_heads = told.integer("num_heads", default=config.integer("linear_num_heads", default=32))
    head_dim = told.integer("head_dim", default=config.integer("linear_head_dim", default=128))
    width = told.integer("short_conv_kernel_size", default=config.integer("linear_conv_kernel_dim", default=4))
    num_layers = config.integer("num_hidden_layers")
    return decoder(
        config,
        name,
        num_kv_heads=config.integer("num_attention_heads"),
        head_dim=config.integer("qk_nope_head_dim"),
        experts=_experts(config, num_dense_layers=_leading_dense(config), router_bias=True),
        latent_attention=_latents(config),
        linear_attention=LinearAttention(
            num_key_heads=num_heads,
            num_value_heads=num_heads,
            key_head_dim=head_dim,
            value_head_dim=head_dim,
            convolution_width=width,
            gate_rank=head_dim,
        ),
        num_linear_layers=kinds[:num_layers].count("linear_attention") if kinds else len(linear_layers),
    )


def qwen3_next(config: Config, name: str) -> TransformerSpec:
    """Qwen3-Next and Qwen3.5 with experts: three of four layers attend linearly, the others behind a gate."""
    experts = qwen_experts(config, shared=gated_shared(config))
    return decoder(
        config,
        name,
        ffn_size=config.integer("intermediate_size", default=experts.expert_ffn_size),
        experts=experts,
        **_gated_delta(config),
    )


def qwen3_5(config: Config, name: str) -> TransformerSpec:
    """Qwen3.5 without experts."""
    return decoder(config, name, **_gated_delta(config))


def _gated_delta(config: Config) -> dict[str, Any]:
    num_layers, kinds = config.integer("num_hidden_layers"), config.words("layer_types")
    full_every = config.integer("full_attention_interval", default=4)
    linear = kinds[:num_layers].count("linear_attention") if kinds else num_layers - num_layers // full_every
    biased = config.flag("attention_bias", default=False)
    return {
        "head_dim": config.integer("head_dim", default=256),
        "qk_norm": True,
        "attention_bias": "all" if biased else "none",
        "attention_output_gate": True,
        "linear_attention": LinearAttention(
            num_key_heads=config.integer("linear_num_key_heads", default=16),
            num_value_heads=config.integer("linear_num_value_heads", default=32),
            key_head_dim=config.integer("linear_key_head_dim", default=128),
            value_head_dim=config.integer("linear_value_head_dim", default=128),
            convolution_width=config.integer("linear_conv_kernel_dim", default=4),
        ),
        "num_linear_layers": linear,
    }
