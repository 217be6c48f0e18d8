"""What families share: the shapes of Llama and its descendants, windows of attention, sentences on what is left out."""

from __future__ import annotations

from typing import Any, Literal

from autotuner.catalog.huggingface.keys import Config
from autotuner.core.errors import InvalidInput
from autotuner.core.model import TransformerSpec

__all__ = ["ALIBI", "SOFT_CAP", "bias", "decoder", "per_head", "untold_modules", "windows"]

ALIBI = (
    "positions are biases of the scores (ALiBi), priced as a rotation: a kernel that does not support them falls back "
    "to one that keeps its scores in memory"
)

SOFT_CAP = (
    "scores are capped by a hyperbolic tangent, priced without: a kernel that does not support it falls back to one "
    "that keeps its scores in memory"
)


def decoder(config: Config, name: str, **changes: Any) -> TransformerSpec:
    """The shapes that Llama and its descendants share, with what a descendant changes."""
    hidden_size = config.integer("hidden_size")
    num_heads = config.integer("num_attention_heads")
    shapes = {
        "num_layers": config.integer("num_hidden_layers"),
        "hidden_size": hidden_size,
        "num_heads": num_heads,
        "num_kv_heads": changes.get("num_kv_heads") or _num_kv_heads(config, num_heads),
        "vocab_size": config.integer("vocab_size"),
        "tied_embeddings": config.flag("tie_word_embeddings", default=False),
    }
    if "head_dim" not in changes:
        shapes["head_dim"] = config.integer("head_dim", default=0) or per_head(hidden_size, num_heads)
    if "ffn_size" not in changes:
        shapes["ffn_size"] = config.integer("intermediate_size")
    return TransformerSpec(name=name, **{**shapes, **changes, "approximations": _sentences(config, changes)})


_EACH_HEAD_ITS_OWN = frozenset(
    {
        *(
            "llama",
            "llava",
            "llava_next",
            "granite",
            "granitemoe",
            "granitemoeshared",
            "olmo",
            "olmo2",
            "olmo3",
            "olmoe",
        ),
        *("phi", "phi3", "cohere", "cohere2", "hunyuan_v1_dense", "arcee", "gpt_neox"),
    }
)
"""Types that read a missing number of heads of keys as that of queries, and not as some model's."""


def _num_kv_heads(config: Config, num_heads: int) -> int:
    key = "num_key_value_heads"
    is_default = key in config.document or config.model_type in _EACH_HEAD_ITS_OWN
    return config.integer(key, default=num_heads if is_default else None)


def per_head(hidden_size: int, num_heads: int) -> int:
    """Width of a head where heads span the hidden size."""
    if hidden_size % num_heads:
        raise InvalidInput("num_attention_heads", num_heads, f"must divide hidden_size ({hidden_size})")
    return hidden_size // num_heads


def bias(config: Config, key: str = "attention_bias", *, default: bool = False) -> Literal["none", "all"]:
    """Whether all projections of attention carry a bias."""
    return "all" if config.flag(key, default=default) else "none"


def windows(config: Config, *, default: int | None = None, full_every: int | None = None) -> dict[str, int]:
    """Window of attention and number of layers that have it.

    Args:
        config: The document.
        default: Window where the key is missing; None: no layer has one. A key that is null says so, too.
        full_every: Where no list tells the kind of each layer, every n-th has none; None: all have it.
    """
    num_layers, kinds = config.integer("num_hidden_layers"), config.words("layer_types")
    stated = "sliding_window" in config.document
    window = config.count("sliding_window") if stated else default or 0
    if kinds is None:
        windowed = num_layers - (num_layers // full_every if full_every else 0)
    else:
        windowed = kinds[:num_layers].count("sliding_attention")
    return {"attention_window": window, "num_windowed_layers": windowed} if window and windowed else {}


def untold_modules(config: Config) -> tuple[str, ...]:
    """Sentences on what the document describes beside the language model."""
    found = [word for word in ("vision", "audio") if config.has(f"{word}_config")]
    if not found:
        return ()
    which = " and ".join(found)
    return (
        f"only the language model is counted and priced, without the {which} tower and what joins them: training "
        "these too takes longer and more memory",
    )


def _sentences(config: Config, changes: dict[str, Any]) -> tuple[str, ...]:
    """What a reader says of its family, and what any family may leave out."""
    said: tuple[str, ...] = changes.get("approximations", ())
    num_ahead = config.count("num_nextn_predict_layers", "mtp_num_hidden_layers")
    if num_ahead:
        layers = "layer" if num_ahead == 1 else "layers"
        said += (
            f"{num_ahead} {layers} of multi-token prediction neither counted nor priced: training it takes longer and "
            "more memory",
        )
    return said + untold_modules(config)
