"""What tables call the choices of a layout, as members of those choices; our own labels are understood everywhere."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple, TypeVar

from autotuner.backtest.cells import UnusableRow
from autotuner.core.choices import (
    AttentionKernel,
    Choice,
    ContextExchange,
    Fp8Recipe,
    PipelineSchedule,
    Precision,
    Recompute,
    ShardLevel,
)
from autotuner.core.recompute import RecomputePolicy
from autotuner.core.stages import ONE_STAGE_SCHEDULES, V_SCHEDULES


def _plain(text: str) -> str:
    """Letters and digits, small."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


# ---------------------------------------------------------------- sharding
class Sharding(NamedTuple):
    """What the data-parallel ranks split, and among how many of them."""

    level: ShardLevel
    in_node: bool = False
    """Only ranks of one node do."""
    num_ranks: int | None = None
    """So many ranks do, replicas beyond; None: all."""


_SHARD_LEVELS = {
    "noshard": ShardLevel.NONE,
    "shardgradop": ShardLevel.GRADIENTS,
    "zero0": ShardLevel.NONE,
    "zero1": ShardLevel.OPTIMIZER,
    "zero2": ShardLevel.GRADIENTS,
    "zero3": ShardLevel.PARAMETERS,
    "zerostage1": ShardLevel.OPTIMIZER,
    "zerostage2": ShardLevel.GRADIENTS,
    "zerostage3": ShardLevel.PARAMETERS,
    "distributedoptimizer": ShardLevel.OPTIMIZER,
    "distoptimizer": ShardLevel.OPTIMIZER,
    "distopt": ShardLevel.OPTIMIZER,
    "optimgradsparams": ShardLevel.PARAMETERS,  # Megatron-FSDP's data_parallel_sharding_strategy
    "optimgrads": ShardLevel.GRADIENTS,
    "fsdp": ShardLevel.PARAMETERS,
    "hsdp": ShardLevel.PARAMETERS,
    "hybridshard": ShardLevel.PARAMETERS,
    "fullshard": ShardLevel.PARAMETERS,
    "fullysharded": ShardLevel.PARAMETERS,
    "sharded": ShardLevel.PARAMETERS,
    "gemini": ShardLevel.PARAMETERS,  # Colossal-AI's ZeRO-3 by chunks
    "mics": ShardLevel.PARAMETERS,  # ZeRO-3 within groups, arXiv 2205.00119
    "optim": ShardLevel.OPTIMIZER,
    "zero": ShardLevel.OPTIMIZER,
    "ddp": ShardLevel.NONE,
    "replicated": ShardLevel.NONE,
}
"""By a word within the cell, letters and digits alone; the first that occurs counts (``FSDP-SHARD_GRAD_OP``)."""

_NUM_SHARDS = re.compile(r"[fh]sdp(?:[12]\D+|(?![12]$)\D*)(\d+)$")
"""``FSDP128``, ``FSDP2-64``, ``HSDP (8)``; a lone 1 or 2 after the word is a version."""


def shard_level(text: str) -> Sharding:
    """What the data-parallel ranks split, and among how many of them."""
    word = text.lower().strip()
    if word in ("", "0", "no", "false"):
        return Sharding(ShardLevel.NONE)
    if word in ShardLevel.labels():
        return Sharding(ShardLevel.from_label(word))
    if word in ("1", "2", "3"):
        return Sharding(tuple(ShardLevel)[int(word)])
    plain = _plain(text)
    for known, level in _SHARD_LEVELS.items():
        if known in plain:
            size = _NUM_SHARDS.search(word.rstrip(") ")) if "zero" not in plain else None
            num_ranks = int(size[1][:9]) if size else 0
            in_node = not num_ranks and any(word in plain for word in ("hsdp", "hybrid", "mics"))
            return Sharding(level, in_node, num_ranks or None)
    raise UnusableRow("the shard level has no name that is known", text)


# ---------------------------------------------------------------- pipelines
_SCHEDULES = {
    "": PipelineSchedule.ONE_F_ONE_B,
    "none": PipelineSchedule.ONE_F_ONE_B,
    "1f1b": PipelineSchedule.ONE_F_ONE_B,
    "pipedreamflush": PipelineSchedule.ONE_F_ONE_B,
    "1f1bi": PipelineSchedule.INTERLEAVED_1F1B,
    "i1f1b": PipelineSchedule.INTERLEAVED_1F1B,
    "interleaved": PipelineSchedule.INTERLEAVED_1F1B,
    "interleaved1f1b": PipelineSchedule.INTERLEAVED_1F1B,
    "1f1binterleaved": PipelineSchedule.INTERLEAVED_1F1B,
    "vpp": PipelineSchedule.INTERLEAVED_1F1B,
    "zerobubble": PipelineSchedule.ZERO_BUBBLE,
    "interleavedzerobubble": PipelineSchedule.ZERO_BUBBLE,
    "zb": PipelineSchedule.ZERO_BUBBLE,
    "zb1p": PipelineSchedule.ZERO_BUBBLE,  # searched for within ZB-H1's memory
    "zbh1": PipelineSchedule.ZERO_BUBBLE,
    "zb2p": PipelineSchedule.ZERO_BUBBLE,  # twice the memory, and less waiting still: the nearest there is
    "zbh2": PipelineSchedule.ZERO_BUBBLE,
    "zbv": PipelineSchedule.ZBV,
    "zbvzerobubble": PipelineSchedule.ZBV,
    "dualpipev": PipelineSchedule.DUALPIPEV,
    "dualpipe": PipelineSchedule.DUALPIPEV,
    "adaptive": PipelineSchedule.ADAPTIVE,
    "gpipe": PipelineSchedule.GPIPE,
    "afab": PipelineSchedule.GPIPE,
    "allforwardallbackward": PipelineSchedule.GPIPE,
}


def is_interleaved(text: str) -> bool:
    """Whether the word names a schedule that needs several stages per rank, and does not say how many."""
    return _scheduled(text) == PipelineSchedule.INTERLEAVED_1F1B


def schedule(text: str, virtual_stages_per_rank: int) -> PipelineSchedule:
    """The schedule of a pipeline; a blank one is 1F1B, interleaved where a rank has several stages."""
    found = _scheduled(text)
    several = virtual_stages_per_rank > 1
    if found == PipelineSchedule.ONE_F_ONE_B and several:
        return PipelineSchedule.INTERLEAVED_1F1B
    fits = (
        (found in (*ONE_STAGE_SCHEDULES, PipelineSchedule.ADAPTIVE) and not several)
        or (found == PipelineSchedule.INTERLEAVED_1F1B and several)
        or found == PipelineSchedule.ZERO_BUBBLE
        or (found in V_SCHEDULES and virtual_stages_per_rank <= 2)  # by construction, counted by the table or not
    )
    if found is None or not fits:
        of = f"{text} with {virtual_stages_per_rank} stage(s) per rank"
        raise UnusableRow("the schedule is none of the layout's", of)
    return found


def _scheduled(text: str) -> PipelineSchedule | None:
    """What the word names; what a table adds in parentheses is about other things."""
    return _SCHEDULES.get(_plain(re.sub(r"\(.*", "", text)).removesuffix("schedule"))


# ---------------------------------------------------------------- activations
class Recomputation(NamedTuple):
    """Which activations are computed again."""

    level: Recompute
    every: int = 1
    """One layer in so many does."""
    policies: tuple[RecomputePolicy, ...] = ()
    """What a selective one drops; empty: what the software usually does."""
    num_layers: int | None = None
    """So many layers of each stage do; None: all, or those that ``every`` says."""


_KEEPS_ALL = ("none", "disabled", "off", "0", "no", "false", "nothing", "norecompute", "noac", "saveall")
_DROPS_ALL = ("full", "everylayer", "on", "1", "yes", "true", "uniform", "block", "fullac", "fulllayer", "fullremat")
_DROPS_SOME = re.compile(
    r"select|core_?attn|attn|attention|mlp|moe|norm|proj|minimal|custom|save_|dots|_saveable|offload|\bop\b|context"
)
"""Selective recomputation of any framework, and MaxText's ``remat_policy`` (MaxText/configs/base.yml, 2025-10)."""

_PARTS = (
    (r"\bop\b|every_other_product", RecomputePolicy.EVERY_OTHER_PRODUCT),  # torchtitan's selective_ac_option
    (r"all_but_products|dots_saveable|save_dots", RecomputePolicy.ALL_BUT_PRODUCTS),
    (r"minimal_(flash|with_context)|minimal.*context", RecomputePolicy.MINIMAL_WITH_CONTEXT),
    (r"minimal", RecomputePolicy.MINIMAL),
    (r"save_dot_with_context_except_mlp", RecomputePolicy.SAVE_DOT_WITH_CONTEXT_EXCEPT_MLP),
    (r"save_dot_except_mlpwi|mlpwo", RecomputePolicy.SAVE_DOT_EXCEPT_MLPWI),
    (r"save_dot_except_mlp|custom", RecomputePolicy.SAVE_DOT_EXCEPT_MLP),
    (r"save_qkv_proj|qkv_proj_offloaded", RecomputePolicy.SAVE_QKV_PROJ),
    (r"save_out_proj", RecomputePolicy.SAVE_OUT_PROJ),
)
"""Policies of a whole layer, of which one holds; ``custom`` of MaxText keeps what its recipes at NVIDIA say."""

_MODULES = (
    (r"norm", RecomputePolicy.LAYERNORM),
    (r"mla", RecomputePolicy.MLA_UP_PROJ),
    (r"core|sdpa?\b|attn|attention", RecomputePolicy.CORE_ATTN),
    (r"shared", RecomputePolicy.SHARED_EXPERTS),
    (r"moe_?act|\bact", RecomputePolicy.MOE_ACT),
    (r"moe|expert", RecomputePolicy.MOE),
    (r"mlp|ffn", RecomputePolicy.MLP),
)
"""Modules of Megatron's layers, of which several may hold, by the first pattern that each word has."""


def _policies(word: str) -> tuple[RecomputePolicy, ...]:
    whole = next((policy for pattern, policy in _PARTS if re.search(pattern, word)), None)
    if whole is not None:
        return (whole,)
    found = (
        next((p for pattern, p in _MODULES if re.search(pattern, part)), None) for part in re.split(r"[^a-z_]+", word)
    )
    return tuple(dict.fromkeys(policy for policy in found if policy is not None))


_LAYER_INTERVAL = re.compile(r"select\w*[- ]*layer\D*(\d*)|select\D*(\d+)$|every[ -_]*(\d+|other|second|third)")
_INTERVALS = {"": 2, "other": 2, "second": 2, "third": 3}  # torchtitan's selective_ac_option is "2" where it is layers


_OFFLOAD = re.compile(r"[ +,&]*(?:with |and |cpu |activation )*\boff-?load(?:ing|ed)?\b(?: \([^)]*\))?")


def offloads(text: str) -> bool:
    """Whether activations wait in the host's memory."""
    return bool(_OFFLOAD.search(text.lower()))


def recompute(text: str) -> Recomputation:
    """Which activations are computed again; what it says of offloading is left to ``offloads``."""
    word = _OFFLOAD.sub("", text.lower()).strip()
    head, _, inside = word.partition("(")
    plain = _plain(head) or _plain(word)
    if not plain or plain in _KEEPS_ALL:
        return Recomputation(Recompute.NONE)
    some = re.search(r"(\d+) *(?:of|/|layers?)", inside)
    if plain in _DROPS_ALL or plain.startswith(("full", "block", "uniform")):
        of_each_stage = int(some[1][:9]) if some and "uniform" not in word else 0  # uniform: layers of one checkpoint
        return Recomputation(Recompute.FULL, num_layers=of_each_stage or None)
    interval = _LAYER_INTERVAL.search(word.rstrip(") "))
    if interval:
        found = next((group for group in interval.groups() if group), "")
        return Recomputation(Recompute.FULL, every=_INTERVALS.get(found) or max(1, int(found[:9])))
    if _DROPS_SOME.search(word):
        return Recomputation(Recompute.SELECTIVE, policies=_policies(word.replace("-", " ")))
    raise UnusableRow("the recomputation has no name that is known", text)


# ---------------------------------------------------------------- kernels
_TRANSFORMER_ENGINE = (AttentionKernel.CUDNN, AttentionKernel.FLASH)
"""What Transformer Engine takes by itself: cuDNN's kernels on Hopper and later, before it FlashAttention-2, whose law
cuDNN's kernels have there.

transformer_engine/pytorch/attention/dot_product_attention/utils.py, get_attention_backend, v2.8 (2025-10).
"""

_KERNELS: tuple[tuple[str, AttentionKernel], ...] = (
    (r"flash[_ -]*(?:attention|attn)?[_ -]*v?1|\bfa[_ -]?v?1", AttentionKernel.FLASH_1),
    (r"flash[_ -]*(?:attention|attn)?[_ -]*v?2|\bfa[_ -]?v?2", AttentionKernel.FLASH),
    (r"flash[_ -]*(?:attention|attn)?[_ -]*v?[34]|\bfa[_ -]?v?[34]", AttentionKernel.FLASH_3),
    (r"triton.*flash|flash.*triton", AttentionKernel.FLASH_1),
    (r"unfused|local|eager|math|naive|\btorch$|core_attention", AttentionKernel.MATH),
    (r"cudnn|fused[_ -]*attention|fused[_ -]*attn", AttentionKernel.CUDNN),
    (r"fused", AttentionKernel.FUSED_SOFTMAX),
    (r"flex", AttentionKernel.FLEX),
    (r"xformers|efficient", AttentionKernel.EFFICIENT),
    (r"tilelang|triton|pallas|splash|sdpa|pytorch|\bck\b|aiter", AttentionKernel.FLASH),
)
"""By a pattern; the first that occurs counts. FlashAttention-4 is told as 3; TileLang's, Triton's and ROCm's as 2."""

_FALLBACKS = (
    *(AttentionKernel.FLASH_3, AttentionKernel.CUDNN, AttentionKernel.FLASH),
    *(AttentionKernel.EFFICIENT, AttentionKernel.MATH),
)


def attention_kernel(text: str, flash: str = "flash") -> AttentionKernel | None:
    """The implementation of attention; None: whatever Transformer Engine takes.

    Args:
        text: The table's word.
        flash: Label of what FlashAttention without a version means.
    """
    word = text.lower().strip()
    if word in AttentionKernel.labels():
        return AttentionKernel.from_label(flash if word == "flash" else word)
    if re.search(r"\bte\b|transformer[_ -]*engine", word):
        return None
    for pattern, kernel in _KERNELS:
        if re.search(pattern, word):
            return kernel
    if re.search(r"flash|\bfa\b", word):
        return AttentionKernel.from_label(flash)
    if word in ("", "auto", "default"):
        return AttentionKernel.FLASH
    raise UnusableRow("the attention kernel has no name that is known", text)


def kernel_on(
    kernel: AttentionKernel | None, offered: Collection[AttentionKernel], precision: Precision
) -> AttentionKernel:
    """The kernel, or where the accelerator has none such the nearest that it has, which frameworks fall back to."""
    if precision == Precision.FP32:
        wanted: tuple[AttentionKernel, ...] = (AttentionKernel.EFFICIENT, AttentionKernel.MATH)
        wanted = (kernel,) if kernel in (AttentionKernel.MATH, AttentionKernel.FUSED_SOFTMAX) else wanted
    else:
        wanted = _TRANSFORMER_ENGINE if kernel is None else (kernel,)
    flash_or_less = _FALLBACKS if kernel not in (AttentionKernel.MATH, AttentionKernel.FUSED_SOFTMAX) else ()
    fallbacks = (*wanted, *flash_or_less, AttentionKernel.MATH)
    return next((one for one in fallbacks if one in offered), AttentionKernel.MATH)


# ---------------------------------------------------------------- number formats
_C = TypeVar("_C", bound=Choice)


def _member_or(choice: type[_C], label: str, other: _C) -> _C:
    return choice.from_label(label) if label in choice.labels() else other


def precision(text: str) -> Precision:
    """The format of matrix products; fp16 is told as bf16, whose rates and sizes it has."""
    word = text.lower().strip()
    if word in Precision.labels():
        return Precision.from_label(word)
    if re.search(r"(nv|mx)?fp4|float4", word):
        return _member_or(Precision, "nvfp4", Precision.FP8)
    if re.search(r"fp8|float8|e4m3|e5m2|w8a8", word):
        return Precision.FP8
    if re.search(r"(bf|fp|float)[ -]?16|half|mixed|amp", word):
        return Precision.BF16
    if re.search(r"(fp|float)32|single", word):
        return Precision.FP32
    raise UnusableRow("the precision has no name that is known", text)


_RECIPES = (
    (r"mxfp8|fp8[-_ ]*mx|\bmx", "mxfp8"),
    (r"delayed|\bds\b|fp8[-_]ds", "delayed"),
    (r"row", "rowwise"),
    (r"block|sub-?channel|1x128|deep_?gemm|fp8[-_]sc", "blockwise"),
    (r"current|tensorwise|tensor-wise|dynamic|fp8[-_]cs", "tensorwise"),
)


def fp8_recipe(text: str, usual: str = "tensorwise") -> Fp8Recipe:
    """What shares a scale; ``usual`` is the label of what a table that does not say means."""
    label = next((label for pattern, label in _RECIPES if re.search(pattern, text.lower())), usual)
    return _member_or(Fp8Recipe, label, Fp8Recipe.TENSORWISE)


_EXCHANGES = (
    (r"a2a\+p2p", ContextExchange.RING),  # heads inside a node, a ring between nodes: the ring is what costs
    (r"a2a|all[-_ ]?to[-_ ]?all|ulysses", ContextExchange.ALL_TO_ALL),
    (r"all[-_ ]?gather", ContextExchange.ALL_GATHER),
    (r"p2p|ring", ContextExchange.RING),
)


def context_exchange(text: str, usual: str = "ring") -> ContextExchange:
    """How ranks that split the sequence meet in attention; the label ``usual`` where the text does not say."""
    found = next((one for pattern, one in _EXCHANGES if re.search(pattern, text.lower())), None)
    return ContextExchange.from_label(usual) if found is None else found
