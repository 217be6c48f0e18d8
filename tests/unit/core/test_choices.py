"""Integers with words."""

from __future__ import annotations

import pytest

from autotuner.core.choices import (
    AttentionKernel,
    BatchBalance,
    CollectiveAlgorithm,
    CollectiveHierarchy,
    CollectiveProtocol,
    ContextExchange,
    Fp8Recipe,
    GradientClip,
    GradientSync,
    OptimizerKernel,
    P2PTransport,
    PayloadPrecision,
    PipelineSchedule,
    Precision,
    RankOrder,
    RankPlacement,
    Recompute,
    ShardLevel,
)
from autotuner.core.errors import InvalidInput

CHOICES = (
    PipelineSchedule,
    ShardLevel,
    Recompute,
    AttentionKernel,
    Precision,
    Fp8Recipe,
    ContextExchange,
    OptimizerKernel,
)


@pytest.mark.parametrize("choice", CHOICES)
def test_words_and_members_match_one_to_one(choice: type[Precision]) -> None:
    assert [choice.from_label(label) for label in choice.labels()] == list(choice)
    assert [int(member) for member in choice] == list(range(len(choice)))


def test_a_member_prints_as_its_word() -> None:
    assert f"{PipelineSchedule.ONE_F_ONE_B}" == "1f1b"


@pytest.mark.parametrize("label", ["fp4", "BF16", 1, None])
def test_an_unknown_word_names_the_field_and_the_known_words(label: object) -> None:
    with pytest.raises(InvalidInput, match="must be one of fp32, bf16, fp8") as caught:
        Precision.from_label(label, "space.precision")
    assert caught.value.field == "space.precision"


def test_shard_levels_are_ordered_by_what_they_split() -> None:
    assert ShardLevel.NONE < ShardLevel.OPTIMIZER < ShardLevel.GRADIENTS < ShardLevel.PARAMETERS


def test_integers_in_stored_layouts_keep_their_meaning() -> None:
    kernels = ("math", "efficient", "flash", "fused_softmax", "flash_1", "flash_3", "cudnn", "flex")
    assert AttentionKernel.labels() == kernels
    assert Precision.labels() == ("fp32", "bf16", "fp8", "fp8_emulated", "nvfp4")
    schedules = ("gpipe", "1f1b", "interleaved_1f1b", "zero_bubble", "zbv", "dualpipev", "adaptive")
    assert PipelineSchedule.labels() == schedules
    assert P2PTransport.labels() == ("inline", "delegated")
    assert RankPlacement.labels() == ("block", "cyclic")
    assert CollectiveAlgorithm.labels() == ("auto", "ring", "tree", "nvls", "collnet")
    assert CollectiveProtocol.labels() == ("auto", "ll", "ll128", "simple")
    assert CollectiveHierarchy.labels() == ("flat", "two_level")
    assert RankOrder.labels() == ("stages_outermost", "replicas_outermost")
    assert GradientSync.labels() == ("full", "demo", "random", "striding", "diloco")
    assert PayloadPrecision.labels() == ("fp32", "bf16")
    assert GradientClip.labels() == ("post", "pre", "bucket")
    assert BatchBalance.labels() == ("none", "stratified", "snake", "stratified_snake", "global_sort")
    assert Fp8Recipe.labels() == ("tensorwise", "rowwise", "delayed", "blockwise", "mxfp8")
    assert ContextExchange.labels() == ("ring", "all_gather", "all_to_all")
    assert OptimizerKernel.labels() == ("fused", "foreach")
