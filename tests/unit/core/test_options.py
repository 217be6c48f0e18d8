"""What is known of the options of a layout, and the words of their values."""

from __future__ import annotations

import pytest

from autotuner.core.choices import (
    Choice,
    CollectiveAlgorithm,
    GradientSync,
    P2PTransport,
    PipelineSchedule,
    Precision,
    ShardLevel,
)
from autotuner.core.codec import from_plain, to_plain
from autotuner.core.columns import LayoutColumns
from autotuner.core.complexity import BURDENS, FREE_OPTIONS, burdens_of, complexity
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import OPTIONS, RANK_DEGREES, Layout
from autotuner.core.option import Kind
from autotuner.core.recompute import LayerPart, RecomputePolicy, recomputed
from autotuner.core.rules.collectives import collective_environment
from autotuner.core.stack import Stack

WORDS = {
    "PipelineSchedule": "gpipe 1f1b interleaved_1f1b zero_bubble zbv dualpipev adaptive",
    "ShardLevel": "none optimizer gradients parameters",
    "Recompute": "none selective full",
    "AttentionKernel": "math efficient flash fused_softmax flash_1 flash_3 cudnn flex",
    "Precision": "fp32 bf16 fp8 fp8_emulated nvfp4",
    "Fp8Recipe": "tensorwise rowwise delayed blockwise mxfp8",
    "ContextExchange": "ring all_gather all_to_all",
    "OptimizerKernel": "fused foreach",
    "P2PTransport": "inline delegated",
    "RankPlacement": "block cyclic",
    "CollectiveAlgorithm": "auto ring tree nvls collnet",
    "CollectiveProtocol": "auto ll ll128 simple",
    "CollectiveHierarchy": "flat two_level",
    "RankOrder": "stages_outermost replicas_outermost",
    "GradientSync": "full demo random striding diloco",
    "PayloadPrecision": "fp32 bf16",
    "GradientClip": "post pre bucket",
    "BatchBalance": "none stratified snake stratified_snake global_sort",
}


@pytest.mark.parametrize("label", ["fp4", "BF16", 1, None])
def test_an_unknown_word_names_the_field_and_the_known_words(label: object) -> None:
    with pytest.raises(InvalidInput, match="must be one of fp32, bf16, fp8") as caught:
        Precision.from_label(label, "space.precision")
    assert caught.value.field == "space.precision"


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_is_of_the_kind_that_its_default_is(name: str) -> None:
    one = OPTIONS[name]
    kinds = {bool: Kind.SWITCH, int: Kind.COUNT}
    own = Kind.CHOICE if isinstance(one.default, Choice) else kinds[type(one.default)]
    assert (Kind.COUNT if one.kind == Kind.DEGREE else one.kind) == own
    assert getattr(Layout(), name) == one.default


@pytest.mark.parametrize("name", OPTIONS)
def test_what_is_searched_by_default_is_legal_by_itself(name: str) -> None:
    one = OPTIONS[name]
    for value in one.searched or ():
        assert value >= one.lowest
        assert one.value_of(int(value)) == value


def test_no_two_options_share_a_word_and_stored_integers_keep_theirs() -> None:
    labels = [one.label for one in OPTIONS.values()]
    words = [
        word for one in OPTIONS.values() for word in (map(one.word.format, one.values or (7,)) if one.word else ())
    ]
    named = {word for word in words if words.count(word) > 1}
    assert len(set(labels)) == len(labels)
    assert named <= {one.word for one in OPTIONS.values() if one.kind == Kind.SWITCH}
    choices = [choice for choice in Choice.__subclasses__() if choice.__module__ == Choice.__module__]
    assert {choice.__name__: " ".join(choice.labels()) for choice in choices} == WORDS
    for choice in choices:
        assert [choice.from_label(label) for label in choice.labels()] == list(choice), choice
        assert [int(member) for member in choice] == list(range(len(choice))), choice
    assert ShardLevel.NONE < ShardLevel.OPTIMIZER < ShardLevel.GRADIENTS < ShardLevel.PARAMETERS
    degrees = {name for name, one in OPTIONS.items() if one.kind == Kind.DEGREE}
    assert set(RANK_DEGREES) == degrees - {"expert_parallel_degree"}


SHARDED = Layout(data_parallel_shard_degree=8, shard_level=ShardLevel.PARAMETERS)
PIPELINED = Layout(pipeline_parallel_degree=4, pipeline_schedule=PipelineSchedule.ZBV, virtual_stages_per_rank=2)


def test_what_a_layout_bears_has_a_reason_and_weighs_by_what_it_changes() -> None:
    assert {burden.option for burden in BURDENS} <= set(OPTIONS)
    assert all(burden.reason and burden.weight > 0 for burden in BURDENS)
    weights = {burden.option: burden.weight for burden in BURDENS}
    heaviest = max(weights.values())
    changing = {name for name, one in OPTIONS.items() if one.not_equivalent}
    assert {name for name, weight in weights.items() if weight == heaviest} == changing
    assert complexity(Layout(data_parallel_replicate_degree=1024, micro_batch_size=4)) == 0
    assert {"micro_batch_size", "data_parallel_replicate_degree", "gradient_bucket_bytes"} <= FREE_OPTIONS
    layouts = [Layout(), SHARDED, PIPELINED, Layout(precision=Precision.FP8)]
    columns = complexity(LayoutColumns.from_layouts(layouts))  # type: ignore[arg-type]  # formulas hold for columns
    assert columns.tolist() == [complexity(layout) for layout in layouts]


@pytest.mark.parametrize(
    ("layout", "options"),
    [
        (SHARDED, ["shard_level"]),
        (PIPELINED, ["pipeline_parallel_degree", "virtual_stages_per_rank", "pipeline_schedule"]),
        (Layout(collective_algorithm=CollectiveAlgorithm.NVLS), ["collective_algorithm"]),
        (Layout(p2p_transport=P2PTransport.DELEGATED), ["p2p_transport"]),
        (Layout(precision=Precision.FP8, gradient_sync=GradientSync.DEMO), ["precision", "gradient_sync"]),
    ],
)
def test_a_layout_says_what_it_bears(layout: Layout, options: list[str]) -> None:
    assert [burden.option for burden in burdens_of(layout)] == options
    assert complexity(layout) == sum(burden.weight for burden in burdens_of(layout))


MODULES = ("core_attn", "layernorm", "mlp", "mla_up_proj", "moe_act", "moe", "shared_experts")
"""Megatron-LM's ``--recompute-modules`` (core 0.13)."""


@pytest.mark.parametrize("word", MODULES)
def test_modules_of_megatron_keep_nothing_that_a_plain_backward_pass_does_not_read(word: str) -> None:
    policy = recomputed((RecomputePolicy(word),))
    assert policy.repeats
    assert not policy.keeps


def test_words_hold_together_and_travel_with_their_stack() -> None:
    mlp, core, both = (
        recomputed(tuple(map(RecomputePolicy, words))) for words in (("mlp",), ("core_attn",), ("mlp", "core_attn"))
    )
    assert both.repeats == mlp.repeats | core.repeats
    assert both.drops == mlp.drops | core.drops
    stack = Stack(selective_recompute=(RecomputePolicy.MLP, RecomputePolicy.CORE_ATTN))
    document = to_plain(stack)
    assert document["selective_recompute"] == ["mlp", "core_attn"]
    assert from_plain(Stack, document) == stack


def test_every_other_product_is_every_second_in_the_order_of_calls() -> None:
    in_order = [
        LayerPart.QUERY,
        LayerPart.KEY,
        LayerPart.VALUE,
        LayerPart.ATTENTION_OUTPUT,
        LayerPart.MLP_GATE,
        LayerPart.MLP_UP,
        LayerPart.MLP_DOWN,
    ]
    repeats = recomputed((RecomputePolicy.EVERY_OTHER_PRODUCT,)).repeats
    assert [part in repeats for part in in_order] == [False, True, False, True, False, True, False]


@pytest.mark.parametrize("policy", RecomputePolicy)
def test_nothing_is_both_kept_and_dropped(policy: RecomputePolicy) -> None:
    meaning = recomputed((policy,))
    assert not meaning.keeps & meaning.drops


def test_what_is_asked_of_the_network_is_said_in_variables_of_its_own_and_nothing_else_is() -> None:
    assert collective_environment(Layout()) == {}
    asked = collective_environment(Layout(collective_algorithm=CollectiveAlgorithm.COLLNET))
    assert asked == {"NCCL_ALGO": "allreduce:collnetdirect,collnetchain,ring", "NCCL_COLLNET_ENABLE": "1"}
    assert collective_environment(Layout(pxn=False, queue_pairs=4)) == {
        "NCCL_PXN_DISABLE": "1",
        "NCCL_IB_QPS_PER_CONNECTION": "4",
        "NCCL_IB_SPLIT_DATA_ON_QPS": "1",
    }


@pytest.mark.parametrize("algorithm", [way for way in CollectiveAlgorithm if way != CollectiveAlgorithm.AUTO])
def test_an_algorithm_is_asked_of_all_reduces_alone(algorithm: CollectiveAlgorithm) -> None:
    asked = collective_environment(Layout(collective_algorithm=algorithm))["NCCL_ALGO"]
    assert asked.startswith(f"allreduce:{algorithm.label}")
    assert ";" not in asked
