"""What tables call the choices of a layout."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autotuner.backtest import words
from autotuner.backtest.cells import UnusableRow
from autotuner.core.choices import AttentionKernel, Choice, PipelineSchedule, Precision, Recompute, ShardLevel
from autotuner.core.recompute import RecomputePolicy
from autotuner.core.stages import V_SCHEDULES

READERS: list[tuple[type[Choice], Callable[[str], Choice]]] = [
    (ShardLevel, lambda text: words.shard_level(text).level),
    (Recompute, lambda text: words.recompute(text).level),
    (
        AttentionKernel,
        lambda text: words.kernel_on(words.attention_kernel(text), tuple(AttentionKernel), Precision.BF16),
    ),
    (Precision, words.precision),
]


@pytest.mark.parametrize(("choice", "read"), READERS)
def test_our_own_labels_are_understood(choice: type[Choice], read: Callable[[str], Choice]) -> None:
    assert [read(label) for label in choice.labels()] == list(choice)


def test_our_own_labels_of_schedules_are_understood() -> None:
    stages = dict.fromkeys((PipelineSchedule.INTERLEAVED_1F1B, *V_SCHEDULES), 2)
    assert [words.schedule(s.label, stages.get(s, 1)) for s in PipelineSchedule] == list(PipelineSchedule)


@pytest.mark.parametrize(
    ("text", "level", "in_node", "num_ranks"),
    [
        ("", ShardLevel.NONE, False, None),
        ("DDP", ShardLevel.NONE, False, None),
        ("2", ShardLevel.GRADIENTS, False, None),
        ("ZeRO", ShardLevel.OPTIMIZER, False, None),
        ("ZeRO-1", ShardLevel.OPTIMIZER, False, None),
        ("zero_3", ShardLevel.PARAMETERS, False, None),
        ("distributed optimizer", ShardLevel.OPTIMIZER, False, None),
        ("distributed-optimizer", ShardLevel.OPTIMIZER, False, None),
        ("optim_grads_params", ShardLevel.PARAMETERS, False, None),
        ("Gemini", ShardLevel.PARAMETERS, False, None),
        # a level of ZeRO stands above the name of its implementation
        ("Megatron-FSDP ZeRO-1", ShardLevel.OPTIMIZER, False, None),
        ("torch FSDP2 as ZeRO-2", ShardLevel.GRADIENTS, False, None),
        ("torch FSDP2 as ZeRO-3", ShardLevel.PARAMETERS, False, None),
        ("FSDP-SHARD_GRAD_OP", ShardLevel.GRADIENTS, False, None),
        ("FSDP-NO_SHARD", ShardLevel.NONE, False, None),
        ("HSDP", ShardLevel.PARAMETERS, True, None),
        ("FSDP-HYBRID_SHARD", ShardLevel.PARAMETERS, True, None),
        # a number behind FSDP says how many ranks share, but for its version
        ("FSDP", ShardLevel.PARAMETERS, False, None),
        ("FSDP2", ShardLevel.PARAMETERS, False, None),
        ("FSDP2-1", ShardLevel.PARAMETERS, False, 1),
        ("FSDP2-64", ShardLevel.PARAMETERS, False, 64),
        ("FSDP128", ShardLevel.PARAMETERS, False, 128),
        ("HSDP (8)", ShardLevel.PARAMETERS, False, 8),
    ],
)
def test_shard_levels_go_by_the_names_of_every_framework(
    text: str, level: ShardLevel, in_node: bool, num_ranks: int | None
) -> None:
    assert words.shard_level(text) == (level, in_node, num_ranks)


@pytest.mark.parametrize(
    ("text", "stages", "schedule"),
    [
        ("", 1, PipelineSchedule.ONE_F_ONE_B),
        ("", 4, PipelineSchedule.INTERLEAVED_1F1B),
        ("1F1B", 2, PipelineSchedule.INTERLEAVED_1F1B),
        ("ZB-1p", 1, PipelineSchedule.ZERO_BUBBLE),
        ("ZB-V", 1, PipelineSchedule.ZBV),
        ("GPipe", 1, PipelineSchedule.GPIPE),
        ("afab", 1, PipelineSchedule.GPIPE),
        ("1F1B-I", 3, PipelineSchedule.INTERLEAVED_1F1B),
        ("1f1b interleaved", 3, PipelineSchedule.INTERLEAVED_1F1B),
        ("ZB-2p (all-reduce optimizer sync)", 1, PipelineSchedule.ZERO_BUBBLE),
        ("InterleavedZeroBubble", 2, PipelineSchedule.ZERO_BUBBLE),
        ("DualPipe", 2, PipelineSchedule.DUALPIPEV),
    ],
)
def test_a_schedule_follows_from_its_name_and_its_stages(text: str, stages: int, schedule: PipelineSchedule) -> None:
    assert words.schedule(text, stages) == schedule


@pytest.mark.parametrize(("text", "stages"), [("interleaved", 1), ("gpipe", 2), ("round-robin", 1), ("zbv", 3)])
def test_a_schedule_with_stages_that_it_cannot_have_is_refused(text: str, stages: int) -> None:
    with pytest.raises(UnusableRow, match=f"{text} with {stages} stage"):
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
        ("fa2", AttentionKernel.FLASH),
        ("FA3", AttentionKernel.FLASH_3),
        ("fa4", AttentionKernel.FLASH_3),
        ("local (unfused)", AttentionKernel.MATH),
        ("cuDNN fused attention", AttentionKernel.CUDNN),
        ("tilelang", AttentionKernel.FLASH),
        ("triton", AttentionKernel.FLASH),
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
        ("fp8-cs", Precision.FP8),
        ("MXFP8", Precision.FP8),
        ("fp8 (e4m3)", Precision.FP8),
    ],
)
def test_formats_are_told_by_any_of_their_names(text: str, precision: Precision) -> None:
    assert words.precision(text) == precision


def test_a_format_that_no_layout_has_is_refused() -> None:
    with pytest.raises(UnusableRow, match="int4"):
        words.precision("int4")


@pytest.mark.parametrize("text", ["te", "Transformer Engine", "flash (Transformer Engine)"])
@pytest.mark.parametrize(
    ("offered", "kernel"),
    [
        ((AttentionKernel.FLASH, AttentionKernel.CUDNN), AttentionKernel.CUDNN),
        ((AttentionKernel.MATH, AttentionKernel.FLASH), AttentionKernel.FLASH),
    ],
)
def test_transformer_engine_takes_what_is_best_on_the_accelerator(
    text: str, offered: tuple[AttentionKernel, ...], kernel: AttentionKernel
) -> None:
    assert words.kernel_on(words.attention_kernel(text), offered, Precision.BF16) == kernel


def test_a_kernel_that_the_accelerator_lacks_gives_way_to_the_nearest() -> None:
    blackwell = (AttentionKernel.MATH, AttentionKernel.CUDNN, AttentionKernel.FLASH)
    assert words.kernel_on(AttentionKernel.FLASH_3, blackwell, Precision.BF16) == AttentionKernel.CUDNN
    assert words.kernel_on(AttentionKernel.FUSED_SOFTMAX, blackwell, Precision.BF16) == AttentionKernel.MATH
    assert words.kernel_on(AttentionKernel.FLASH, tuple(AttentionKernel), Precision.FP32) == AttentionKernel.EFFICIENT


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("selective", (Recompute.SELECTIVE, 1, (), None)),
        ("selective-op", (Recompute.SELECTIVE, 1, (RecomputePolicy.EVERY_OTHER_PRODUCT,), None)),
        (
            "selective (mla_up_proj + mlp)",
            (Recompute.SELECTIVE, 1, (RecomputePolicy.MLA_UP_PROJ, RecomputePolicy.MLP), None),
        ),
        ("selective (core_attn)", (Recompute.SELECTIVE, 1, (RecomputePolicy.CORE_ATTN,), None)),
        (
            "selective (mlp + core_attn)",
            (Recompute.SELECTIVE, 1, (RecomputePolicy.MLP, RecomputePolicy.CORE_ATTN), None),
        ),
        ("selective (moe_act)", (Recompute.SELECTIVE, 1, (RecomputePolicy.MOE_ACT,), None)),
        ("save_qkv_proj", (Recompute.SELECTIVE, 1, (RecomputePolicy.SAVE_QKV_PROJ,), None)),
        ("minimal", (Recompute.SELECTIVE, 1, (RecomputePolicy.MINIMAL,), None)),
        ("custom", (Recompute.SELECTIVE, 1, (RecomputePolicy.SAVE_DOT_EXCEPT_MLP,), None)),
        ("selective-layer", (Recompute.FULL, 2, (), None)),
        ("selective (every 4th layer)", (Recompute.FULL, 4, (), None)),
        ("selective-3", (Recompute.FULL, 3, (), None)),
        ("full (5 layers)", (Recompute.FULL, 1, (), 5)),
        ("block", (Recompute.FULL, 1, (), None)),
        ("full (block, 10 layers)", (Recompute.FULL, 1, (), 10)),
        ("full (uniform, 1 layer)", (Recompute.FULL, 1, (), None)),
        ("minimal_offloaded", (Recompute.SELECTIVE, 1, (RecomputePolicy.MINIMAL,), None)),
        ("nothing", (Recompute.NONE, 1, (), None)),
    ],
)
def test_recomputation_is_told_by_the_words_of_every_framework(text: str, found: tuple[object, ...]) -> None:
    assert words.recompute(text) == found


@pytest.mark.parametrize(("text", "exchange"), [("a2a", "all_to_all"), ("allgather", "all_gather"), ("", "ring")])
def test_context_ranks_meet_as_megatron_and_torch_call_it(text: str, exchange: str) -> None:
    assert words.context_exchange(text).label == exchange
