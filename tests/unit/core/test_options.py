"""Options of a layout, and the space that is searched of them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.catalog.software import load_stack
from autotuner.core.choices import (
    AttentionKernel,
    BatchBalance,
    Choice,
    CollectiveAlgorithm,
    GradientSync,
    P2PTransport,
    PipelineSchedule,
    Precision,
    ShardLevel,
)
from autotuner.core.columns import LayoutColumns
from autotuner.core.complexity import burdens_of, complexity
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, RANK_DEGREES, Layout
from autotuner.core.link import LinkHealth
from autotuner.core.option import Kind
from autotuner.core.recompute import LayerPart, RecomputePolicy, recomputed
from autotuner.core.rules.collectives import collective_environment
from autotuner.core.space import SearchSpace, default_space, default_trial_space, exchange_ladder
from autotuner.core.workload import LengthDistribution, Workload
from tests.builders import big_job, h100, h100_cluster, tiny_job

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


def test_each_burden_of_a_layout_has_a_reason_and_a_weight_by_its_kind() -> None:
    weights = {name: burden.weight for name, one in OPTIONS.items() for burden in one.burdens}
    assert all(burden.reason and burden.weight > 0 for one in OPTIONS.values() for burden in one.burdens)
    heaviest = max(weights.values())
    changing = {name for name, one in OPTIONS.items() if one.not_equivalent}
    assert {name for name, weight in weights.items() if weight == heaviest} == changing
    assert complexity(Layout(data_parallel_replicate_degree=1024, micro_batch_size=4)) == 0
    free = {"micro_batch_size", "data_parallel_replicate_degree", "gradient_bucket_bytes"}
    assert free.isdisjoint(weights)
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
    assert [option.name for option, _ in burdens_of(layout)] == options
    assert complexity(layout) == sum(burden.weight for _, burden in burdens_of(layout))


MODULES = ("core_attn", "layernorm", "mlp", "mla_up_proj", "moe_act", "moe", "shared_experts")
"""Megatron-LM's ``--recompute-modules`` (core 0.13)."""


@pytest.mark.parametrize("word", MODULES)
def test_modules_of_megatron_keep_nothing_that_a_plain_backward_pass_does_not_read(word: str) -> None:
    policy = recomputed((RecomputePolicy(word),))
    assert policy.repeats
    assert not policy.keeps


def test_words_hold_together() -> None:
    mlp, core, both = (
        recomputed(tuple(map(RecomputePolicy, words))) for words in (("mlp",), ("core_attn",), ("mlp", "core_attn"))
    )
    assert both.repeats == mlp.repeats | core.repeats
    assert both.drops == mlp.drops | core.drops


def test_every_other_product_is_every_second_in_the_order_of_calls() -> None:
    in_order = ("query", "key", "value", "attention_output", "mlp_gate", "mlp_up", "mlp_down")
    repeats = recomputed((RecomputePolicy.EVERY_OTHER_PRODUCT,)).repeats
    assert [LayerPart(part) in repeats for part in in_order] == [False, True, False, True, False, True, False]


@pytest.mark.parametrize("policy", RecomputePolicy)
def test_nothing_is_both_kept_and_dropped(policy: RecomputePolicy) -> None:
    meaning = recomputed((policy,))
    assert not meaning.keeps & meaning.drops


def test_only_network_options_are_written_as_environment_variables() -> None:
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


def test_a_space_has_an_axis_for_every_field_and_takes_others_by_name() -> None:
    names = [axis.name for axis in fields(SearchSpace)]  # type: ignore[arg-type]  # a dataclass at run time
    assert names == [name for name in OPTIONS if name != "data_parallel_replicate_degree"]
    assert all(SearchSpace().values(name) == OPTIONS[name].searched for name in names)
    space = SearchSpace(precision=(Precision.FP32,)).with_axes(tensor_parallel_degree=(2,))
    assert (space.values("precision"), space.values("tensor_parallel_degree")) == ((Precision.FP32,), (2,))
    with pytest.raises(TypeError, match="tensor_degree"):
        SearchSpace(tensor_degree=(1,))


def test_a_lossy_exchange_brings_the_details_that_it_has_and_nobody_named() -> None:
    assert exchange_ladder({}) == {}
    assert exchange_ladder({"gradient_sync": None}) == {}
    assert exchange_ladder({"gradient_sync": (GradientSync.FULL,)}) == {}
    assert set(exchange_ladder({"gradient_sync": (GradientSync.DILOCO,)})) == {"sync_period", "payload_precision"}
    of_demo = exchange_ladder({"gradient_sync": (GradientSync.FULL, GradientSync.DEMO)})
    assert set(of_demo) == {"sync_top_k", "sync_sign", "payload_precision"}
    assert "sync_sparsity" in exchange_ladder({"gradient_sync": (GradientSync.RANDOM,)})
    named = {"gradient_sync": (GradientSync.DEMO,), "sync_sign": (True,), "sync_top_k": (16,)}
    assert set(exchange_ladder(named)) == {"payload_precision"}


def job_on(cluster: str, stack: str = "torch", *, seq_len: int = 4096, model: str = "llama-3-8b") -> Job:
    workload = Workload(seq_len=seq_len, global_batch_size=64)
    return Job(model=load_model(model), cluster=load_cluster(cluster), workload=workload, stack=load_stack(stack))


def with_h100(**changes: Any) -> Job:
    return replace(big_job(), cluster=h100_cluster(accelerator=h100(**changes)))


@pytest.mark.parametrize(
    ("cluster", "stack", "kernel"),
    [
        ("h100:8", "torch", AttentionKernel.CUDNN),
        ("h100:8", "nemo", AttentionKernel.FLASH_3),
        ("a100-80gb:8", "nemo", AttentionKernel.CUDNN),
        ("a100-80gb:8", "aleph-alpha", AttentionKernel.FLASH),
        ("v100:8", "torch", AttentionKernel.MATH),
        ("cpu:2", "torch", AttentionKernel.FLASH),
    ],
)
def test_the_fastest_kernel_that_device_and_software_both_have_is_tried(
    cluster: str, stack: str, kernel: AttentionKernel
) -> None:
    assert default_space(job_on(cluster, stack)).values("attention_kernel") == (kernel,)


def test_a_kernel_or_format_that_device_or_model_does_not_take_is_not_tried() -> None:
    job = job_on("h100:8")
    long_heads = replace(job, model=replace(job.model, head_dim=256))
    assert default_space(long_heads).values("attention_kernel") == (AttentionKernel.FLASH,)
    space = default_space(with_h100(bf16_flop_per_s=0.0, fp8_flop_per_s=0.0))
    assert (space.values("precision"), space.values("attention_kernel")) == ((Precision.FP32,), (AttentionKernel.MATH,))


@pytest.mark.parametrize(
    ("cluster", "stack", "precisions"),
    [
        ("h100:8", "torch", (Precision.BF16, Precision.FP8)),
        ("h100:8", "nanotron", (Precision.BF16,)),
        ("a100-80gb:8", "torch", (Precision.BF16,)),
        ("cpu:2", "torch", (Precision.FP32,)),
    ],
)
def test_fp8_is_tried_where_device_and_software_multiply_it(
    cluster: str, stack: str, precisions: tuple[Precision, ...]
) -> None:
    assert default_space(job_on(cluster, stack)).values("precision") == precisions


def test_layers_are_compiled_where_the_software_does_that_and_a_sweep_measures_both() -> None:
    assert default_space(job_on("h100:8", "torchtitan")).values("compiled") == (True,)
    assert default_space(job_on("h100:8", "nemo")).values("compiled") == (False,)
    assert default_trial_space(job_on("h100:8")).values("compiled") == (False, True)
    assert default_trial_space(job_on("cpu:2")).values("compiled") == (False,)


@pytest.mark.parametrize(
    ("seq_len", "degrees"), [(4096, (1,)), (8192, (1, 2)), (32768, (1, 2, 4, 8)), (131072, (1, 2, 4, 8, 16, 32))]
)
def test_a_context_rank_keeps_as_many_tokens_as_a_usual_sequence_has(seq_len: int, degrees: tuple[int, ...]) -> None:
    assert default_space(job_on("h100:64", seq_len=seq_len)).values("context_parallel_degree") == degrees


def test_sequences_that_differ_bring_ways_to_balance_them_and_ranks_bound_those_of_context() -> None:
    assert default_space(job_on("h100:4", seq_len=131072)).values("context_parallel_degree") == (1, 2, 4)
    job = big_job()
    unequal = replace(job, workload=replace(job.workload, lengths=LengthDistribution.of([16, 64])))
    assert len(default_space(unequal).values("batch_balance") or ()) == 3
    assert default_space(unequal).values("sequence_packing") == (False, True)
    assert default_space(job).values("batch_balance") == (BatchBalance.NONE,)


def test_a_sweep_tries_fp8_behind_its_convergence_gate_alone_and_the_fastest_kernel_beside_the_usual_one() -> None:
    job = job_on("h100:8")
    assert default_trial_space(job).values("precision") == (Precision.BF16, Precision.FP8)
    assert default_trial_space(job, is_gated=False).values("precision") == (Precision.BF16,)
    kernels = default_trial_space(job_on("h100:8")).values("attention_kernel")
    assert kernels == (AttentionKernel.FLASH, AttentionKernel.CUDNN)
    space = default_trial_space(tiny_job())
    assert (space.values("first_stage_less_layers"), space.values("last_stage_less_layers")) == ((0,), (0,))


def test_slow_links_bring_plans_delegates_and_places_where_software_and_size_allow_it() -> None:
    job, cluster = big_job(), h100_cluster(num_nodes=4)
    late = replace(job, cluster=replace(cluster, link_health=(LinkHealth(ends=(2, 3), delay_s=0.06),)))
    known = replace(job, cluster=replace(cluster, link_health=(LinkHealth(ends=(2, 3)),)))
    assert default_space(known) == default_space(replace(job, cluster=cluster))
    space = default_space(late)
    assert PipelineSchedule.ADAPTIVE in (space.values("pipeline_schedule") or ())
    assert space.values("p2p_transport") == tuple(P2PTransport)
    assert space.values("stage_rotation") == (0, 3, 6)  # of 4 ranks the fourth leads, of 8 the seventh
    assert space.values("extra_slack") == (0,)
    space = default_space(replace(late, stack=load_stack("megatron")))
    assert PipelineSchedule.ADAPTIVE not in (space.values("pipeline_schedule") or ())
    assert space.values("p2p_transport") == (P2PTransport.INLINE,)
    space = default_space(replace(late, cluster=replace(late.cluster, num_nodes=16)))
    assert (space.values("rank_order"), space.values("stage_rotation")) == ((0,), (0,))
