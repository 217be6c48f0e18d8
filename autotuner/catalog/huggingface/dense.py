"""Families with one feed-forward block in each layer: Llama and its descendants, and descendants of GPT-2.

A table takes the fields that it leaves out from the table of Llama. Entries of a table are read in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotuner.catalog.huggingface.config import (
    ALIBI,
    SOFT_CAP,
    Config,
    Read,
    Table,
    bias,
    family,
    flag,
    integer,
    must_be_false,
    per_head,
    window,
)
from autotuner.core.errors import InvalidInput

_GEMMA_WINDOW = 4096
"""Default attention window of Gemma 2 and 3, OLMo 3 and EXAONE 4, in tokens."""

_PERIOD = ("sliding_window_pattern", "_sliding_window_pattern")
"""Keys that hold n, where every n-th layer has no attention window."""

_TIED = flag("tie_word_embeddings", default=True)
_MLP_BIAS = flag("mlp_bias")
_HEADS_OF_128 = integer("head_dim", default=128)


def qwen_windows(config: Config) -> Any:
    """Return the size of Qwen's attention window and the number of layers that have one; empty if windows are off.

    The key ``use_sliding_window`` switches windows on. Without a list of layer kinds, the layers from number
    ``max_window_layers`` on have a window.
    """
    if not config.flag("use_sliding_window"):
        return {}
    if config.words("layer_types") is not None:
        return window(4096)(config)
    windowed = config.integer("num_hidden_layers") - config.count("max_window_layers", default=28)
    return {"attention_window": config.integer("sliding_window", default=4096), "num_windowed_layers": max(0, windowed)}


def _exaone_period(config: Config) -> int:
    """Return n, where every n-th layer of EXAONE has no attention window.

    The key holds the number n, or a word with one letter for each layer.
    """
    pattern = config.document.get("sliding_window_pattern", 4)
    return len(pattern) if isinstance(pattern, str) else config.count("sliding_window_pattern", default=4)


def _seed_oss_bias(config: Config) -> str:
    """Return the attention projections of Seed-OSS with a bias: queries, keys and values, and perhaps the output."""
    out = config.flag("attention_out_bias")
    return "none" if not config.flag("attention_bias", default=True) else "all" if out else "qkv"


def _biased(key: str, *, default: bool = False) -> Table:
    """Return the read functions of a key that sets the biases of both the attention and the feed-forward blocks."""
    return family(attention_bias=bias(key, default=default), mlp_bias=flag(key, default=default))


_BIASED = family(attention_bias="all", mlp_bias=True)
_NORMS = {True: "layernorm", False: "layernorm_without_weights"}
_PLAIN = family(gated_mlp=False, norm="layernorm")
_SHARED_NORM = family(num_norms_per_layer=1, parallel_blocks=True)
NORMED = family(qk_norm=True, qk_norm_of_all_heads=True)
"""Norm of queries and keys whose weights span all heads together."""

_LLAMA = family(attention_bias=bias(), mlp_bias=_MLP_BIAS)
_MISTRAL = family(windows=window(4096))
_OLMO2 = family(NORMED, attention_bias=bias())
_GLM = family(attention_bias=bias(default=True, kind="qkv"), head_dim=_HEADS_OF_128)
_GEMMA = family(head_dim=integer("head_dim", default=256), tied_embeddings=_TIED, attention_bias=bias())
_ARCEE = family(_LLAMA, gated_mlp=False)

LLAMAS: Mapping[str, Table] = {
    "llama": _LLAMA,  # also DeepSeek LLM, Yi and all others that call themselves so
    "mistral": _MISTRAL,  # windows in all layers, or in those that a list names
    "ministral": _MISTRAL,
    "ministral3": {},
    "qwen2": family(attention_bias="qkv", windows=qwen_windows),  # also Qwen2.5
    # normed heads
    "qwen3": family(head_dim=_HEADS_OF_128, attention_bias=bias(), qk_norm=True, windows=qwen_windows),
    # Phi-3 and Phi-4: queries, keys and values are one matrix, as are gate and input
    "phi3": family(windows=window()),
    "granite": _LLAMA,
    "internlm3": _LLAMA,
    "gemma": _GEMMA,  # heads of a width of their own, one table of tokens
    "gemma2": family(  # norms before and behind the blocks, windows in every other layer
        _GEMMA,
        num_norms_per_layer=4,
        approximations=lambda config: (SOFT_CAP,) if config.document.get("attn_logit_softcapping", True) else (),
        windows=window(_GEMMA_WINDOW, full_every=2),
    ),
    # normed heads, windows in five of six layers
    "gemma3_text": family(
        _GEMMA,
        num_norms_per_layer=4,
        qk_norm=True,
        windows=window(_GEMMA_WINDOW, full_every=integer(*_PERIOD, default=6)),
    ),
    "glm": _GLM,  # GLM-4 of 2024, as transformers calls it: biases of queries, keys and values
    "glm4": family(_GLM, num_norms_per_layer=4),  # GLM-4 of 2025: norms behind the blocks, too
    "olmo": family(attention_bias=bias(), norm="layernorm_without_weights"),
    "olmo2": _OLMO2,  # norms behind the blocks, and of all heads together
    "olmo3": family(_OLMO2, windows=window(_GEMMA_WINDOW, full_every=4)),  # windows in three of four layers
    # layer norms, a plain feed-forward block, biases everywhere
    "starcoder2": family(_PLAIN, _biased("use_bias", default=True), tied_embeddings=_TIED, windows=window()),
    # Nemotron-4 and Minitron: layer norms, a plain feed-forward block (squared ReLU)
    "nemotron": family(_ARCEE, norm="layernorm"),
    "smollm3": family(_LLAMA, tied_embeddings=_TIED),  # some of its layers do not rotate
    "seed_oss": family(attention_bias=_seed_oss_bias, head_dim=_HEADS_OF_128, mlp_bias=_MLP_BIAS),
    # without experts: all matrices carry a bias, or none does
    "ernie4_5": family(_biased("use_bias"), tied_embeddings=_TIED, head_dim=_HEADS_OF_128),
    "hunyuan_v1_dense": family(attention_bias=bias(), qk_norm=True),  # without experts: normed heads
    # norms behind the blocks and of each head
    "exaone4": family(qk_norm=True, windows=window(_GEMMA_WINDOW, full_every=_exaone_period)),
    # layer norms; in the 12B model parallel blocks that share one
    "stablelm": family(
        norm="layernorm",
        blocks=lambda config: _SHARED_NORM if config.flag("use_parallel_residual") else {},
        attention_bias=bias("use_qkv_bias", kind="qkv"),
    ),
    "arcee": _ARCEE,  # AFM: a plain feed-forward block (squared ReLU)
}


# ---------------------------------------------------------------- GPT-2 and its descendants
def _gpt(hidden: str, heads: str, layers: str) -> Table:
    """Return the complete table of a family that has its own keys for the shapes.

    Several spellings of a key are separated by spaces.
    """
    return family(
        hidden_size=integer(*hidden.split()),
        num_heads=integer(*heads.split()),
        num_layers=integer(*layers.split()),
        num_kv_heads=integer(*heads.split()),
        head_dim=lambda config: per_head(config, hidden, heads),
        ffn_size=lambda config: 4 * config.integer(*hidden.split()),
        vocab_size=integer("vocab_size"),
        gated_mlp=False,
        tied_embeddings=_TIED,
        norm="layernorm",
    )


def _inner_size(key: str, hidden: str) -> Read:
    """Return a function that reads the inner width of a feed-forward block.

    Without the key, the width is four times the hidden size.
    """
    return lambda config: config.integer(key, default=4 * config.integer(hidden))


def _opt_refusals(config: Config) -> dict[str, Any]:
    """Refuse the OPT model with 350M parameters, because it has its norms after the blocks."""
    hidden_size = config.integer("hidden_size")
    if not config.flag("do_layer_norm_before", default=True) or config.flag("_remove_final_layer_norm"):
        raise InvalidInput(
            "do_layer_norm_before",
            False,
            "must be true, and _remove_final_layer_norm must be false, because only models with norms "
            "before the blocks are supported (OPT 350M is not)",
            "true",
        )
    if config.integer("word_embed_proj_dim", default=hidden_size) != hidden_size:
        width = config.document["word_embed_proj_dim"]
        raise InvalidInput(
            "word_embed_proj_dim",
            width,
            "must equal hidden_size, because models with another embedding size are not supported (OPT 350M is not)",
            hidden_size,
        )
    return {}


def _falcon_heads(config: Config) -> dict[str, Any]:
    """Return the heads and norms of a Falcon model.

    The 7B model has one key and value head and one norm per layer; the 40B and 180B models have groups of heads and two
    norms.
    """
    num_heads = config.integer("num_attention_heads", "n_head")
    grouped = config.flag("new_decoder_architecture")
    parallel = grouped or config.flag("parallel_attn", default=True)
    num_norms = 2 if not parallel else config.integer("num_ln_in_parallel_attn", default=2 if grouped else 1)
    num_kv_heads = 1 if config.flag("multi_query", default=True) else num_heads
    if grouped:
        num_kv_heads = config.integer("num_kv_heads", "n_head_kv", default=num_heads)
    return {"num_kv_heads": num_kv_heads, "num_norms_per_layer": num_norms, "parallel_blocks": parallel}


_GPT2 = family(
    _BIASED,
    _gpt("n_embd", "n_head", "n_layer"),
    num_kv_heads=integer("n_head"),
    ffn_size=_inner_size("n_inner", "n_embd"),
    num_learned_positions=integer("n_positions"),
)
# parallel blocks that share a norm without bias
_COHERE = family(_SHARED_NORM, norm="layernorm_without_bias", attention_bias=bias(), tied_embeddings=_TIED)

GPTS: Mapping[str, Table] = {
    # Command R; in the larger one normed heads, each with weights of its own
    "cohere": family(_COHERE, norms=lambda config: NORMED if config.flag("use_qk_norm") else {}),
    # Command R7B and A: windows in three of four layers
    "cohere2": family(_COHERE, windows=window(4096, full_every=integer(*_PERIOD, default=4))),
    "falcon": family(
        _biased("bias"),
        _gpt("hidden_size", "num_attention_heads n_head", "num_hidden_layers n_layer"),
        heads_and_norms=_falcon_heads,
        ffn_size=_inner_size("ffn_hidden_size", "hidden_size"),
        approximations=lambda config: (ALIBI,) if config.flag("alibi") else (),
    ),
    "gpt2": _GPT2,  # and GPT-3 as others build it
    # StarCoder: heads may share one key and value
    "gpt_bigcode": family(
        _GPT2, num_kv_heads=lambda config: 1 if config.flag("multi_query", default=True) else config.integer("n_head")
    ),
    "gptj": family(  # parallel blocks that share a norm, a bias of the output projection
        _SHARED_NORM,
        _gpt("n_embd", "n_head", "n_layer"),
        ffn_size=_inner_size("n_inner", "n_embd"),
        tied_embeddings=flag("tie_word_embeddings"),
        mlp_bias=True,
        output_bias=True,
    ),
    # and Pythia: parallel blocks, each behind a norm of its own
    "gpt_neox": family(
        _PLAIN,
        parallel_blocks=flag("use_parallel_residual", default=True),
        attention_bias=bias(default=True),
        mlp_bias=True,
    ),
    # Phi-1 and Phi-2: parallel blocks that share a norm, biases everywhere
    "phi": family(_PLAIN, _SHARED_NORM, _BIASED, refused=must_be_false("qk_layernorm"), output_bias=True),
    "opt": family(
        _biased("enable_bias", default=True),
        _gpt("hidden_size", "num_attention_heads", "num_hidden_layers"),
        refused=_opt_refusals,
        ffn_size=integer("ffn_dim"),
        norm=lambda config: _NORMS[config.flag("layer_norm_elementwise_affine", default=True)],
        num_learned_positions=lambda config: config.integer("max_position_embeddings") + 2,  # two are never used
    ),
    "bloom": family(  # ALiBi, and a norm behind the embedding
        _BIASED,
        _gpt("n_embed hidden_size", "n_head num_attention_heads", "n_layer num_hidden_layers"),
        embedding_norm=True,
        approximations=(ALIBI,),
    ),
    # as transformers builds it: ALiBi, no biases
    "mpt": family(_gpt("d_model", "n_heads", "n_layers"), norm="layernorm_without_bias", approximations=(ALIBI,)),
}
