"""Rules for layouts that Megatron cannot express. Their messages say what Megatron does instead.

Sources: megatron-core 0.16.1, in the files that each writer names; for kernels the documentation of Transformer Engine
2.8.
"""

from __future__ import annotations

from collections.abc import Mapping

from autotuner.core.choices import (
    AttentionKernel,
    Fp8Recipe,
    PipelineSchedule,
    Precision,
    RankOrder,
    Recompute,
    ShardLevel,
)
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.rules.rule import Limit, Rule, any_of, held, named, refuse
from autotuner.exports.megatron.layout import BACKENDS, RECIPES, gradient_element_bytes
from autotuner.exports.shared.common_rules import exchanges_and_batches, keeps, sends_and_places

_SCHEDULES = (PipelineSchedule.ONE_F_ONE_B, PipelineSchedule.INTERLEAVED_1F1B)


def _schedule(layout: Layout) -> PipelineSchedule:
    several = layout.virtual_stages_per_rank > 1
    return PipelineSchedule.INTERLEAVED_1F1B if several else PipelineSchedule.ONE_F_ONE_B


def keeps_parameters(x: Layout) -> bool:
    """Return True if data-parallel ranks shard the parameters, but keep gathered parameters until the backward pass.

    Ranks that reshard free them after the forward pass and gather them again.
    """
    return (x.shard_level == ShardLevel.PARAMETERS) & (x.reshard_after_forward == 0)


def _has_experts(job: Job) -> bool:
    return job.model.experts is not None


_LIMITS: Mapping[str, Limit] = {
    "megatron-moves-all-replicas-outermost": refuse(
        "rank_order",
        lambda x, j: (x.rank_order == RankOrder.REPLICAS_OUTERMOST) & (x.data_parallel_shard_degree > 1),
        "use_tp_pp_dp_mapping numbers all data-parallel ranks outermost, also the "
        "{x.data_parallel_shard_degree} ranks that shard a replica",
        RankOrder.STAGES_OUTERMOST,
    ),  # core/parallel_state.py: order tp-cp-ep-pp-dp
    "megatron-schedules": refuse(
        "pipeline_schedule",
        lambda x, j: any_of(x.pipeline_schedule, _SCHEDULES) == 0,
        "Megatron runs only 1f1b, interleaved if a rank has several stages, not {x.pipeline_schedule}",
        lambda x, j: _schedule(x).label,
    ),
    "megatron-recomputes-blocks": keeps(
        "recompute_every",
        "Megatron recomputes the first layers of a stage (block), not one in {x.recompute_every}: "
        "the same number of layers, but other ones",
    ),
    "megatron-precisions": refuse(
        "precision",
        lambda x, j: x.precision == Precision.FP8_EMULATED,
        "Megatron has no emulated fp8; it multiplies in real fp8",
        Precision.BF16,
    ),
    "megatron-fp8-recipes": refuse(
        "fp8_recipe",
        lambda x, j: any_of(x.fp8_recipe, tuple(RECIPES.values())) == 0,
        lambda x, j: (
            f"Megatron has the fp8 recipes {', '.join(RECIPES)}, but not {x.fp8_recipe}: tensorwise is written"
        ),
        Fp8Recipe.TENSORWISE,
    ),
    "megatron-attention-backends": refuse(
        "attention_kernel",
        lambda x, j: any_of(x.attention_kernel, (*BACKENDS.values(), AttentionKernel.FLASH_3)) == 0,
        lambda x, j: (
            f"Transformer Engine has the backends {', '.join(BACKENDS)}, but not {x.attention_kernel}: "
            "the closest one is written"
        ),
        AttentionKernel.FLASH,
    ),
    "megatron-context-ranks-need-fused-attention": refuse(
        "attention_kernel",
        lambda x, j: (x.context_parallel_degree > 1) & (x.attention_kernel == AttentionKernel.MATH),
        "Transformer Engine's unfused attention does not support context ranks",
        AttentionKernel.FLASH,
    ),
    "megatron-reshards": refuse(
        "reshard_after_forward",
        lambda x, j: (
            keeps_parameters(x)
            & (
                (x.pipeline_parallel_degree > 1)
                | (x.expert_parallel_degree > 1)
                | (x.data_parallel_replicate_degree > 1)
                | j.model.tied_embeddings
            )
        ),
        "Megatron-FSDP always reshards parameters after each forward pass; PyTorch's FSDP2 need "
        "not, but Megatron refuses it with pipelines, expert ranks, replicas of shards and tied "
        "embeddings",
        True,
    ),
    "megatron-buckets-hold-elements": refuse(
        "gradient_bucket_bytes",
        lambda x, j: x.gradient_bucket_bytes % gradient_element_bytes(x, j) != 0,
        lambda x, j: (
            f"{x.gradient_bucket_bytes} bytes are not a multiple of the {gradient_element_bytes(x, j)} "
            "bytes of a gradient"
        ),
        lambda x, j: max(1, x.gradient_bucket_bytes // gradient_element_bytes(x, j)) * gradient_element_bytes(x, j),
    ),
    "megatron-experts-need-sequence-parallel": held(
        "sequence_parallel",
        True,
        "Megatron refuses to train experts on several tensor ranks without sequence parallelism",
        lambda x, j: _has_experts(j) & (x.tensor_parallel_degree > 1),
    ),
    "megatron-keeps-logits-split": keeps(
        "loss_parallel", "each of Megatron's tensor ranks keeps its own part of the logits"
    ),
    "megatron-norms-are-fused": keeps(
        "fused_norm", "Megatron's norms are always the fused kernels of Transformer Engine"
    ),
    "megatron-compiles-no-layers": keeps(
        "compiled", "Megatron does not compile layers; its fusions are modules of Transformer Engine"
    ),
    "megatron-optimizer-is-fused": keeps(
        "optimizer_kernel", "Megatron's Adam is always the fused kernel of Transformer Engine or Apex"
    ),
    "megatron-offloads-one-stage": keeps(
        "offload_activations",
        "Megatron offloads the activations of all layers except one, and not in a pipeline",
        lambda x, j: (x.pipeline_parallel_degree > 1) | (j.model.num_layers == 1),
    ),
    "megatron-offloads-distributed-optimizer": keeps(
        "optimizer_offload_percent",
        "Megatron offloads only the states of its distributed optimizer, which shards them",
        lambda x, j: x.shard_level == ShardLevel.NONE,
    ),
    "megatron-offloads-or-recomputes": keeps(
        "offload_activations",
        "Megatron refuses to offload activations and recompute them at the same time",
        lambda x, j: x.recompute != Recompute.NONE,
    ),
}

MEGATRON_RULES: tuple[Rule, ...] = (
    *exchanges_and_batches("Megatron", "megatron-core"),
    *sends_and_places("Megatron", has_orders=True),
    *named(_LIMITS),
)
"""Rules for options that ``TransformerConfig`` refuses or does not have. Megatron-Bridge and NeMo pass their fields to
it."""
