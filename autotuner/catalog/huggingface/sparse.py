"""Families with experts, latent attention or linear attention: Mixtral, DeepSeek and their descendants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autotuner.catalog.huggingface.config import (
    Config,
    Read,
    Table,
    bias,
    count,
    family,
    flag,
    integer,
    must_be_false,
    read_fields,
    stated,
    window,
)
from autotuner.catalog.huggingface.dense import NORMED, qwen_windows
from autotuner.core.blocks import LatentAttention, LinearAttention, MixtureOfExperts
from autotuner.core.errors import InvalidInput

_EXPERTS = family(
    num_experts=integer("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    experts_per_token=integer("num_experts_per_tok", "num_experts_per_token", "moe_k"),
)
"""Fields of a layer's experts that all families have, with all spellings of their keys."""

_WIDTH = integer("intermediate_size")
_MOE_WIDTH = integer("moe_intermediate_size")


def experts(*bases: Table, **fields: Any) -> Read:
    """Return a function that reads the mixture of experts of a model.

    Args:
        *bases: Tables of values, or of functions that read them, by field of ``MixtureOfExperts``.
        **fields: Entries that replace entries of the bases. Without entries for the number of experts and the experts
            per token, the usual keys give them.
    """
    table = family(*bases, _EXPERTS, **fields)
    return lambda config: MixtureOfExperts(**read_fields(config, table))


def _granite_shared(config: Config) -> dict[str, Any]:
    """Return the shared expert of a Granite model, which exists if the configuration gives its width."""
    width = config.count("shared_intermediate_size")
    return {"num_shared_experts": 1 if width else 0, "shared_expert_ffn_size": width}


def _gated_shared(config: Config) -> dict[str, Any]:
    """Return the gated shared expert of Qwen2 and Qwen3-Next, which exists if the configuration gives its width."""
    width = config.stated("shared_expert_intermediate_size")
    return {"num_shared_experts": 1 if width else 0, "shared_expert_ffn_size": width, "shared_expert_gate": width > 0}


def _named_leading(config: Config) -> int:
    """Return the number of leading dense layers, from a list of layers without experts.

    The list may name only leading layers, because other dense layers are not supported.
    """
    layers = config.numbers("mlp_only_layers")
    leading = list(range(len(layers)))
    if sorted(layers) != leading:
        raise InvalidInput(
            "mlp_only_layers",
            list(layers),
            "must list the first layers of the model without a gap, because only leading dense layers are supported",
            str(leading),
        )
    return len(layers)


def _ernie_refusals(config: Config) -> dict[str, Any]:
    """Refuse an ERNIE model that has biases, or whose last layers have no experts."""
    num_layers = config.integer("num_hidden_layers")
    must_be_false("use_bias")(config)
    last = config.document.get("moe_layer_end_index", -1)
    if last not in (-1, num_layers - 1):
        raise InvalidInput(
            "moe_layer_end_index",
            last,
            "must be the number of the last layer, because only models that have experts in their last layer "
            "are supported",
            num_layers - 1,
        )
    return {}


def _llama4_interval(config: Config) -> int:
    interval, num_layers = config.integer("interleave_moe_layer_step", default=1), config.integer("num_hidden_layers")
    listed = config.numbers("moe_layers")
    if not listed:
        return interval
    interval = listed[0] + 1
    every = range(interval - 1, num_layers, interval) if interval > 0 else range(0)
    if len(listed) != len(every) or any(one != other for one, other in zip(listed, every, strict=True)):
        raise InvalidInput(
            "moe_layers", list(listed), "must list layers at equal distances, such as every second layer"
        )
    return interval


def _llama4_chunks(config: Config) -> dict[str, Any]:
    """Return attention within chunks as windowed attention, with windows of half a chunk.

    A query then attends to as many keys on average.
    """
    num_layers, kinds = config.integer("num_hidden_layers"), config.words("layer_types")
    chunk = config.count("attention_chunk_size", default=8192)
    if kinds is not None:
        chunked = kinds[:num_layers].count("chunked_attention")
    elif rotating := config.numbers("no_rope_layers"):
        chunked = sum(rotates > 0 for rotates in rotating[:num_layers])
    else:
        chunked = num_layers - num_layers // config.integer("no_rope_layer_interval", default=4)
    if chunk < 2 or not chunked:
        return {}
    sentence = (
        f"{chunked} of {num_layers} layers attend within chunks of {chunk:,} tokens, predicted as windows of half as "
        "many: a query sees as many keys on average"
    )
    return {"attention_window": chunk // 2, "num_windowed_layers": chunked, "approximations": (sentence,)}


_EVERY_OTHER_WINDOWED = window(4096, full_every=2)
_QWEN_EXPERTS = family(  # maybe in some layers only
    expert_ffn_size=_MOE_WIDTH,
    num_dense_layers=_named_leading,
    sparse_layer_interval=integer("decoder_sparse_step", default=1),
)
_SHARED_EXPERTS = family(expert_ffn_size=_MOE_WIDTH, num_shared_experts=stated("n_shared_experts"), router_bias=True)
# maybe with one more expert that sees every token
_GRANITE = family(attention_bias=bias(), experts=experts(shared=_granite_shared, expert_ffn_size=_WIDTH))

SPARSE: Mapping[str, Table] = {
    "mixtral": family(experts=experts(expert_ffn_size=_WIDTH), windows=window()),
    "llama4_text": family(  # a shared expert as wide as routed ones, attention within chunks in three of four layers
        experts=experts(expert_ffn_size=_WIDTH, num_shared_experts=1, sparse_layer_interval=_llama4_interval),
        head_dim=integer("head_dim", default=128),
        ffn_size=integer("intermediate_size_mlp"),
        attention_bias=bias(),
        windows=_llama4_chunks,
    ),
    "qwen2_moe": family(  # Qwen1.5-MoE and Qwen2-57B: a gated shared expert
        attention_bias=bias("qkv_bias", default=True, kind="qkv"),
        windows=lambda config: _EVERY_OTHER_WINDOWED(config) if config.flag("use_sliding_window") else {},
        experts=experts(_QWEN_EXPERTS, shared=_gated_shared),
    ),
    # and the language model of Qwen3-VL with experts
    "qwen3_moe": family(attention_bias=bias(), qk_norm=True, experts=experts(_QWEN_EXPERTS), windows=qwen_windows),
    "gpt_oss": family(  # biases everywhere, sinks, windows in every other layer
        experts=experts(expert_ffn_size=_WIDTH, router_bias=True, expert_bias=True),
        head_dim=integer("head_dim", default=64),
        attention_bias=bias(default=True),
        attention_sinks=True,
        windows=window(128, full_every=2),
    ),
    "phimoe": family(  # Phi-3.5-MoE: layer norms, a bias of the output projection
        norm="layernorm",
        attention_bias=bias(),
        output_bias=flag("lm_head_bias"),
        experts=experts(expert_ffn_size=_WIDTH),
        windows=window(),
    ),
    "olmoe": family(NORMED, attention_bias=bias(), experts=experts(expert_ffn_size=_WIDTH)),
    "glm4_moe": family(  # GLM-4.5 and 4.6: leading dense layers, a shared expert, a balancing bias
        attention_bias=bias(kind="qkv"),
        qk_norm=flag("use_qk_norm"),
        experts=experts(_SHARED_EXPERTS, num_dense_layers=count("first_k_dense_replace", default=1)),
    ),
    "granitemoe": _GRANITE,
    "granitemoeshared": _GRANITE,
    "minimax_m2": family(  # a balancing bias
        NORMED, experts=experts(expert_ffn_size=_WIDTH, router_bias=True), head_dim=integer("head_dim", default=128)
    ),
    "ernie4_5_moe": family(  # from one layer on, every n-th of them sparse
        refused=_ernie_refusals,
        experts=experts(
            expert_ffn_size=_MOE_WIDTH,
            num_shared_experts=count("moe_num_shared_experts", default=2),
            num_dense_layers=count("moe_layer_start_index", default=1),
            sparse_layer_interval=integer("moe_layer_interval", default=1),
            router_bias=True,
        ),
        tied_embeddings=flag("tie_word_embeddings", default=True),
    ),
    "dots1": family(  # normed heads; experts as those of DeepSeek-V3
        attention_bias=bias(),
        qk_norm=True,
        experts=experts(_SHARED_EXPERTS, num_dense_layers=count("first_k_dense_replace")),
    ),
}


# ---------------------------------------------------------------- latents, and linear attention
def _every_layer(config: Config) -> dict[str, Any]:
    if config.integer("moe_layer_freq", default=1) != 1:
        raise InvalidInput(
            "moe_layer_freq",
            config.document["moe_layer_freq"],
            "must be 1, because only models with experts in every layer are supported",
            1,
        )
    return {}


def _own_indexers(config: Config) -> dict[str, Any]:
    """Refuse a model in which several layers share one indexer, which selects the keys of a query."""
    kinds = config.words("indexer_types") or ()
    if "shared" in kinds or config.integer("index_topk_freq", default=1) > 1 or config.has("index_topk_pattern"):
        field = next(key for key in ("indexer_types", "index_topk_freq", "index_topk_pattern") if config.has(key))
        raise InvalidInput(
            field,
            config.document[field],
            "must give every layer its own indexer (the part of sparse attention that selects keys), because "
            "shared indexers are not supported",
        )
    return {}


def _leading_dense(config: Config) -> int:
    """Return the number of leading layers with a dense feed-forward block.

    It is read from the list of layer kinds, or from its older key.
    """
    kinds = config.words("mlp_layer_types")
    if kinds is None:
        return config.count("first_k_dense_replace", default=1)
    leading = next((place for place, kind in enumerate(kinds) if kind == "sparse"), len(kinds))
    if "dense" in kinds[leading:]:
        raise InvalidInput(
            "mlp_layer_types",
            list(kinds),
            "must name dense layers only before all layers with experts (sparse), because dense layers between "
            "them are not supported",
        )
    return leading


def _v32_dense(config: Config) -> int:
    first = config.count("first_k_dense_replace", default=3)
    return _leading_dense(config) if config.has("mlp_layer_types") else first


def _deepseek_experts(num_dense_layers: Read, *, router_bias: bool = True) -> Read:
    """Return a function that reads the experts; it reads none from a small, dense model of the family."""
    read = experts(
        num_dense_layers=num_dense_layers,
        num_shared_experts=stated("n_shared_experts", "num_shared_experts"),
        expert_ffn_size=_MOE_WIDTH,
        router_bias=router_bias,
    )

    def read_if_any(config: Config) -> Any:
        num_dense_layers(config)
        return read(config) if config.stated("n_routed_experts", "num_experts", "num_local_experts") else None

    return read_if_any


def _latents(config: Config) -> LatentAttention:
    return LatentAttention(
        query_rank=config.stated("q_lora_rank") or None,
        key_value_rank=config.integer("kv_lora_rank"),
        rope_head_dim=config.integer("qk_rope_head_dim"),
        value_head_dim=config.integer("v_head_dim"),
        indexer_heads=config.count("index_n_heads"),
        indexer_head_dim=config.count("index_head_dim"),
    )


def _latent(read_experts: Read, **fields: Any) -> Table:
    return family(
        **fields,
        num_kv_heads=integer("num_attention_heads"),
        head_dim=integer("qk_nope_head_dim"),
        experts=read_experts,
        latent_attention=_latents,
    )


def _deepseek(read_experts: Read, **checks: Read) -> Table:
    return _latent(read_experts, **checks, sparse=_every_layer, unbiased=must_be_false("attention_bias"))


def _kimi_attention(config: Config) -> dict[str, Any]:
    """Return the linear attention of a Kimi model, and the number of layers that have it."""
    inner = config.inner("linear_attn_config") or Config({"model_type": config.model_type})
    kinds, listed = config.words("layer_types"), inner.numbers("kda_layers")
    if kinds is None and not listed:
        raise InvalidInput(
            "linear_attn_config", None, "is required for model_type kimi_linear, with the field kda_layers"
        )
    num_heads = inner.integer("num_heads", default=config.integer("linear_num_heads", default=32))
    head_dim = inner.integer("head_dim", default=config.integer("linear_head_dim", default=128))
    width = inner.integer("short_conv_kernel_size", default=config.integer("linear_conv_kernel_dim", default=4))
    linear_attention = LinearAttention(
        num_key_heads=num_heads,
        num_value_heads=num_heads,
        key_head_dim=head_dim,
        value_head_dim=head_dim,
        convolution_width=width,
        gate_rank=head_dim,
    )
    num_linear = _linear_layers(config, lambda num_layers: len(listed))
    return {"linear_attention": linear_attention, "num_linear_layers": num_linear}


def _gated_delta(config: Config) -> LinearAttention:
    return LinearAttention(
        num_key_heads=config.integer("linear_num_key_heads", default=16),
        num_value_heads=config.integer("linear_num_value_heads", default=32),
        key_head_dim=config.integer("linear_key_head_dim", default=128),
        value_head_dim=config.integer("linear_value_head_dim", default=128),
        convolution_width=config.integer("linear_conv_kernel_dim", default=4),
    )


def _gated_delta_layers(config: Config) -> int:
    full_every = config.integer("full_attention_interval", default=4)
    return _linear_layers(config, lambda num_layers: num_layers - num_layers // full_every)


def _linear_layers(config: Config, unlisted: Callable[[int], int]) -> int:
    """Return the number of layers with linear attention.

    It is counted in the list of layer kinds; for a model without such a list, ``unlisted`` returns it.
    """
    num_layers, kinds = config.integer("num_hidden_layers"), config.words("layer_types")
    return kinds[:num_layers].count("linear_attention") if kinds else unlisted(num_layers)


_QWEN3_5 = family(  # three of four layers attend linearly, the others behind a gate
    num_linear_layers=_gated_delta_layers,
    attention_bias=bias(),
    head_dim=integer("head_dim", default=256),
    qk_norm=True,
    attention_output_gate=True,
    linear_attention=_gated_delta,
)
_QWEN3_NEXT = family(
    _QWEN3_5,
    experts=experts(_QWEN_EXPERTS, shared=_gated_shared),
    ffn_size=lambda config: config.integer("intermediate_size", default=_MOE_WIDTH(config)),
)
_DEEPSEEK_V32 = _deepseek(_deepseek_experts(_v32_dense), indexers=_own_indexers)

LATENT: Mapping[str, Table] = {
    "deepseek_v2": _deepseek(_deepseek_experts(count("first_k_dense_replace"), router_bias=False)),
    # also R1, Kimi K2, Moonlight: a balancing bias
    "deepseek_v3": _deepseek(_deepseek_experts(count("first_k_dense_replace", default=3))),
    "deepseek_v32": _DEEPSEEK_V32,  # an indexer chooses the keys that a query sees
    "glm_moe_dsa": _DEEPSEEK_V32,  # GLM-5
    "glm4_moe_lite": _deepseek(_deepseek_experts(_leading_dense)),  # GLM-4.7-Flash
    # latents in some layers, linear attention in the others
    "kimi_linear": _latent(_deepseek_experts(_leading_dense), linear=_kimi_attention),
    "qwen3_next": _QWEN3_NEXT,
    "qwen3_5_text": _QWEN3_5,  # without experts
    "qwen3_5_moe_text": _QWEN3_NEXT,
}
