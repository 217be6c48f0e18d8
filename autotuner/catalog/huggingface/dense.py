"""Families with one feed-forward block in each layer and rotary positions: Llama and its descendants."""

from __future__ import annotations

from autotuner.catalog.huggingface.keys import Config
from autotuner.catalog.huggingface.shapes import SOFT_CAP, bias, decoder, windows
from autotuner.core.model import TransformerSpec

__all__ = [
    "arcee",
    "ernie",
    "exaone4",
    "gemma",
    "gemma2",
    "gemma3",
    "glm",
    "glm4",
    "hunyuan",
    "llama",
    "mistral",
    "nemotron",
    "olmo",
    "olmo2",
    "olmo3",
    "phi3",
    "qwen2",
    "qwen3",
    "qwen_windows",
    "seed_oss",
    "smollm3",
    "stablelm",
    "starcoder2",
]

_GEMMA_WINDOW = 4096
"""Default of Gemma 2 and 3, OLMo 3, EXAONE 4."""


def llama(config: Config, name: str) -> TransformerSpec:
    """Llama, Granite, DeepSeek LLM, Yi and whatever else calls itself so; InternLM 3."""
    return decoder(config, name, attention_bias=bias(config), mlp_bias=config.flag("mlp_bias", default=False))


def mistral(config: Config, name: str) -> TransformerSpec:
    """Mistral and Ministral: windows in all layers, or in those that a list names."""
    has_window = config.model_type != "ministral3"
    return decoder(config, name, **windows(config, default=4096) if has_window else {})


def qwen_windows(config: Config) -> dict[str, int]:
    """Windows of Qwen, which are switched on by a key of their own and begin at a layer."""
    if not config.flag("use_sliding_window", default=False):
        return {}
    if config.words("layer_types") is not None:
        return windows(config, default=4096)
    windowed = config.integer("num_hidden_layers") - config.count("max_window_layers", default=28)
    return {"attention_window": config.integer("sliding_window", default=4096), "num_windowed_layers": max(0, windowed)}


def qwen2(config: Config, name: str) -> TransformerSpec:
    """Qwen2, Qwen2.5 and the language models of their vision siblings."""
    return decoder(config, name, attention_bias="qkv", **qwen_windows(config))


def qwen3(config: Config, name: str) -> TransformerSpec:
    """Qwen3: normed heads."""
    head_dim = config.integer("head_dim", default=128)
    return decoder(config, name, attention_bias=bias(config), head_dim=head_dim, qk_norm=True, **qwen_windows(config))


def phi3(config: Config, name: str) -> TransformerSpec:
    """Phi-3 and Phi-4: queries, keys and values are one matrix, as are gate and input."""
    return decoder(config, name, **windows(config))


def olmo(config: Config, name: str) -> TransformerSpec:
    """OLMo: norms without weights."""
    return decoder(config, name, attention_bias=bias(config), norm="layernorm_without_weights")


def olmo2(config: Config, name: str) -> TransformerSpec:
    """OLMo 2: norms behind the blocks, and of all heads together."""
    return decoder(config, name, attention_bias=bias(config), qk_norm=True, qk_norm_of_all_heads=True)


def olmo3(config: Config, name: str) -> TransformerSpec:
    """OLMo 3: as OLMo 2, with windows in three of four layers."""
    windowed = windows(config, default=_GEMMA_WINDOW, full_every=4)
    return decoder(config, name, attention_bias=bias(config), qk_norm=True, qk_norm_of_all_heads=True, **windowed)


def exaone4(config: Config, name: str) -> TransformerSpec:
    """EXAONE 4: norms behind the blocks and of each head."""
    pattern = config.document.get("sliding_window_pattern", 4)
    full_every = len(pattern) if isinstance(pattern, str) else config.count("sliding_window_pattern", default=4)
    return decoder(config, name, qk_norm=True, **windows(config, default=_GEMMA_WINDOW, full_every=full_every or None))


def smollm3(config: Config, name: str) -> TransformerSpec:
    """SmolLM 3, some of whose layers do not rotate."""
    tied = config.flag("tie_word_embeddings", default=True)
    return decoder(
        config,
        name,
        attention_bias=bias(config),
        mlp_bias=config.flag("mlp_bias", default=False),
        tied_embeddings=tied,
    )


def seed_oss(config: Config, name: str) -> TransformerSpec:
    """Seed-OSS: biases of queries, keys and values, and maybe of the output."""
    out = config.flag("attention_out_bias", default=False)
    biased = "none" if not config.flag("attention_bias", default=True) else "all" if out else "qkv"
    head_dim = config.integer("head_dim", default=128)
    return decoder(
        config, name, attention_bias=biased, mlp_bias=config.flag("mlp_bias", default=False), head_dim=head_dim
    )


def ernie(config: Config, name: str) -> TransformerSpec:
    """ERNIE 4.5 without experts: all matrices carry a bias, or none does."""
    biased = config.flag("use_bias", default=False)
    tied = config.flag("tie_word_embeddings", default=True)
    head_dim = config.integer("head_dim", default=128)
    attention = "all" if biased else "none"
    return decoder(config, name, attention_bias=attention, mlp_bias=biased, tied_embeddings=tied, head_dim=head_dim)


def hunyuan(config: Config, name: str) -> TransformerSpec:
    """Hunyuan without experts: normed heads."""
    return decoder(config, name, attention_bias=bias(config), qk_norm=True)


def glm(config: Config, name: str) -> TransformerSpec:
    """GLM-4 of 2024, as transformers calls it: biases of queries, keys and values."""
    biased = "qkv" if config.flag("attention_bias", default=True) else "none"
    return decoder(config, name, attention_bias=biased, head_dim=config.integer("head_dim", default=128))


def glm4(config: Config, name: str) -> TransformerSpec:
    """GLM-4 of 2025: as before, with norms behind the blocks, too."""
    biased = "qkv" if config.flag("attention_bias", default=True) else "none"
    head_dim = config.integer("head_dim", default=128)
    return decoder(config, name, attention_bias=biased, head_dim=head_dim, num_norms_per_layer=4)


def gemma(config: Config, name: str) -> TransformerSpec:
    """Gemma: heads of a width of their own, one table of tokens."""
    return decoder(config, name, **_gemma(config))


def gemma2(config: Config, name: str) -> TransformerSpec:
    """Gemma 2: norms before and behind the blocks, windows in every other layer."""
    capped = (SOFT_CAP,) if config.document.get("attn_logit_softcapping", True) else ()
    windowed = windows(config, default=_GEMMA_WINDOW, full_every=2)
    return decoder(config, name, num_norms_per_layer=4, approximations=capped, **_gemma(config), **windowed)


def gemma3(config: Config, name: str) -> TransformerSpec:
    """Gemma 3: normed heads, windows in five of six layers."""
    full_every = config.integer("sliding_window_pattern", "_sliding_window_pattern", default=6)
    windowed = windows(config, default=_GEMMA_WINDOW, full_every=full_every)
    return decoder(config, name, num_norms_per_layer=4, qk_norm=True, **_gemma(config), **windowed)


def _gemma(config: Config) -> dict[str, object]:
    return {
        "head_dim": config.integer("head_dim", default=256),
        "tied_embeddings": config.flag("tie_word_embeddings", default=True),
        "attention_bias": bias(config),
    }


def starcoder2(config: Config, name: str) -> TransformerSpec:
    """StarCoder 2: layer norms, a plain feed-forward block, biases everywhere."""
    biased = config.flag("use_bias", default=True)
    return decoder(
        config,
        name,
        gated_mlp=False,
        norm="layernorm",
        attention_bias="all" if biased else "none",
        mlp_bias=biased,
        tied_embeddings=config.flag("tie_word_embeddings", default=True),
        **windows(config),
    )


def nemotron(config: Config, name: str) -> TransformerSpec:
    """Nemotron-4 and Minitron: layer norms, a plain feed-forward block (squared ReLU)."""
    return decoder(
        config,
        name,
        gated_mlp=False,
        norm="layernorm",
        attention_bias=bias(config),
        mlp_bias=config.flag("mlp_bias", default=False),
    )


def arcee(config: Config, name: str) -> TransformerSpec:
    """AFM: Llama with a plain feed-forward block (squared ReLU)."""
    return decoder(
        config,
        name,
        gated_mlp=False,
        attention_bias=bias(config),
        mlp_bias=config.flag("mlp_bias", default=False),
    )


def stablelm(config: Config, name: str) -> TransformerSpec:
    """StableLM: layer norms; in the 12B model parallel blocks that share one."""
    parallel = config.flag("use_parallel_residual", default=False)
    return decoder(
        config,
        name,
        norm="layernorm",
        attention_bias="qkv" if config.flag("use_qkv_bias", default=False) else "none",
        parallel_blocks=parallel,
        num_norms_per_layer=1 if parallel else 2,
    )
