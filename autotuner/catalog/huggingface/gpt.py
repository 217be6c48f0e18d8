"""Families after GPT-2: plain feed-forward blocks, positions that are learned or biases, blocks that are parallel."""

from __future__ import annotations

from autotuner.catalog.huggingface.keys import Config
from autotuner.catalog.huggingface.shapes import ALIBI, bias, decoder, per_head, windows
from autotuner.core.errors import InvalidInput
from autotuner.core.model import TransformerSpec

__all__ = ["bloom", "cohere", "cohere2", "falcon", "gpt2", "gpt_bigcode", "gpt_neox", "gptj", "mpt", "opt", "phi"]


def gpt2(config: Config, name: str) -> TransformerSpec:
    """GPT-2, and GPT-3 as others build it."""
    return _gpt2(config, name, num_kv_heads=config.integer("n_head"))


def gpt_bigcode(config: Config, name: str) -> TransformerSpec:
    """StarCoder: GPT-2 whose heads may share one key and value."""
    shared = config.flag("multi_query", default=True)
    return _gpt2(config, name, num_kv_heads=1 if shared else config.integer("n_head"))


def _gpt2(config: Config, name: str, *, num_kv_heads: int) -> TransformerSpec:
    hidden_size, num_heads = config.integer("n_embd"), config.integer("n_head")
    return TransformerSpec(
        name=name,
        num_layers=config.integer("n_layer"),
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=per_head(hidden_size, num_heads),
        ffn_size=config.integer("n_inner", default=4 * hidden_size),
        vocab_size=config.integer("vocab_size"),
        gated_mlp=False,
        tied_embeddings=config.flag("tie_word_embeddings", default=True),
        norm="layernorm",
        attention_bias="all",
        mlp_bias=True,
        num_learned_positions=config.integer("n_positions"),
    )


def gptj(config: Config, name: str) -> TransformerSpec:
    """GPT-J: parallel blocks that share a norm, a bias of the output projection."""
    hidden_size, num_heads = config.integer("n_embd"), config.integer("n_head")
    return TransformerSpec(
        name=name,
        num_layers=config.integer("n_layer"),
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=per_head(hidden_size, num_heads),
        ffn_size=config.integer("n_inner", default=4 * hidden_size),
        vocab_size=config.integer("vocab_size"),
        gated_mlp=False,
        tied_embeddings=config.flag("tie_word_embeddings", default=False),
        norm="layernorm",
        num_norms_per_layer=1,
        parallel_blocks=True,
        mlp_bias=True,
        output_bias=True,
    )


def phi(config: Config, name: str) -> TransformerSpec:
    """Phi-1 and Phi-2: parallel blocks that share a norm, biases everywhere."""
    if config.flag("qk_layernorm", default=False):
        raise InvalidInput("qk_layernorm", True, "must be false for model_type phi", "false")
    return decoder(
        config,
        name,
        gated_mlp=False,
        norm="layernorm",
        num_norms_per_layer=1,
        parallel_blocks=True,
        attention_bias="all",
        mlp_bias=True,
        output_bias=True,
    )


def gpt_neox(config: Config, name: str) -> TransformerSpec:
    """GPT-NeoX and Pythia: parallel blocks, each behind a norm of its own."""
    return decoder(
        config,
        name,
        gated_mlp=False,
        norm="layernorm",
        parallel_blocks=config.flag("use_parallel_residual", default=True),
        attention_bias=bias(config, default=True),
        mlp_bias=True,
    )


def opt(config: Config, name: str) -> TransformerSpec:
    """OPT: two positions are never used; the 350M model, whose norms follow its blocks, is not read."""
    hidden_size, num_heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    if not config.flag("do_layer_norm_before", default=True) or config.flag("_remove_final_layer_norm", default=False):
        raise InvalidInput("do_layer_norm_before", False, "must be true, and the final norm there (OPT 350M)", "true")
    if config.integer("word_embed_proj_dim", default=hidden_size) != hidden_size:
        width = config.document["word_embed_proj_dim"]
        raise InvalidInput("word_embed_proj_dim", width, "must be hidden_size (OPT 350M)", hidden_size)
    biased = config.flag("enable_bias", default=True)
    return TransformerSpec(
        name=name,
        num_layers=config.integer("num_hidden_layers"),
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=per_head(hidden_size, num_heads),
        ffn_size=config.integer("ffn_dim"),
        vocab_size=config.integer("vocab_size"),
        gated_mlp=False,
        tied_embeddings=config.flag("tie_word_embeddings", default=True),
        norm="layernorm" if config.flag("layer_norm_elementwise_affine", default=True) else "layernorm_without_weights",
        attention_bias="all" if biased else "none",
        mlp_bias=biased,
        num_learned_positions=config.integer("max_position_embeddings") + 2,
    )


def bloom(config: Config, name: str) -> TransformerSpec:
    """BLOOM: ALiBi, and a norm behind the embedding."""
    hidden_size, num_heads = config.integer("n_embed", "hidden_size"), config.integer("n_head", "num_attention_heads")
    return TransformerSpec(
        name=name,
        num_layers=config.integer("n_layer", "num_hidden_layers"),
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=per_head(hidden_size, num_heads),
        ffn_size=4 * hidden_size,
        vocab_size=config.integer("vocab_size"),
        gated_mlp=False,
        tied_embeddings=config.flag("tie_word_embeddings", default=True),
        norm="layernorm",
        embedding_norm=True,
        attention_bias="all",
        mlp_bias=True,
        approximations=(ALIBI,),
    )


def mpt(config: Config, name: str) -> TransformerSpec:
    """MPT as transformers builds it: ALiBi, no biases."""
    hidden_size, num_heads = config.integer("d_model"), config.integer("n_heads")
    return TransformerSpec(
        name=name,
        num_layers=config.integer("n_layers"),
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=per_head(hidden_size, num_heads),
        ffn_size=4 * hidden_size,
        vocab_size=config.integer("vocab_size"),
        gated_mlp=False,
        tied_embeddings=config.flag("tie_word_embeddings", default=True),
        norm="layernorm_without_bias",
        approximations=(ALIBI,),
    )


def falcon(config: Config, name: str) -> TransformerSpec:
    """Falcon: 7B shares one key and value and one norm, 40B and 180B have groups of heads and two norms."""
    hidden_size = config.integer("hidden_size")
    num_heads = config.integer("num_attention_heads", "n_head")
    grouped = config.flag("new_decoder_architecture", default=False)
    parallel = grouped or config.flag("parallel_attn", default=True)
    num_norms = 2 if not parallel else config.integer("num_ln_in_parallel_attn", default=2 if grouped else 1)
    shared = config.flag("multi_query", default=True)
    biased = config.flag("bias", default=False)
    return TransformerSpec(
        name=name,
        num_layers=config.integer("num_hidden_layers", "n_layer"),
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=config.integer("num_kv_heads", "n_head_kv", default=num_heads)
        if grouped
        else 1
        if shared
        else num_heads,
        head_dim=per_head(hidden_size, num_heads),
        ffn_size=config.integer("ffn_hidden_size", default=4 * hidden_size),
        vocab_size=config.integer("vocab_size"),
        gated_mlp=False,
        tied_embeddings=config.flag("tie_word_embeddings", default=True),
        norm="layernorm",
        num_norms_per_layer=num_norms,
        parallel_blocks=parallel,
        attention_bias="all" if biased else "none",
        mlp_bias=biased,
        approximations=(ALIBI,) if config.flag("alibi", default=False) else (),
    )


def cohere(config: Config, name: str) -> TransformerSpec:
    """Command R: parallel blocks that share a norm without bias; in the larger one normed heads."""
    normed = config.flag("use_qk_norm", default=False)
    return decoder(
        config,
        name,
        **_cohere(config),
        qk_norm=normed,
        qk_norm_of_all_heads=normed,  # each head has weights of its own
    )


def cohere2(config: Config, name: str) -> TransformerSpec:
    """Command R7B and A: as before, with windows in three of four layers."""
    full_every = config.integer("sliding_window_pattern", "_sliding_window_pattern", default=4)
    return decoder(config, name, **_cohere(config), **windows(config, default=4096, full_every=full_every))


def _cohere(config: Config) -> dict[str, object]:
    return {
        "norm": "layernorm_without_bias",
        "num_norms_per_layer": 1,
        "parallel_blocks": True,
        "attention_bias": bias(config),
        "tied_embeddings": config.flag("tie_word_embeddings", default=True),
    }
