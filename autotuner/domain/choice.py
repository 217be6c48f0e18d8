"""Choices with few values: an integer where a column of layouts is computed, a word everywhere a person looks."""

from __future__ import annotations

from enum import IntEnum
from typing import Self

from autotuner.errors import InvalidInput

__all__ = ["AttentionKernel", "Choice", "PipelineSchedule", "Precision", "Recompute", "ShardLevel"]


class Choice(IntEnum):
    """An integer with a word.

    A rule or a formula compares a field with a member (``layout.recompute == Recompute.FULL``); the same line
    then works on one layout and on a numpy column of them. JSON, SQL and people see ``label``.
    """

    label: str

    def __new__(cls, value: int, label: str) -> Self:  # noqa: D102  # the class docstring says it
        member = int.__new__(cls, value)
        member._value_ = value
        member.label = label
        return member

    def __str__(self) -> str:
        return self.label

    @classmethod
    def labels(cls) -> tuple[str, ...]:
        """Every word, in the order of the integers."""
        return tuple(member.label for member in cls)

    @classmethod
    def from_label(cls, label: object, field: str = "") -> Self:
        """The member with that word.

        Raises:
            InvalidInput: No member has it; the rule lists those there are.
        """
        for member in cls:
            if member.label == label:
                return member
        raise InvalidInput(field or cls.__name__, label, f"must be one of {', '.join(cls.labels())}")


class PipelineSchedule(Choice):
    """The order of forwards and backwards on a pipeline rank."""

    GPIPE = 0, "gpipe"
    ONE_F_ONE_B = 1, "1f1b"
    INTERLEAVED_1F1B = 2, "interleaved_1f1b"
    ZERO_BUBBLE = 3, "zero_bubble"  # ZB-H1 of arXiv 2401.10241: one stage per rank, memory of 1F1B
    ZBV = 4, "zbv"  # two stages per rank in a V, arXiv 2405.15362


class ShardLevel(Choice):
    """What the data-parallel shard group splits (ZeRO 0, 1, 2, 3; arXiv 1910.02054)."""

    NONE = 0, "none"
    OPTIMIZER = 1, "optimizer"
    GRADIENTS = 2, "gradients"
    PARAMETERS = 3, "parameters"


class Recompute(Choice):
    """Which activations are computed again in the backward pass (arXiv 2205.05198)."""

    NONE = 0, "none"
    SELECTIVE = 1, "selective"  # the attention core only
    FULL = 2, "full"  # every layer, from its input


class AttentionKernel(Choice):
    """The implementation of scaled dot-product attention."""

    MATH = 0, "math"  # two batched products; scale, mask and softmax each pass over the scores
    EFFICIENT = 1, "efficient"  # xformers
    FLASH = 2, "flash"  # FlashAttention-2, arXiv 2307.08691
    FUSED_SOFTMAX = 3, "fused_softmax"  # two batched products around Megatron's scale-mask-softmax kernel
    FLASH_1 = 4, "flash_1"  # arXiv 2205.14135
    FLASH_3 = 5, "flash_3"  # Hopper only, arXiv 2407.08608


class Precision(Choice):
    """The number format of the matrix multiplications."""

    FP32 = 0, "fp32"
    BF16 = 1, "bf16"
    FP8 = 2, "fp8"
