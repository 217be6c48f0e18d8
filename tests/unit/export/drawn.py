"""Hypothesis strategies for jobs and layouts that a target can say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from autotuner.core.blocks import LatentAttention, MixtureOfExperts
from autotuner.core.choices import (
    AttentionKernel,
    CollectiveAlgorithm,
    ContextExchange,
    Fp8Recipe,
    PipelineSchedule,
    Precision,
    RankOrder,
    Recompute,
    ShardLevel,
)
from autotuner.core.job import Job
from autotuner.core.layout import DEFAULT_BUCKET_BYTES, Layout
from autotuner.core.model import TransformerSpec
from autotuner.core.rules.legality import RULES, reasons
from autotuner.core.rules.rule import Rule
from autotuner.core.stack import Stack
from autotuner.core.workload import Workload
from tests.builders import h100, h100_cluster

_K = AttentionKernel

experts = st.builds(
    MixtureOfExperts,
    num_experts=st.just(8),
    experts_per_token=st.integers(1, 3),
    expert_ffn_size=st.sampled_from([256, 512]),
    num_shared_experts=st.integers(0, 2),
    num_dense_layers=st.integers(0, 3),
    router_bias=st.booleans(),
)

latents = st.builds(
    LatentAttention,
    query_rank=st.sampled_from([None, 384]),
    key_value_rank=st.just(128),
    rope_head_dim=st.just(32),
    value_head_dim=st.just(64),
)


@st.composite
def models(draw: st.DrawFn) -> TransformerSpec:
    """Models whose widths split over eight tensor ranks, and layers in many ways."""
    sparse, latent = draw(st.none() | experts), draw(st.none() | latents)
    biased = draw(st.booleans()) and sparse is None
    return TransformerSpec(
        name="drawn",
        num_layers=draw(st.sampled_from([8, 14, 15, 16, 24, 30])),
        hidden_size=1024,
        num_heads=16,
        num_kv_heads=16 if latent else draw(st.sampled_from([8, 16])),
        head_dim=draw(st.sampled_from([64, 128])),
        ffn_size=draw(st.sampled_from([2048, 4096])),
        vocab_size=draw(st.sampled_from([32_000, 50_257])),
        gated_mlp=draw(st.booleans()),
        tied_embeddings=draw(st.booleans()),
        norm=draw(st.sampled_from(("rmsnorm", "layernorm"))),
        attention_bias="all" if biased else draw(st.sampled_from(("none", "qkv"))),
        mlp_bias=biased,
        num_learned_positions=draw(st.sampled_from([0, 4096])),
        qk_norm=draw(st.booleans()) and latent is None,
        experts=sparse,
        latent_attention=latent,
    )


@st.composite
def launches(draw: st.DrawFn, rules: Iterable[Rule], stack: Stack) -> tuple[Job, Layout]:
    """A job and a legal layout of it that keeps the rules.

    Fields that cannot be chosen beside the others keep their defaults, so that few draws are thrown away.
    """
    model = draw(models())
    tensor, context, pipeline = (draw(st.sampled_from(degrees)) for degrees in ([1, 2, 4, 8], [1, 1, 2], [1, 2, 4]))
    shard, replicate = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2]))
    fields: dict[str, Any] = {
        "tensor_parallel_degree": tensor,
        "context_parallel_degree": context,
        "pipeline_parallel_degree": pipeline,
        "data_parallel_shard_degree": shard,
        "data_parallel_replicate_degree": replicate,
        "micro_batch_size": draw(st.sampled_from([1, 2])),
        "sequence_parallel": tensor > 1 and (draw(st.booleans()) or model.experts is not None),
        "recompute": draw(st.sampled_from(Recompute)),
        "attention_kernel": draw(st.sampled_from((_K.FLASH, _K.FLASH_3, _K.CUDNN, _K.MATH))),
        "precision": draw(st.sampled_from((Precision.BF16, Precision.FP8, Precision.FP32))),
        "offload_activations": draw(st.sampled_from([False, False, True])),
        "collective_algorithm": draw(st.sampled_from((CollectiveAlgorithm.AUTO, CollectiveAlgorithm.TREE))),
        "collective_channels": draw(st.sampled_from([0, 0, 8])),
        "async_tensor_parallel": draw(st.booleans()),
    }
    fields |= draw(_of_the_others(fields, model))
    layout = Layout(**fields)
    world = layout.world_size
    cluster = h100_cluster(
        max(1, world // 8),
        accelerators_per_node=min(8, world),
        accelerator=h100(attention_kernels=tuple(AttentionKernel)),
    )
    workload = Workload(seq_len=2048, global_batch_size=192)
    job = Job(model=model, cluster=cluster, workload=workload, stack=stack)
    assume(not reasons(layout, job, (*RULES, *rules)))
    return job, layout


@st.composite
def _of_the_others(draw: st.DrawFn, fields: dict[str, Any], model: TransformerSpec) -> dict[str, Any]:
    """Choices that mean something only beside what is chosen already."""
    found: dict[str, Any] = {}
    shared = fields["data_parallel_shard_degree"] * fields["context_parallel_degree"]
    if shared > 1:
        lowest = 0 if fields["data_parallel_shard_degree"] == 1 else 1
        level = draw(st.sampled_from(tuple(ShardLevel)[lowest:]))
        found |= {"shard_level": level, "reshard_after_forward": level == ShardLevel.PARAMETERS and draw(st.booleans())}
    if fields["precision"] == Precision.FP8:
        found["fp8_recipe"] = draw(st.sampled_from((Fp8Recipe.TENSORWISE, Fp8Recipe.DELAYED, Fp8Recipe.BLOCKWISE)))
    if fields["context_parallel_degree"] > 1:
        found["context_exchange"] = draw(st.sampled_from(ContextExchange))
    if not (fields["sequence_parallel"]):
        found["async_tensor_parallel"] = False
    if model.experts and shared % 2 == 0:
        found["expert_parallel_degree"] = draw(st.sampled_from([1, 2]))
    if shared * fields["data_parallel_replicate_degree"] > 1:
        found["fp32_gradient_reduce"] = fields["precision"] != Precision.FP32 and draw(st.booleans())
        if found.get("shard_level", ShardLevel.NONE) in (ShardLevel.NONE, ShardLevel.OPTIMIZER):
            found["gradient_bucket_bytes"] = draw(st.sampled_from([DEFAULT_BUCKET_BYTES, 2**20, 2**30]))
    return found | (draw(_pipelined(model, fields)) if fields["pipeline_parallel_degree"] > 1 else {})


@st.composite
def _pipelined(draw: st.DrawFn, model: TransformerSpec, fields: dict[str, Any]) -> dict[str, Any]:
    virtual = draw(st.sampled_from([1, 1, 2, 4]))
    schedule = PipelineSchedule.INTERLEAVED_1F1B if virtual > 1 else PipelineSchedule.ONE_F_ONE_B
    missing = -model.num_layers % (fields["pipeline_parallel_degree"] * virtual)
    last = draw(st.integers(0, min(2, missing))) if virtual > 1 else draw(st.integers(0, 2))
    first = missing - last if virtual > 1 else draw(st.integers(0, 2))
    moves = fields["data_parallel_shard_degree"] == 1 < fields["data_parallel_replicate_degree"]
    return {
        "rank_order": draw(st.sampled_from(RankOrder)) if moves else RankOrder.STAGES_OUTERMOST,
        "virtual_stages_per_rank": virtual,
        "pipeline_schedule": schedule,
        "first_stage_less_layers": first,
        "last_stage_less_layers": last,
        "offload_activations": False,
    }
