"""Reads the model of a row, by its name in the catalog or by its shapes."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product

from autotuner.backtests.cells import Row, UnusableRow, count, maybe_count, positive, text
from autotuner.catalog.models import model_called
from autotuner.core.blocks import LatentAttention, MixtureOfExperts
from autotuner.core.model import TransformerSpec

_GATED_FAMILIES = (
    *("llama", "mistral", "mixtral", "qwen", "gemma", "deepseek", "gpt oss", "gpt-oss", "kimi", "moonlight", "glm"),
    *("yi-", "grok", "phi-3", "phi-4", "olmo", "dbrx", "internlm", "baichuan", "command-r", "smollm"),
)
"""Families whose feed-forward blocks have three matrices, by a word of the model's name."""

_COUNT_TOLERANCE = 0.2
"""Relative tolerance between a stated number of parameters and the number that the shapes give. Tables round, and some
leave embeddings out."""

_USUAL_TOLERANCE = 0.12
"""Relative tolerance for the kind of feed-forward block that width or family suggest. Learned positions are up to a
tenth of the parameters."""


def model_of(row: Row, vocab: int | None) -> TransformerSpec:
    """Return the model of the run in a row, with as many layers as the row says.

    If the catalog has a model of this name, the result is the catalog's model, unless the row states other widths.
    Otherwise the shapes come from the row. The parameter count in the row then shows whether the feed-forward block is
    gated and whether the embeddings are tied.

    Args:
        row: The row.
        vocab: Size of the vocabulary if the row does not state it; None: the size of the model's family.

    Raises:
        UnusableRow: A shape is missing, or the shapes contradict each other.
        InvalidInput: No transformer has such shapes.
    """
    known = model_called(text(row, "model"))
    if known is not None and _agrees(row, known):
        return _with_own_sizes(row, known)
    return _with_stated_size(_stated(row, vocab), row)


def with_capacity(model: TransformerSpec, row: Row, usual: float | None) -> TransformerSpec:
    """Return the model with the expert capacity that the row states in its column or notes, or else ``usual``.

    The capacity limits the number of tokens that an expert accepts. If a run drops tokens, experts with fewer tokens
    are padded to the capacity, as benchmarks do. If the row says that tokens are dropped but gives no number, the
    capacity factor is 1 (``MegatronTokenDropCallback`` of NeMo 2.1).
    """
    if model.experts is None:
        return model
    said = text(row, "notes").lower()
    in_words = re.search(r"capacity[ _-]?factor\D{0,4}(\d+(?:\.\d+)?)", said)
    if text(row, "capacity_factor"):
        usual = positive(row, "capacity_factor")
    elif in_words and float(in_words[1]) > 0:
        usual = float(in_words[1])
    elif "dropless" in said:
        usual = None
    elif re.search(r"token[ _-]?drop", said):
        usual = 1.0
    experts = replace(model.experts, capacity_factor=usual, pads_to_capacity=usual is not None)
    return replace(model, experts=experts)


# ---------------------------------------------------------------- by name
def _agrees(row: Row, known: TransformerSpec) -> bool:
    """Return True if each width that the row states equals the known model's width."""
    experts, latent = known.experts, known.latent_attention
    widths: dict[str, tuple[int | None, ...]] = {
        "hidden": (known.hidden_size,),
        "heads": (known.num_heads,),
        "kv_heads": (known.num_kv_heads, known.num_heads if latent else known.num_kv_heads),
        "head_dim": (known.head_dim, known.head_dim + latent.rope_head_dim if latent else known.head_dim),
        "ffn": (known.ffn_size, experts.expert_ffn_size if experts else known.ffn_size),
        "num_experts": (experts.num_experts if experts else 1,),
        "expert_ffn": (experts.expert_ffn_size if experts else known.ffn_size,),
        "experts_per_token": (experts.experts_per_token if experts else 1,),
    }
    stated = {name: maybe_count(row, name) for name in widths}
    return all(value is None or value in widths[name] for name, value in stated.items())


def _with_own_sizes(row: Row, known: TransformerSpec) -> TransformerSpec:
    """Return the known model with the row's number of layers and vocabulary.

    Its positions are enough for the row's sequences.
    """
    known = known.with_num_layers(_num_layers(row) or known.num_layers)
    experts, num_dense = known.experts, maybe_count(row, "num_dense_layers", lowest=0)
    if experts is not None and num_dense is not None:
        experts = replace(experts, num_dense_layers=num_dense)
    positions = known.num_learned_positions
    return replace(
        known,
        vocab_size=maybe_count(row, "vocab") or known.vocab_size,
        experts=experts,
        num_learned_positions=max(positions, maybe_count(row, "seq_len") or 0) if positions else 0,
    )


def _num_layers(row: Row) -> int | None:
    """Return the number of layers from its cell or the name: ``truncated to 12 layers``, ``proxy 4L``, ``(16L)``."""
    stated = maybe_count(row, "layers")
    in_name = re.search(r"\b(\d{1,3})(?:l\b| ?-?layers?\b)", text(row, "model").lower())
    return stated or (int(in_name[1]) or None if in_name else None)


# ---------------------------------------------------------------- by stated shapes
def _stated(row: Row, vocab: int | None) -> TransformerSpec:
    if maybe_count(row, "hidden") is None:
        raise UnusableRow(
            "the row does not state the sizes of the model, and the catalog has no transformer with this name",
            text(row, "model"),
        )
    hidden, heads = count(row, "hidden"), count(row, "heads")
    num_layers = _num_layers(row)
    if num_layers is None:
        raise UnusableRow("the column layers is empty, but it is required")
    latent, head_dim = _latent_attention(row), maybe_count(row, "head_dim")
    if head_dim is None and hidden % heads:
        raise UnusableRow(
            "the column head_dim is empty, and the number of heads does not divide the hidden size",
            f"{heads}, {hidden}",
        )
    experts = _experts(row)
    return TransformerSpec(
        name=text(row, "model"),
        num_layers=num_layers,
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=heads if latent else maybe_count(row, "kv_heads") or heads,
        head_dim=head_dim or (128 if latent else hidden // heads),
        ffn_size=maybe_count(row, "ffn") or _usual_ffn(row, hidden, experts),
        vocab_size=maybe_count(row, "vocab") or vocab or _usual_vocab(row),
        experts=experts,
        latent_attention=latent,
    )


def _experts(row: Row) -> MixtureOfExperts | None:
    num_experts = maybe_count(row, "num_experts", lowest=0) or 1
    if num_experts == 1:
        if (maybe_count(row, "ep") or 1) > 1:
            raise UnusableRow("the row has expert ranks, but the column num_experts is empty")
        return None
    return MixtureOfExperts(
        num_experts=num_experts,
        experts_per_token=count(row, "experts_per_token"),
        expert_ffn_size=count(row, "expert_ffn", "ffn"),
        num_shared_experts=maybe_count(row, "num_shared_experts", lowest=0) or 0,
        num_dense_layers=maybe_count(row, "num_dense_layers", lowest=0) or 0,
    )


def _latent_attention(row: Row) -> LatentAttention | None:
    rank = maybe_count(row, "kv_lora_rank", lowest=0)
    if not rank:
        return None
    head_dim = maybe_count(row, "head_dim") or 128  # as every model of DeepSeek's and those after it
    return LatentAttention(
        query_rank=maybe_count(row, "q_lora_rank", lowest=0) or None,
        key_value_rank=rank,
        rope_head_dim=maybe_count(row, "rope_head_dim") or head_dim // 2,
        value_head_dim=maybe_count(row, "v_head_dim") or head_dim,
    )


def _usual_ffn(row: Row, hidden: int, experts: MixtureOfExperts | None) -> int:
    """Return the usual inner width of a feed-forward block.

    A gated block of three matrices is as large as a plain block with 4 h (arXiv 2302.13971), in multiples of 256.
    """
    if experts is not None:
        return experts.expert_ffn_size
    return -(-8 * hidden // (3 * 256)) * 256 if _is_of_gated_family(row) else 4 * hidden


_VOCABULARIES = (
    *((r"llama[ _-]?[34]", 128256), ("llama", 32000), ("qwen", 151936)),
    *(("mistral|mixtral", 32000), ("gemma|nemotron", 256000), ("", 51200)),
)
"""Vocabulary sizes of model families, by a pattern of the name. They change a step by a few percent at most.

The last is the vocabulary of GPT-2, padded for tensor ranks as in Megatron-LM's examples."""


def _usual_vocab(row: Row) -> int:
    name = text(row, "model").lower()
    return next(size for pattern, size in _VOCABULARIES if re.search(pattern, name))


def _is_of_gated_family(row: Row) -> bool:
    name = text(row, "model").lower()
    return any(word in name for word in _GATED_FAMILIES)


def _with_stated_size(spec: TransformerSpec, row: Row) -> TransformerSpec:
    # SwiGLU blocks are usually narrower, to weigh the same
    seems_gated = spec.ffn_size < 3.9 * spec.hidden_size or _is_of_gated_family(row)
    variants = [
        replace(spec, gated_mlp=gated, tied_embeddings=tied, norm="rmsnorm" if gated else "layernorm")
        for gated, tied in product((seems_gated, not seems_gated), (False, True))
    ]
    if not text(row, "params_b"):
        return variants[0]
    stated = positive(row, "params_b") * 1e9

    def distance(variant: TransformerSpec) -> float:
        # some tables leave embeddings out, or count the experts that a token sees
        counts = (variant.num_parameters, variant.num_layer_parameters, variant.num_active_matrix_parameters)
        return min(abs(number / stated - 1) for number in counts[: 3 if variant.experts else 2])

    usual = min(variants[:2], key=distance)
    nearest = usual if distance(usual) <= _USUAL_TOLERANCE else min(variants, key=distance)
    if distance(nearest) > _COUNT_TOLERANCE:
        raise UnusableRow(
            "the stated number of parameters differs from the number computed from the sizes of the model",
            text(row, "params_b"),
        )
    return nearest
