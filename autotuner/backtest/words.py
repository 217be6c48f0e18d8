"""What tables call the choices of a layout, as members of those choices; our own labels are understood everywhere."""

from __future__ import annotations

import re

from autotuner.domain.layouts.choice import AttentionKernel, PipelineSchedule, Precision, Recompute, ShardLevel

__all__ = ["UnusableRow", "attention_kernel", "precision", "recompute", "schedule", "shard_level"]


class UnusableRow(Exception):
    """The row cannot be predicted or judged; the message says why, in words that many rows share."""


_SHARD_LEVELS = {
    "noshard": ShardLevel.NONE,
    "shardgradop": ShardLevel.GRADIENTS,
    "distributedoptimizer": ShardLevel.OPTIMIZER,
    "zero0": ShardLevel.NONE,
    "zero1": ShardLevel.OPTIMIZER,
    "zero2": ShardLevel.GRADIENTS,
    "zero3": ShardLevel.PARAMETERS,
    "fsdp": ShardLevel.PARAMETERS,
    "hsdp": ShardLevel.PARAMETERS,
    "hybridshard": ShardLevel.PARAMETERS,
}
"""By a word within the cell, letters and digits alone; the first that occurs counts (``FSDP-SHARD_GRAD_OP``)."""


def shard_level(text: str) -> tuple[ShardLevel, bool]:
    """What the data-parallel ranks split, and whether only those of one node do."""
    if text.lower() in ("", "0", "ddp"):
        return ShardLevel.NONE, False
    if text.lower() in ShardLevel.labels():
        return ShardLevel.from_label(text.lower()), False
    plain = re.sub(r"[^a-z0-9]", "", text.lower())
    for word, level in _SHARD_LEVELS.items():
        if word in plain:
            return level, "hsdp" in plain or "hybrid" in plain
    raise UnusableRow(f"no shard level is called {text!r}")


def schedule(text: str, virtual_stages_per_rank: int) -> PipelineSchedule:
    """The schedule of a pipeline; a blank one is 1F1B, interleaved where a rank has several stages."""
    match text.lower(), virtual_stages_per_rank:
        case (("" | "1f1b"), 1):
            return PipelineSchedule.ONE_F_ONE_B
        case (("" | "1f1b" | "1f1b-i" | "interleaved" | "interleaved_1f1b"), several) if several > 1:
            return PipelineSchedule.INTERLEAVED_1F1B
        case "zero_bubble", _:
            return PipelineSchedule.ZERO_BUBBLE
        case (("zb-1p" | "zb-h1"), 1):  # ZB-1p: searched for within ZB-H1's memory
            return PipelineSchedule.ZERO_BUBBLE
        case (("zbv" | "zb-v"), (1 | 2)):  # two stages per rank by construction, whether or not the table counts them
            return PipelineSchedule.ZBV
        case "dualpipev", (1 | 2):
            return PipelineSchedule.DUALPIPEV
        case "gpipe", 1:
            return PipelineSchedule.GPIPE
    raise UnusableRow(f"schedule {text} with {virtual_stages_per_rank} stage(s) per rank is none of the layout's")


def recompute(text: str) -> Recompute:
    """Which activations are computed again."""
    match text.lower():
        case "none" | "disabled" | "off" | "0" | "no" | "false":
            return Recompute.NONE
        case "full" | "every_layer" | "on" | "1" | "yes" | "true" | "uniform":
            return Recompute.FULL
        case "selective":
            return Recompute.SELECTIVE
    raise UnusableRow(f"recomputation {text!r} is none of the layout's")


def attention_kernel(text: str, flash: str) -> AttentionKernel:
    """The implementation of attention; ``flash`` is the label of what FlashAttention without a version means."""
    word = text.lower()
    versions = {"1": AttentionKernel.FLASH_1, "2": AttentionKernel.FLASH, "3": AttentionKernel.FLASH_3}
    if "flash" in word:
        version = re.search(r"flash[_ -]*(?:attention|attn)?[_ -]*v?([123])", word)
        return versions[version[1]] if version else AttentionKernel.from_label(flash)
    if word in AttentionKernel.labels():
        return AttentionKernel.from_label(word)
    if word in ("torch", "eager", "unfused"):
        return AttentionKernel.MATH
    if "fused" in word:
        return AttentionKernel.FUSED_SOFTMAX
    if word in ("", "sdpa", "te"):
        return AttentionKernel.FLASH
    raise UnusableRow(f"attention {text!r} is none of the layout's")


def precision(text: str) -> Precision:
    """The format of matrix products; fp16 is told as bf16, whose rates and sizes it has."""
    word = text.lower()
    if word in Precision.labels():
        return Precision.from_label(word)
    if "fp8" in word or "float8" in word:
        return Precision.FP8
    if re.search(r"(bf|fp|float)16|half", word):
        return Precision.BF16
    if word in ("fp32", "float32"):
        return Precision.FP32
    raise UnusableRow(f"precision {text!r} is none of the layout's")
