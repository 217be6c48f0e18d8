"""Megatron's arguments for the shapes of a model.

Names and defaults: megatron-core 0.16.1, transformer/transformer_config.py and training/arguments.py (validate_args for
widths that follow from others). Arguments such as moe_freq_type contain patterns of layers as Python expressions. They
are parsed here and never evaluated. Megatron's default model is GPT-2: layer norms, biases everywhere, GELU, learned
positions, tied embeddings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

from autotuner.core.blocks import LatentAttention, MixtureOfExperts
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.model import TransformerSpec
from autotuner.core.value import nearest_divisor
from autotuner.exports.shared.keys import Reading, Written

_LONGEST = 400
"""Most characters of a pattern of layers. Real ones have only a few nested parentheses."""

MOST_LAYERS = 10_000
"""Maximum number of layers. A larger number is a typing error and would only fill the memory."""


def pattern_text(layers: list[int]) -> str:
    """Return a list of layer kinds in Megatron's short form, such as ``[0]*3+[1]*58``."""
    return "+".join(f"[{kind}]*{len(list(same))}" for kind, same in groupby(layers))


def layer_pattern(name: str, text: str, num_layers: int, *, full_every: bool = False) -> list[int]:
    """Return one number per layer: 1 for a special layer (such as one with experts or a window), 0 for any other.

    Args:
        name: The setting's name, for error messages.
        text: A number N, or a Python list that may be built of sums and products, such as ``[0]*3+[1]*58``.
        num_layers: The number of layers that the pattern must have.
        full_every: Meaning of a number N. True: all layers but every N-th are special (as for windows). False: every
            N-th layer is special, beginning with the first.

    Raises:
        InvalidInput: The text is neither a number nor a list, or it describes another number of layers.
    """
    plain = text.strip().strip("'\"")
    if plain.isdecimal() and 0 < len(plain) < 6 and int(plain) > 0:
        every = int(plain)
        if full_every:
            return [int((layer + 1) % every != 0) for layer in range(num_layers)]
        return [int(layer % every == 0) for layer in range(num_layers)]
    layers = _summed(name, plain)
    if len(layers) != num_layers:
        raise InvalidInput(name, text, f"must describe {num_layers} layers, but describes {len(layers)}")
    return layers


_TIMES, _PLUS = re.compile(r"\[([01]*)\]\*(\d{1,5})(?!\d)"), re.compile(r"\[([01]*)\]\+\[([01]*)\](?!\*)")


def _summed(name: str, text: str) -> list[int]:
    """Return the list that a Python expression of lists, sums, products and parentheses describes.

    A list as Python prints it is read too.
    """

    def repeated(found: re.Match[str]) -> str:
        times = int(found[2])
        return f"[{found[1] * times}]" if times * len(found[1]) <= MOST_LAYERS else "too many"

    plain, before = re.sub(r"\[[01,\s]*\]", lambda found: re.sub(r"[,\s]", "", found[0]), text), ""
    plain = re.sub(r"\s*([*+()])\s*", r"\1", plain.strip()) if len(text) <= _LONGEST or "[" not in text[1:] else ""
    while plain != before:
        before = plain
        plain = re.sub(r"\((\[[01]*\])\)", r"\1", _PLUS.sub(r"[\1\2]", _TIMES.sub(repeated, plain)))
    if not re.fullmatch(r"\[[01]*\]", plain):
        raise InvalidInput(
            name, text, "must be a number, or lists with one entry for each layer, for example [0]*3+[1]*58"
        )
    return [int(kind) for kind in plain[1:-1]]


_VOCABULARIES = {"gpt2bpetokenizer": 50_257, "llama2tokenizer": 32_000}
"""Vocabulary sizes of known tokenizers. Other tokenizers state theirs in a file."""

_LLAMA_3 = 128_256


# ---------------------------------------------------------------- written
def write_shapes(job: Job) -> Written:
    """Return Megatron's settings for the shapes of the job's model and for its sequence length."""
    model, seq_len = job.model, job.workload.seq_len
    written: Written = {
        "num_layers": model.num_layers,
        "hidden_size": model.hidden_size,
        "ffn_hidden_size": model.ffn_size,
        "num_attention_heads": model.num_heads,
        "kv_channels": model.head_dim,
        "seq_length": seq_len,
        "max_position_embeddings": model.num_learned_positions or seq_len,
        "position_embedding_type": "learned_absolute" if model.num_learned_positions else "rope",
        "vocab_size": model.vocab_size,
        "normalization": "RMSNorm" if model.norm == "rmsnorm" else "LayerNorm",
        "attention_dropout": 0.0,  # our models have no dropout; Megatron's default is 0.1
        "hidden_dropout": 0.0,
    }
    if model.num_kv_heads != model.num_heads:
        written |= {"group_query_attention": True, "num_query_groups": model.num_kv_heads}
    return written | dict(_switches(model)) | _windows(model) | _latents(model) | _experts(job)


def _switches(model: TransformerSpec) -> Iterator[tuple[str, bool]]:
    """Yield the model's switches that differ from Megatron's default model."""
    if model.gated_mlp:
        yield "swiglu", True
    if not model.tied_embeddings:
        yield "untie_embeddings_and_output_weights", True
    if not _biased_everywhere(model):
        yield "add_bias_linear", False
        if model.attention_bias != "none":
            yield "add_qkv_bias", True
    if model.qk_norm or model.latent_attention:
        yield "qk_layernorm", True  # with latent attention, the norms of compressed queries and keys
    if model.attention_output_gate:
        yield "attention_output_gate", True


def _biased_everywhere(model: TransformerSpec) -> bool:
    return model.attention_bias == "all" and (model.mlp_bias or _expert_biased(model))


def _expert_biased(model: TransformerSpec) -> bool:
    return model.experts is not None and model.experts.expert_bias


def _windows(model: TransformerSpec) -> Written:
    written: Written = {"softmax_type": "learnable"} if model.attention_sinks else {}
    if not model.num_windowed_layers:
        return written
    full = model.num_layers - model.num_windowed_layers
    pattern = pattern_text([1] * model.num_windowed_layers + [0] * full)
    window: Written = {"window_size": f"{model.attention_window - 1},0"}  # keys before and after a query's own position
    return written | window | ({"window_attn_skip_freq": pattern} if full else {})


def _latents(model: TransformerSpec) -> Written:
    latent = model.latent_attention
    if latent is None:
        return {}
    written: Written = {
        "multi_latent_attention": True,
        "kv_lora_rank": latent.key_value_rank,
        "qk_head_dim": model.head_dim,
        "qk_pos_emb_head_dim": latent.rope_head_dim,
        "v_head_dim": latent.value_head_dim,
    }
    return written | ({"q_lora_rank": latent.query_rank} if latent.query_rank else {})


def _experts(job: Job) -> Written:
    experts = job.model.experts
    if experts is None:
        return {}
    written: Written = {
        "num_experts": experts.num_experts,
        "moe_router_topk": experts.experts_per_token,
        "moe_ffn_hidden_size": experts.expert_ffn_size,
    }
    if job.stack.groups_experts:
        written["moe_grouped_gemm"] = True
    if experts.num_shared_experts:
        written["moe_shared_expert_intermediate_size"] = experts.shared_ffn_size
        if experts.shared_expert_gate:
            written["moe_shared_expert_gate"] = True
    sparse = [int(experts.is_sparse(layer)) for layer in range(job.model.num_layers)]
    if not all(sparse):
        written["moe_layer_freq"] = pattern_text(sparse)
    if experts.router_bias:  # Megatron refuses it without a sigmoid
        written |= {"moe_router_enable_expert_bias": True, "moe_router_score_function": "sigmoid"}
    if experts.capacity_factor is not None:
        written["moe_expert_capacity_factor"] = experts.capacity_factor
        if experts.pads_to_capacity:
            written["moe_pad_expert_input_to_capacity"] = True
    return written


def unsaid_shapes(model: TransformerSpec) -> Iterator[str]:
    """Yield sentences, without full stops, on features of the model for which Megatron has no argument."""
    if model.norm not in ("rmsnorm", "layernorm"):
        yield f"no argument sets the norm {model.norm}; Megatron's LayerNorm has weights and biases"
    if model.attention_bias == "all" and not (model.mlp_bias or _expert_biased(model)):
        yield ("no argument sets the bias of the attention's output projection separately from all other biases")
    if (model.mlp_bias or _expert_biased(model)) and model.attention_bias != "all":
        yield "no argument sets biases of the feed-forward blocks without those of attention"
    if model.num_norms_per_layer != 2:
        yield f"Megatron's layers have two norms, not {model.num_norms_per_layer}"
    if model.embedding_norm:
        yield "Megatron does not normalise embedded tokens"
    if model.qk_norm_of_all_heads:
        yield "Megatron normalises queries and keys in each head separately"
    if model.output_bias:
        yield "Megatron's output projection has no bias"
    if model.num_linear_layers:
        yield (
            f"set the {model.num_linear_layers} layers of linear attention with their own arguments (gated_delta_net)"
        )


# ---------------------------------------------------------------- read
def read_shapes(reading: Reading) -> TransformerSpec | None:
    """Return the model that Megatron's settings describe; None if they lack the layers, the width or the heads.

    Settings without these numbers come from a run that takes its model from a checkpoint or a recipe.

    Raises:
        InvalidInput: The shapes contradict each other.
    """
    if any(name not in reading.settings for name in ("num_layers", "hidden_size", "num_attention_heads")):
        return None
    hidden, heads = reading.integer("hidden_size"), reading.integer("num_attention_heads")
    gated = reading.on("swiglu") or reading.on("quick_geglu") or reading.on("gated_linear_unit")
    num_layers = reading.integer("num_layers", most=MOST_LAYERS)
    window, windowed = _read_windows(reading, num_layers)
    bias = reading.on("add_bias_linear", True)
    latent = _read_latents(reading)
    experts = _read_experts(reading, num_layers, _ffn_size(reading, hidden, gated), bias=bias)
    if reading.integer("mtp_num_layers", 0):
        reading.ignored("mtp_num_layers", "layers that predict further tokens are not counted or predicted")
    return TransformerSpec(
        name="imported",
        num_layers=num_layers,
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=reading.integer("num_query_groups") if reading.on("group_query_attention") else heads,
        head_dim=_head_dim(reading, hidden, heads, latent),
        ffn_size=_ffn_size(reading, hidden, gated),
        vocab_size=_vocabulary(reading),
        gated_mlp=gated,
        tied_embeddings=not reading.on("untie_embeddings_and_output_weights"),
        norm="rmsnorm" if reading.word("normalization", "layernorm") == "rmsnorm" else "layernorm",
        attention_bias="all" if bias else "qkv" if reading.on("add_qkv_bias") else "none",
        attention_output_gate=reading.on("attention_output_gate"),
        attention_sinks=reading.word("softmax_type") == "learnable",
        mlp_bias=bias,
        num_learned_positions=_positions(reading),
        qk_norm=reading.on("qk_layernorm") and latent is None,
        attention_window=window,
        num_windowed_layers=windowed,
        experts=experts,
        latent_attention=latent,
    )


def _head_dim(reading: Reading, hidden: int, heads: int, latent: LatentAttention | None) -> int:
    if latent is not None:
        return reading.integer("qk_head_dim", 128)
    if "kv_channels" not in reading.settings and hidden % heads:
        raise InvalidInput(
            "num_attention_heads",
            heads,
            f"must divide hidden_size ({hidden}) if kv_channels is not given",
            nearest_divisor(heads, hidden),
        )
    return reading.integer("kv_channels", hidden // heads or 1)


def _ffn_size(reading: Reading, hidden: int, gated: bool) -> int:
    """Return the inner width of the feed-forward block.

    The default is 4 times the width, or with three matrices as many elements in multiples of 64.
    """
    return reading.integer("ffn_hidden_size", max(1, int(4 * hidden * 2 / 3) // 64 * 64) if gated else 4 * hidden)


def _vocabulary(reading: Reading) -> int:
    said = reading.integer("vocab_size", 0) or reading.integer("padded_vocab_size", 0)
    if said:
        return said
    known = _VOCABULARIES.get(
        reading.word("tokenizer_type", "gpt2bpetokenizer" if "merge_file" in reading.settings else "")
    )
    words = known or _LLAMA_3
    reading.assumed("vocab_size", f"the size is in the files of the tokenizer; {words:,} words are assumed")
    return words


def _positions(reading: Reading) -> int:
    kind = reading.word("position_embedding_type", "learned_absolute")
    if reading.on("use_rotary_position_embeddings"):
        kind = "rope"
    if kind not in ("rope", "learned_absolute"):
        reading.changed("position_embedding_type", f"{kind} positions are read as rotary positions")
    return reading.integer("max_position_embeddings", 0) if kind == "learned_absolute" else 0


def _read_windows(reading: Reading, num_layers: int) -> tuple[int, int]:
    """Return the size of the attention window, and the number of layers that have it."""
    text = " ".join(reading.settings.words("window_size") or ()).strip("()[] ")
    before = text.replace(",", " ").split()[:1]
    if not before or not before[0].isdecimal() or len(before[0]) > 9:
        return 0, 0
    frequency = reading.settings.words("window_attn_skip_freq")
    if not frequency:
        return int(before[0]) + 1, num_layers
    pattern = layer_pattern("window_attn_skip_freq", " ".join(frequency), num_layers, full_every=True)
    return int(before[0]) + 1, sum(pattern)


def _read_latents(reading: Reading) -> LatentAttention | None:
    if not reading.on("multi_latent_attention"):
        return None
    return LatentAttention(
        query_rank=reading.integer("q_lora_rank", 0) or None,
        key_value_rank=reading.integer("kv_lora_rank", 32),
        rope_head_dim=reading.integer("qk_pos_emb_head_dim", 64),
        value_head_dim=reading.integer("v_head_dim", 128),
    )


def _read_experts(reading: Reading, num_layers: int, ffn_size: int, *, bias: bool) -> MixtureOfExperts | None:
    num_experts = reading.integer("num_experts", 0)
    if not num_experts:
        return None
    width = reading.integer("moe_ffn_hidden_size", ffn_size)
    shared = reading.integer("moe_shared_expert_intermediate_size", 0)
    capacity = reading.settings.number("moe_expert_capacity_factor")
    dense, interval = _dense_layers(reading, num_layers)
    return MixtureOfExperts(
        num_experts=num_experts,
        experts_per_token=reading.integer("moe_router_topk", 2),
        expert_ffn_size=width,
        num_shared_experts=(shared // width if shared % width == 0 else 1) if shared else 0,
        shared_expert_ffn_size=shared if shared and shared % width else 0,
        shared_expert_gate=bool(shared) and reading.on("moe_shared_expert_gate"),
        num_dense_layers=dense,
        sparse_layer_interval=interval,
        router_bias=reading.on("moe_router_enable_expert_bias"),
        expert_bias=bias,
        capacity_factor=capacity if capacity is not None and capacity > 0 else None,
        pads_to_capacity=bool(capacity and capacity > 0) and reading.on("moe_pad_expert_input_to_capacity"),
    )


def _dense_layers(reading: Reading, num_layers: int) -> tuple[int, int]:
    """Return the number of leading dense layers, and the interval of sparse layers after them."""
    frequency = " ".join(reading.settings.words("moe_layer_freq") or ("1",))
    pattern = layer_pattern("moe_layer_freq", frequency, num_layers)
    leading = pattern.index(1) if 1 in pattern else num_layers
    second = pattern.index(1, leading + 1) if pattern.count(1) > 1 else leading + 1
    for interval in (1, second - leading):
        dense = 0 if leading == interval - 1 else leading  # with the interval, the other layers are dense anyway
        experts = MixtureOfExperts(
            num_experts=1,
            experts_per_token=1,
            expert_ffn_size=1,
            num_dense_layers=dense,
            sparse_layer_interval=interval,
        )
        if all(experts.is_sparse(layer) == bool(kind) for layer, kind in enumerate(pattern)):
            return dense, interval
    reading.changed("moe_layer_freq", f"{pattern.count(0)} dense layers are read as the first layers of the model")
    return pattern.count(0), 1
