"""Readers of table cells: text that means a number, a count, a switch, a choice of a layout, or nothing.

A reader raises ``UnusableRow`` for a cell that contains something else. All readers understand our own labels of
choices.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, TypeVar

from autotuner.core.choices import (
    AttentionKernel,
    ContextExchange,
    Fp8Recipe,
    PipelineSchedule,
    Precision,
    Recompute,
    ShardLevel,
)
from autotuner.core.recompute import RecomputePolicy
from autotuner.core.stages import ONE_STAGE_SCHEDULES, V_SCHEDULES

Row = Mapping[str, str]

_T = TypeVar("_T")
_MAX_COUNT = 10**9  # tokens per step and vocabulary sizes are smaller; a larger number is a typing error

_BLANK = ("", "-", "n/a", "na", "nan", "none", "null", "?", "unknown", "not stated")
"""Texts that mean an empty cell."""


class UnusableRow(Exception):
    """Raised for a row of a table that cannot be predicted or compared with its prediction.

    Attributes:
        reason: The reason in general words, so that rows with the same problem can be counted.
        detail: The value or words of this row that cause the problem.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason, self.detail = reason, detail


def text(row: Row, *names: str) -> str:
    """Return the first of the named cells that is not empty, without spaces around it; ``""`` if all are empty."""
    return next((cell for name in names if (cell := (row.get(name) or "").strip())), "")


def is_true(cell: str, blank: bool = False) -> bool:
    """Return True if a cell says yes (1, true, yes or on).

    Args:
        cell: The text of the cell.
        blank: The result if the cell is empty.
    """
    word = cell.strip().lower()
    return word in ("1", "1.0", "true", "yes", "on") if word else blank


def maybe_count(row: Row, *names: str, lowest: int = 1) -> int | None:
    """Return the whole number in the first of the named cells that is not blank; None if all are blank.

    Raises:
        UnusableRow: The cell does not hold a whole number of at least ``lowest``.
    """
    for name in names:
        cell = text(row, name).lower()
        if cell not in _BLANK:
            value = _number(name, cell)
            if not (lowest <= value <= _MAX_COUNT and value.is_integer()):
                raise UnusableRow(f"the value of the column {name} is not a whole number of 1 or more")
            return int(value)
    return None


def count(row: Row, *names: str) -> int:
    """Return the whole number in the first of the named cells that is not blank. It is an error if all are blank.

    Raises:
        UnusableRow: All named cells are blank, or the cell does not hold a whole number of at least 1.
    """
    value = maybe_count(row, *names)
    if value is None:
        raise UnusableRow(f"the column {names[0]} is empty, but it is required")
    return value


def positive(row: Row, name: str) -> float:
    """Return the number in a cell, which must be above zero.

    Raises:
        UnusableRow: The cell does not hold a number above zero.
    """
    value = _number(name, text(row, name))
    if value <= 0:
        raise UnusableRow(f"the value of the column {name} is not above 0")
    return value


def maybe_positive(row: Row, name: str) -> float | None:
    """Return the number in a cell, which must be above zero; None if the cell is blank.

    Raises:
        UnusableRow: The cell is not blank and does not hold a number above zero.
    """
    return None if text(row, name).lower() in _BLANK else positive(row, name)


def _number(name: str, cell: str) -> float:
    plain = re.sub(r"(?<=\d)[, _](?=\d{3})", "", cell).lstrip("~")  # 1,024 and ~704 are numbers too
    thousands = re.fullmatch(r"(\d{1,6})k", plain) if name == "seq_len" else None
    try:
        value = 1024.0 * int(thousands[1]) if thousands else float(plain)  # 8k tokens are 8,192
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UnusableRow(f"the value of the column {name} is not a number")
    return value


def _plain(text: str) -> str:
    """Return the letters and digits of a text in lower case."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _first(patterns: Iterable[tuple[str, _T]], text: str) -> _T | None:
    """Return the value of the first pattern that occurs in a text; None if no pattern occurs."""
    return next((found for pattern, found in patterns if re.search(pattern, text)), None)


# ---------------------------------------------------------------- sharding
class Sharding(NamedTuple):
    """The sharding of a run as a cell gives it: ZeRO level 0 to 3, and how many ranks shard one model copy."""

    level: ShardLevel
    in_node: bool = False
    """True if only the ranks of one node shard together."""
    num_ranks: int | None = None
    """Number of ranks that shard together. All further ranks are replicas. None: all ranks shard together."""


_SHARD_LEVELS = {
    "noshard": ShardLevel.NONE,
    "shardgradop": ShardLevel.GRADIENTS,
    **{f"zero{level.value}": level for level in ShardLevel},
    **{f"zerostage{level.value}": level for level in ShardLevel},
    **dict.fromkeys(("distributedoptimizer", "distoptimizer", "distopt"), ShardLevel.OPTIMIZER),
    "optimgradsparams": ShardLevel.PARAMETERS,  # Megatron-FSDP's data_parallel_sharding_strategy
    "optimgrads": ShardLevel.GRADIENTS,
    **dict.fromkeys(("fsdp", "hsdp", "hybridshard", "fullshard", "fullysharded", "sharded"), ShardLevel.PARAMETERS),
    "gemini": ShardLevel.PARAMETERS,  # Colossal-AI's ZeRO-3 by chunks
    "mics": ShardLevel.PARAMETERS,  # ZeRO-3 within groups, arXiv 2205.00119
    "optim": ShardLevel.OPTIMIZER,
    "zero": ShardLevel.OPTIMIZER,
    "ddp": ShardLevel.NONE,
    "replicated": ShardLevel.NONE,
}
"""Shard levels by a word in the cell, compared by letters and digits alone. The first word that occurs counts
(``FSDP-SHARD_GRAD_OP``)."""

_NUM_SHARDS = re.compile(r"[fh]sdp(?:[12]\D+|(?![12]$)\D*)(\d+)$")
"""Pattern of the number of shards: ``FSDP128``, ``FSDP2-64``, ``HSDP (8)``. A single 1 or 2 after the word is a
version."""


def shard_level(text: str) -> Sharding:
    """Return the shard level that a cell names and, if the cell gives it, the number of ranks that shard together.

    Raises:
        UnusableRow: The words of the cell are unknown.
    """
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
    raise UnusableRow("the shard level is not a known name, such as zero1 or fsdp", text)


# ---------------------------------------------------------------- pipelines
_SCHEDULES = {
    **dict.fromkeys(("", "none", "1f1b", "pipedreamflush"), PipelineSchedule.ONE_F_ONE_B),
    **dict.fromkeys(("1f1bi", "i1f1b", "interleaved", "interleaved1f1b"), PipelineSchedule.INTERLEAVED_1F1B),
    **dict.fromkeys(("1f1binterleaved", "vpp"), PipelineSchedule.INTERLEAVED_1F1B),
    **dict.fromkeys(("zerobubble", "interleavedzerobubble", "zb", "zbh1"), PipelineSchedule.ZERO_BUBBLE),
    "zb1p": PipelineSchedule.ZERO_BUBBLE,  # searched for within ZB-H1's memory
    # twice the memory, and less waiting still: the nearest there is
    **dict.fromkeys(("zb2p", "zbh2"), PipelineSchedule.ZERO_BUBBLE),
    **dict.fromkeys(("zbv", "zbvzerobubble"), PipelineSchedule.ZBV),
    **dict.fromkeys(("dualpipev", "dualpipe"), PipelineSchedule.DUALPIPEV),
    "adaptive": PipelineSchedule.ADAPTIVE,
    **dict.fromkeys(("gpipe", "afab", "allforwardallbackward"), PipelineSchedule.GPIPE),
}


def is_interleaved(text: str) -> bool:
    """Return True if a cell names an interleaved schedule, which needs several stages per rank.

    The cell does not give the number of stages.
    """
    return _scheduled(text) == PipelineSchedule.INTERLEAVED_1F1B


def schedule(text: str, virtual_stages_per_rank: int) -> PipelineSchedule:
    """Return the pipeline schedule that a cell names; a blank cell means 1F1B.

    If a rank has several stages, 1F1B means interleaved 1F1B.

    Raises:
        UnusableRow: The schedule is unknown, or does not exist for this number of stages per rank.
    """
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
        raise UnusableRow("a layout cannot express this pipeline schedule", of)
    return found


def _scheduled(text: str) -> PipelineSchedule | None:
    """Return the schedule that a word names; None if it names none.

    Text in parentheses is ignored, because tables add other things there.
    """
    return _SCHEDULES.get(_plain(re.sub(r"\(.*", "", text)).removesuffix("schedule"))


# ---------------------------------------------------------------- activations
class Recomputation(NamedTuple):
    """The recomputation of a run as a cell gives it: which activations are computed again, and in which layers."""

    level: Recompute
    every: int = 1
    """Interval of recomputed layers: one layer of every n recomputes."""
    policies: tuple[RecomputePolicy, ...] = ()
    """Policies of selective recomputation; empty: the usual policies of the software."""
    num_layers: int | None = None
    """Number of recomputed layers of each stage; None: all layers, or those that ``every`` selects."""


_KEEPS_ALL = ("none", "disabled", "off", "0", "no", "false", "nothing", "norecompute", "noac", "saveall")
_DROPS_ALL = ("full", "everylayer", "on", "1", "yes", "true", "uniform", "block", "fullac", "fulllayer", "fullremat")
_DROPS_SOME = re.compile(
    r"select|core_?attn|attn|attention|mlp|moe|norm|proj|minimal|custom|save_|dots|_saveable|offload|\bop\b|context"
)
"""Pattern of selective recomputation in any framework, and in MaxText's ``remat_policy`` (MaxText/configs/base.yml,
2025-10)."""

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
"""Policies for a whole layer, of which only one applies. ``custom`` of MaxText keeps the activations that NVIDIA's
recipes name."""

_MODULES = (
    (r"norm", RecomputePolicy.LAYERNORM),
    (r"mla", RecomputePolicy.MLA_UP_PROJ),
    (r"core|sdpa?\b|attn|attention", RecomputePolicy.CORE_ATTN),
    (r"shared", RecomputePolicy.SHARED_EXPERTS),
    (r"moe_?act|\bact", RecomputePolicy.MOE_ACT),
    (r"moe|expert", RecomputePolicy.MOE),
    (r"mlp|ffn", RecomputePolicy.MLP),
)
"""Policies by Megatron module, of which several can apply. Each word counts for the first pattern that matches it."""


def _policies(word: str) -> tuple[RecomputePolicy, ...]:
    whole = _first(_PARTS, word)
    if whole is not None:
        return (whole,)
    found = (_first(_MODULES, part) for part in re.split(r"[^a-z_]+", word))
    return tuple(dict.fromkeys(policy for policy in found if policy is not None))


_LAYER_INTERVAL = re.compile(r"select\w*[- ]*layer\D*(\d*)|select\D*(\d+)$|every[ -_]*(\d+|other|second|third)")
_INTERVALS = {"": 2, "other": 2, "second": 2, "third": 3}  # torchtitan's selective_ac_option is "2" where it is layers


_OFFLOAD = re.compile(r"[ +,&]*(?:with |and |cpu |activation )*\boff-?load(?:ing|ed)?\b(?: \([^)]*\))?")


def offloads(text: str) -> bool:
    """Return True if a cell on recomputation says that activations are moved to the memory of the host."""
    return bool(_OFFLOAD.search(text.lower()))


def recompute(text: str) -> Recomputation:
    """Return the recomputation that a cell names. Words about offloading are ignored; ``offloads`` reads them.

    Raises:
        UnusableRow: The words of the cell are unknown.
    """
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
    raise UnusableRow("the recomputation is not a known name, such as none, selective or full", text)


# ---------------------------------------------------------------- kernels
_TRANSFORMER_ENGINE = (AttentionKernel.CUDNN, AttentionKernel.FLASH)
"""Attention kernels that Transformer Engine selects by default: cuDNN's on Hopper and later, FlashAttention-2 before,
whose cost law cuDNN's kernels share there. Source: transformer_engine/pytorch/attention/dot_product_attention/utils.py,
get_attention_backend, v2.8 (2025-10)."""

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
"""Attention kernels by a pattern of the cell. The first pattern that occurs counts. FlashAttention-4 counts as 3; the
kernels of TileLang, Triton and ROCm count as 2."""

_FALLBACKS = (
    *(AttentionKernel.FLASH_3, AttentionKernel.CUDNN, AttentionKernel.FLASH),
    *(AttentionKernel.EFFICIENT, AttentionKernel.MATH),
)


def attention_kernel(text: str, flash: str = "flash") -> AttentionKernel | None:
    """Return the attention kernel that a cell names; None: the kernel that Transformer Engine chooses.

    Args:
        text: The word in the cell.
        flash: Label of the FlashAttention version to return if the cell says only ``flash``.

    Raises:
        UnusableRow: The word is unknown.
    """
    word = text.lower().strip()
    if word in AttentionKernel.labels():
        return AttentionKernel.from_label(flash if word == "flash" else word)
    if re.search(r"\bte\b|transformer[_ -]*engine", word):
        return None
    kernel = _first(_KERNELS, word)
    if kernel is not None:
        return kernel
    if re.search(r"flash|\bfa\b", word):
        return AttentionKernel.from_label(flash)
    if word in ("", "auto", "default"):
        return AttentionKernel.FLASH
    raise UnusableRow("the attention kernel is not a known name, such as flash2", text)


def kernel_on(
    kernel: AttentionKernel | None, offered: Collection[AttentionKernel], precision: Precision
) -> AttentionKernel:
    """Return the attention kernel that a run uses on an accelerator: the wanted kernel, or else the first fallback.

    The fallbacks are tried in the same order as in the frameworks.

    Args:
        kernel: The wanted kernel; None: the one that Transformer Engine chooses.
        offered: The kernels that exist on the accelerator.
        precision: The precision of the run; fp32 has fewer kernels.
    """
    if precision == Precision.FP32:
        wanted: tuple[AttentionKernel, ...] = (AttentionKernel.EFFICIENT, AttentionKernel.MATH)
        wanted = (kernel,) if kernel in (AttentionKernel.MATH, AttentionKernel.FUSED_SOFTMAX) else wanted
    else:
        wanted = _TRANSFORMER_ENGINE if kernel is None else (kernel,)
    flash_or_less = _FALLBACKS if kernel not in (AttentionKernel.MATH, AttentionKernel.FUSED_SOFTMAX) else ()
    fallbacks = (*wanted, *flash_or_less, AttentionKernel.MATH)
    return next((one for one in fallbacks if one in offered), AttentionKernel.MATH)


# ---------------------------------------------------------------- number formats
def precision(text: str) -> Precision:
    """Return the number format of matrix products that a cell names.

    For fp16, the result is bf16, which has the same speed and size.

    Raises:
        UnusableRow: The word is unknown.
    """
    word = text.lower().strip()
    if word in Precision.labels():
        return Precision.from_label(word)
    found = _first(_PRECISIONS, word)
    if found is None:
        raise UnusableRow("the precision is not a known name, such as bf16 or fp8", text)
    return found


_PRECISIONS = (
    (r"(nv|mx)?fp4|float4", Precision.NVFP4),
    (r"fp8|float8|e4m3|e5m2|w8a8", Precision.FP8),
    (r"(bf|fp|float)[ -]?16|half|mixed|amp", Precision.BF16),
    (r"(fp|float)32|single", Precision.FP32),
)

_RECIPES = (
    (r"mxfp8|fp8[-_ ]*mx|\bmx", Fp8Recipe.MXFP8),
    (r"delayed|\bds\b|fp8[-_]ds", Fp8Recipe.DELAYED),
    (r"row", Fp8Recipe.ROWWISE),
    (r"block|sub-?channel|1x128|deep_?gemm|fp8[-_]sc", Fp8Recipe.BLOCKWISE),
    (r"current|tensorwise|tensor-wise|dynamic|fp8[-_]cs", Fp8Recipe.TENSORWISE),
)


def fp8_recipe(text: str, usual: str = "tensorwise") -> Fp8Recipe:
    """Return the fp8 recipe that a cell names. A recipe says which values share one scale.

    Args:
        text: The words of the cell.
        usual: Label of the recipe to return if the cell names none.
    """
    found = _first(_RECIPES, text.lower())
    return Fp8Recipe.from_label(usual) if found is None else found


_EXCHANGES = (
    (r"a2a\+p2p", ContextExchange.RING),  # heads inside a node, a ring between nodes: the ring is what costs
    (r"a2a|all[-_ ]?to[-_ ]?all|ulysses", ContextExchange.ALL_TO_ALL),
    (r"all[-_ ]?gather", ContextExchange.ALL_GATHER),
    (r"p2p|ring", ContextExchange.RING),
)


def context_exchange(text: str, usual: str = "ring") -> ContextExchange:
    """Return the method that a cell names for the exchange of keys and values between context-parallel ranks.

    Args:
        text: The words of the cell.
        usual: Label of the exchange to return if the cell names none.
    """
    found = _first(_EXCHANGES, text.lower())
    return ContextExchange.from_label(usual) if found is None else found
