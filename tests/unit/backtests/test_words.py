"""What tables call the choices of a layout."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autotuner.backtests import cells
from autotuner.backtests.cells import UnusableRow
from autotuner.core.choices import AttentionKernel, Choice, PipelineSchedule, Precision, Recompute, ShardLevel
from autotuner.core.recompute import RecomputePolicy
from autotuner.core.stages import V_SCHEDULES

READERS: list[tuple[type[Choice], Callable[[str], Choice]]] = [
    (ShardLevel, lambda text: cells.shard_level(text).level),
    (Recompute, lambda text: cells.recompute(text).level),
    (
        AttentionKernel,
        lambda text: cells.kernel_on(cells.attention_kernel(text), tuple(AttentionKernel), Precision.BF16),
    ),
    (Precision, cells.precision),
]


@pytest.mark.parametrize(("choice", "read"), READERS)
def test_our_own_labels_are_understood(choice: type[Choice], read: Callable[[str], Choice]) -> None:
    assert [read(label) for label in choice.labels()] == list(choice)


def test_our_own_labels_of_schedules_are_understood() -> None:
    stages = dict.fromkeys((PipelineSchedule.INTERLEAVED_1F1B, *V_SCHEDULES), 2)
    assert [cells.schedule(s.label, stages.get(s, 1)) for s in PipelineSchedule] == list(PipelineSchedule)


LEVELS = {
    ShardLevel.NONE: ("", "DDP", "FSDP-NO_SHARD"),
    # a level of ZeRO stands above the name of its implementation
    ShardLevel.OPTIMIZER: ("ZeRO", "ZeRO-1", "distributed optimizer", "distributed-optimizer", "Megatron-FSDP ZeRO-1"),
    ShardLevel.GRADIENTS: ("2", "torch FSDP2 as ZeRO-2", "FSDP-SHARD_GRAD_OP"),
    ShardLevel.PARAMETERS: ("zero_3", "optim_grads_params", "Gemini", "torch FSDP2 as ZeRO-3", "FSDP", "FSDP2"),
}
# a number behind FSDP says how many ranks share, but for its version
GROUPS = {"HSDP": None, "FSDP-HYBRID_SHARD": None, "FSDP2-1": 1, "FSDP2-64": 64, "FSDP128": 128, "HSDP (8)": 8}


@pytest.mark.parametrize(("text", "level"), [(text, level) for level, texts in LEVELS.items() for text in texts])
def test_shard_levels_go_by_the_names_of_every_framework(text: str, level: ShardLevel) -> None:
    assert cells.shard_level(text) == (level, False, None)


@pytest.mark.parametrize(("text", "num_ranks"), GROUPS.items())
def test_parameters_are_sharded_among_so_many_ranks_or_those_of_a_node(text: str, num_ranks: int | None) -> None:
    assert cells.shard_level(text) == (ShardLevel.PARAMETERS, num_ranks is None, num_ranks)


SCHEDULES = {
    PipelineSchedule.ONE_F_ONE_B: [("", 1)],
    PipelineSchedule.INTERLEAVED_1F1B: [("", 4), ("1F1B", 2), ("1F1B-I", 3), ("1f1b interleaved", 3)],
    PipelineSchedule.GPIPE: [("GPipe", 1), ("afab", 1)],
    PipelineSchedule.ZERO_BUBBLE: [
        ("ZB-1p", 1),
        ("ZB-2p (all-reduce optimizer sync)", 1),
        ("InterleavedZeroBubble", 2),
    ],
    PipelineSchedule.ZBV: [("ZB-V", 1)],
    PipelineSchedule.DUALPIPEV: [("DualPipe", 2)],
}


@pytest.mark.parametrize(
    ("text", "stages", "schedule"), [(*said, to) for to, told in SCHEDULES.items() for said in told]
)
def test_a_schedule_follows_from_its_name_and_its_stages(text: str, stages: int, schedule: PipelineSchedule) -> None:
    assert cells.schedule(text, stages) == schedule


@pytest.mark.parametrize(("text", "stages"), [("interleaved", 1), ("gpipe", 2), ("round-robin", 1), ("zbv", 3)])
def test_a_schedule_with_stages_that_it_cannot_have_is_refused(text: str, stages: int) -> None:
    with pytest.raises(UnusableRow, match=f"{text} with {stages} stage"):
        cells.schedule(text, stages)


KERNELS = {
    AttentionKernel.FLASH_3: ("FlashAttention-3", "FA3", "fa4", "flash_attention"),  # of the version the caller says
    AttentionKernel.FLASH: ("flash attn 2", "SDPA", "fa2", "tilelang", "triton"),
    AttentionKernel.FLASH_1: ("flash_attentionv1.0.8",),
    AttentionKernel.FUSED_SOFTMAX: ("fused-softmax",),
    AttentionKernel.MATH: ("unfused", "torch", "local (unfused)"),
    AttentionKernel.CUDNN: ("cuDNN fused attention",),
}


@pytest.mark.parametrize(("text", "kernel"), [(text, kernel) for kernel, texts in KERNELS.items() for text in texts])
def test_kernels_are_described_by_name_and_version(text: str, kernel: AttentionKernel) -> None:
    assert cells.attention_kernel(text, flash="flash_3") == kernel


FORMATS = {
    Precision.BF16: ("amp_bf16", "bfloat16", "fp16"),
    Precision.FP8: ("bf16 + float8", "fp8-cs", "MXFP8", "fp8 (e4m3)"),
    Precision.FP32: ("float32",),
}


@pytest.mark.parametrize(("text", "precision"), [(text, one) for one, texts in FORMATS.items() for text in texts])
def test_formats_are_described_by_any_of_their_names(text: str, precision: Precision) -> None:
    assert cells.precision(text) == precision


def test_a_format_that_no_layout_has_is_refused() -> None:
    with pytest.raises(UnusableRow, match="int4"):
        cells.precision("int4")


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
    assert cells.kernel_on(cells.attention_kernel(text), offered, Precision.BF16) == kernel


def test_a_kernel_that_the_accelerator_lacks_gives_way_to_the_nearest() -> None:
    blackwell = (AttentionKernel.MATH, AttentionKernel.CUDNN, AttentionKernel.FLASH)
    assert cells.kernel_on(AttentionKernel.FLASH_3, blackwell, Precision.BF16) == AttentionKernel.CUDNN
    assert cells.kernel_on(AttentionKernel.FUSED_SOFTMAX, blackwell, Precision.BF16) == AttentionKernel.MATH
    assert cells.kernel_on(AttentionKernel.FLASH, tuple(AttentionKernel), Precision.FP32) == AttentionKernel.EFFICIENT


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
def test_recomputation_is_described_by_the_words_of_every_framework(text: str, found: tuple[object, ...]) -> None:
    assert cells.recompute(text) == found


@pytest.mark.parametrize(("text", "exchange"), [("a2a", "all_to_all"), ("allgather", "all_gather"), ("", "ring")])
def test_context_ranks_meet_as_megatron_and_torch_call_it(text: str, exchange: str) -> None:
    assert cells.context_exchange(text).label == exchange
