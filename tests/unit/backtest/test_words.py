"""What tables call the choices of a layout."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autotuner.backtest import words
from autotuner.domain.jobs.stages import V_SCHEDULES
from autotuner.domain.layouts.choice import AttentionKernel, Choice, PipelineSchedule, Precision, Recompute, ShardLevel

READERS: list[tuple[type[Choice], Callable[[str], Choice]]] = [
    (ShardLevel, lambda text: words.shard_level(text)[0]),
    (Recompute, words.recompute),
    (AttentionKernel, lambda text: words.attention_kernel(text, "flash")),
    (Precision, words.precision),
]


@pytest.mark.parametrize(("choice", "read"), READERS)
def test_our_own_labels_are_understood(choice: type[Choice], read: Callable[[str], Choice]) -> None:
    assert [read(label) for label in choice.labels()] == list(choice)


def test_our_own_labels_of_schedules_are_understood() -> None:
    stages = dict.fromkeys((PipelineSchedule.INTERLEAVED_1F1B, *V_SCHEDULES), 2)
    assert [words.schedule(s.label, stages.get(s, 1)) for s in PipelineSchedule] == list(PipelineSchedule)


@pytest.mark.parametrize(
    ("text", "level", "in_node"),
    [
        ("", ShardLevel.NONE, False),
        ("DDP", ShardLevel.NONE, False),
        ("ZeRO-1", ShardLevel.OPTIMIZER, False),
        ("distributed optimizer", ShardLevel.OPTIMIZER, False),
        ("FSDP-SHARD_GRAD_OP", ShardLevel.GRADIENTS, False),
        ("zero_3", ShardLevel.PARAMETERS, False),
        ("FSDP2-64", ShardLevel.PARAMETERS, False),
        ("FSDP-NO_SHARD", ShardLevel.NONE, False),
        ("HSDP", ShardLevel.PARAMETERS, True),
        ("FSDP-HYBRID_SHARD", ShardLevel.PARAMETERS, True),
    ],
)
def test_shard_levels_go_by_the_names_of_every_framework(text: str, level: ShardLevel, in_node: bool) -> None:
    assert words.shard_level(text) == (level, in_node)


@pytest.mark.parametrize(
    ("text", "stages", "schedule"),
    [
        ("", 1, PipelineSchedule.ONE_F_ONE_B),
        ("", 4, PipelineSchedule.INTERLEAVED_1F1B),
        ("1F1B", 2, PipelineSchedule.INTERLEAVED_1F1B),
        ("ZB-1p", 1, PipelineSchedule.ZERO_BUBBLE),
        ("ZB-V", 1, PipelineSchedule.ZBV),
        ("GPipe", 1, PipelineSchedule.GPIPE),
    ],
)
def test_a_schedule_follows_from_its_name_and_its_stages(text: str, stages: int, schedule: PipelineSchedule) -> None:
    assert words.schedule(text, stages) == schedule


@pytest.mark.parametrize(("text", "stages"), [("interleaved", 1), ("gpipe", 2), ("zb-h1", 2), ("zb-h2", 1), ("zbv", 3)])
def test_a_schedule_with_stages_that_it_cannot_have_is_refused(text: str, stages: int) -> None:
    with pytest.raises(words.UnusableRow, match=f"schedule {text} with {stages} stage"):
        words.schedule(text, stages)


@pytest.mark.parametrize(
    ("text", "kernel"),
    [
        ("FlashAttention-3", AttentionKernel.FLASH_3),
        ("flash_attentionv1.0.8", AttentionKernel.FLASH_1),
        ("flash attn 2", AttentionKernel.FLASH),
        ("flash_attention", AttentionKernel.FLASH_3),  # the version the caller says
        ("fused-softmax", AttentionKernel.FUSED_SOFTMAX),
        ("unfused", AttentionKernel.MATH),
        ("torch", AttentionKernel.MATH),
        ("SDPA", AttentionKernel.FLASH),
    ],
)
def test_kernels_are_told_by_name_and_version(text: str, kernel: AttentionKernel) -> None:
    assert words.attention_kernel(text, flash="flash_3") == kernel


@pytest.mark.parametrize(
    ("text", "precision"),
    [
        ("amp_bf16", Precision.BF16),
        ("bfloat16", Precision.BF16),
        ("fp16", Precision.BF16),
        ("bf16 + float8", Precision.FP8),
        ("float32", Precision.FP32),
    ],
)
def test_formats_are_told_by_any_of_their_names(text: str, precision: Precision) -> None:
    assert words.precision(text) == precision


def test_tf32_is_not_taken_for_fp32() -> None:
    with pytest.raises(words.UnusableRow, match="tf32"):
        words.precision("tf32")
