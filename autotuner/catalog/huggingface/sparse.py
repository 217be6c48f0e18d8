"""Families with experts and attention by heads: Mixtral and its descendants."""

from __future__ import annotations

from typing import Any

from autotuner.catalog.huggingface.dense import qwen_windows
from autotuner.catalog.huggingface.keys import Config
from autotuner.catalog.huggingface.shapes import bias, decoder, windows
from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.errors import InvalidInput
from autotuner.core.model import TransformerSpec

__all__ = [
    "dots1",
    "ernie_moe",
    "gated_shared",
    "glm4_moe",
    "gpt_oss",
    "granite_moe",
    "llama4",
    "minimax_m2",
    "mixtral",
    "olmoe",
    "phimoe",
    "qwen2_moe",
    "qwen3_moe",
    "qwen_experts",
    "routed_experts",
]


def routed_experts(config: Config, expert_ffn_size: int, **changes: Any) -> MixtureOfExperts:
    """The experts of a layer, in all spellings of their number."""
    shapes = {
        "num_experts": config.integer("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
        "experts_per_token": config.integer("num_experts_per_tok", "num_experts_per_token", "moe_k"),
        "expert_ffn_size": expert_ffn_size,
    }
    return MixtureOfExperts(**{**shapes, **changes})


def mixtral(config: Config, name: str) -> TransformerSpec:
    """Mixtral."""
    experts = routed_experts(config, config.integer("intermediate_size"))
    return decoder(config, name, experts=experts, **windows(config))


def granite_moe(config: Config, name: str) -> TransformerSpec:
    """Granite with experts, and maybe one more that sees every token."""
    shared = config.count("shared_intermediate_size")
    experts = routed_experts(
        config,
        config.integer("intermediate_size"),
        num_shared_experts=1 if shared else 0,
        shared_expert_ffn_size=shared,
    )
    return decoder(config, name, attention_bias=bias(config), experts=experts)


def phimoe(config: Config, name: str) -> TransformerSpec:
    """Phi-3.5-MoE: layer norms, a bias of the output projection."""
    return decoder(
        config,
        name,
        norm="layernorm",
        attention_bias=bias(config),
        output_bias=config.flag("lm_head_bias", default=False),
        experts=routed_experts(config, config.integer("intermediate_size")),
        **windows(config),
    )


def olmoe(config: Config, name: str) -> TransformerSpec:
    """OLMoE: norms of all heads together."""
    return decoder(
        config,
        name,
        attention_bias=bias(config),
        qk_norm=True,
        qk_norm_of_all_heads=True,
        experts=routed_experts(config, config.integer("intermediate_size")),
    )


def minimax_m2(config: Config, name: str) -> TransformerSpec:
    """MiniMax-M2: norms of all heads together, a balancing bias."""
    experts = routed_experts(config, config.integer("intermediate_size"), router_bias=True)
    head_dim = config.integer("head_dim", default=128)
    return decoder(config, name, head_dim=head_dim, qk_norm=True, qk_norm_of_all_heads=True, experts=experts)


def gpt_oss(config: Config, name: str) -> TransformerSpec:
    """GPT-OSS: biases everywhere, sinks, windows in every other layer."""
    experts = routed_experts(config, config.integer("intermediate_size"), router_bias=True, expert_bias=True)
    return decoder(
        config,
        name,
        head_dim=config.integer("head_dim", default=64),
        attention_bias=bias(config, default=True),
        attention_sinks=True,
        experts=experts,
        **windows(config, default=128, full_every=2),
    )


def qwen_experts(config: Config, *, shared: int) -> MixtureOfExperts:
    """Experts of Qwen: maybe with a gated shared one of some width, maybe in some layers only."""
    return routed_experts(
        config,
        config.integer("moe_intermediate_size"),
        num_shared_experts=1 if shared else 0,
        shared_expert_ffn_size=shared,
        shared_expert_gate=shared > 0,
        num_dense_layers=_leading(config, "mlp_only_layers"),
        sparse_layer_interval=config.integer("decoder_sparse_step", default=1),
    )


def gated_shared(config: Config) -> int:
    """Width of the shared expert of Qwen2 and Qwen3-Next."""
    return config.stated("shared_expert_intermediate_size")


def _leading(config: Config, key: str) -> int:
    """How many leading layers a list names; others cannot be told."""
    layers = config.numbers(key)
    if sorted(layers) != list(range(len(layers))):
        raise InvalidInput(key, list(layers), "must name leading layers, from 0 on", str(list(range(len(layers)))))
    return len(layers)


def qwen2_moe(config: Config, name: str) -> TransformerSpec:
    """Qwen1.5-MoE and Qwen2-57B: a gated shared expert."""
    biased = "qkv" if config.flag("qkv_bias", default=True) else "none"
    windowed = {}
    if config.flag("use_sliding_window", default=False):
        windowed = windows(config, default=4096, full_every=2)
    return decoder(
        config, name, attention_bias=biased, experts=qwen_experts(config, shared=gated_shared(config)), **windowed
    )


def qwen3_moe(config: Config, name: str) -> TransformerSpec:
    """Qwen3 with experts, and the language model of Qwen3-VL with experts."""
    return decoder(
        config,
        name,
        attention_bias=bias(config),
        qk_norm=True,
        experts=qwen_experts(config, shared=0),
        **qwen_windows(config),
    )


def glm4_moe(config: Config, name: str) -> TransformerSpec:
    """GLM-4.5 and 4.6: leading dense layers, a shared expert, a balancing bias."""
    return decoder(
        config,
        name,
        attention_bias="qkv" if config.flag("attention_bias", default=False) else "none",
        qk_norm=config.flag("use_qk_norm", default=False),
        experts=_deepseek_experts(config, num_dense_layers=config.count("first_k_dense_replace", default=1)),
    )


def dots1(config: Config, name: str) -> TransformerSpec:
    """dots.llm1: normed heads; experts as those of DeepSeek-V3."""
    return decoder(
        config,
        name,
        attention_bias=bias(config),
        qk_norm=True,
        experts=_deepseek_experts(config, num_dense_layers=config.count("first_k_dense_replace")),
    )


def _deepseek_experts(config: Config, *, num_dense_layers: int) -> MixtureOfExperts:
    return routed_experts(
        config,
        config.integer("moe_intermediate_size"),
        num_shared_experts=config.stated("n_shared_experts"),
        num_dense_layers=num_dense_layers,
        router_bias=True,
    )


def ernie_moe(config: Config, name: str) -> TransformerSpec:
    """ERNIE 4.5 with experts: from one layer on, every n-th of them sparse."""
    num_layers = config.integer("num_hidden_layers")
    if config.flag("use_bias", default=False):
        raise InvalidInput("use_bias", True, "must be false for model_type ernie4_5_moe", "false")
    last = config.document.get("moe_layer_end_index", -1)
    if last not in (-1, num_layers - 1):
        raise InvalidInput("moe_layer_end_index", last, "must be the last layer", num_layers - 1)
    experts = routed_experts(
        config,
        config.integer("moe_intermediate_size"),
        num_shared_experts=config.count("moe_num_shared_experts", default=2),
        num_dense_layers=config.count("moe_layer_start_index", default=1),
        sparse_layer_interval=config.integer("moe_layer_interval", default=1),
        router_bias=True,
    )
    return decoder(config, name, tied_embeddings=config.flag("tie_word_embeddings", default=True), experts=experts)


def llama4(config: Config, name: str) -> TransformerSpec:
    """Llama 4: a shared expert as wide as the routed ones, attention within chunks in three of four layers."""
    expert_ffn_size, interval = config.integer("intermediate_size"), _llama4_interval(config)
    experts = routed_experts(config, expert_ffn_size, num_shared_experts=1, sparse_layer_interval=interval)
    return decoder(
        config,
        name,
        head_dim=config.integer("head_dim", default=128),
        ffn_size=config.integer("intermediate_size_mlp"),
        attention_bias=bias(config),
        experts=experts,
        **_chunks(config),
    )


def _llama4_interval(config: Config) -> int:
    interval, num_layers = config.integer("interleave_moe_layer_step", default=1), config.integer("num_hidden_layers")
    stated = config.numbers("moe_layers")
    if not stated:
        return interval
    interval = stated[0] + 1
    every = range(interval - 1, num_layers, interval) if interval > 0 else range(0)
    if len(stated) != len(every) or any(one != other for one, other in zip(stated, every, strict=True)):
        raise InvalidInput("moe_layers", list(stated), "must be every n-th layer of the model")
    return interval


def _chunks(config: Config) -> dict[str, Any]:
    """Attention within chunks, as windows under which a query sees as many keys on average: half a chunk."""
    num_layers, kinds = config.integer("num_hidden_layers"), config.words("layer_types")
    chunk = config.count("attention_chunk_size", default=8192)
    if kinds is not None:
        chunked = kinds[:num_layers].count("chunked_attention")
    elif stated := config.numbers("no_rope_layers"):
        chunked = sum(rotates > 0 for rotates in stated[:num_layers])
    else:
        chunked = num_layers - num_layers // config.integer("no_rope_layer_interval", default=4)
    if chunk < 2 or not chunked:
        return {}
    sentence = (
        f"{chunked} of {num_layers} layers attend within chunks of {chunk:,} tokens, priced as windows of half as "
        "many: a query sees as many keys on average"
    )
    return {"attention_window": chunk // 2, "num_windowed_layers": chunked, "approximations": (sentence,)}
