"""Rules of the trial job: the models and layouts that it can run."""

from __future__ import annotations

import math

from autotuner.core.choices import (
    FP8_PRECISIONS,
    AttentionKernel,
    CollectiveAlgorithm,
    CollectiveHierarchy,
    ContextExchange,
    Fp8Recipe,
    GradientSync,
    PipelineSchedule,
    Precision,
    Recompute,
    ShardLevel,
)
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.rules.degrees import num_experts, smallest_end
from autotuner.core.rules.exchange import SHARDED_GRADIENTS, num_gradients
from autotuner.core.rules.rule import Limit, Rule, any_of, held, job_limit, maximum, named, refuse
from autotuner.core.stages import SPLIT_SCHEDULES


def _differs(field: str, built: object, message: str) -> Limit:
    """Return the rule that a property of the model has the only value that the trial job can build."""
    return job_limit(f"model.{field}", lambda j: bool(getattr(j.model, field) != built), message)


def _experts_message(job: Job) -> str:
    assert job.model.experts is not None
    if job.model.experts.expert_bias:
        return "the built-in trial job builds only experts without biases; predictions support biases"
    if job.model.experts.shared_expert_gate:
        return "the built-in trial job builds only shared experts without a gate; predictions support the gate"
    return (
        "the built-in trial job has no capacity_factor: every expert takes all tokens that choose it; predictions "
        "support a capacity_factor"
    )


def _experts_are_special(job: Job) -> bool:
    experts = job.model.experts
    special = experts and (experts.capacity_factor is not None or experts.expert_bias or experts.shared_expert_gate)
    return bool(special)


TRIAL_MODEL_RULES: tuple[Rule, ...] = named(
    {
        "trial-experts-are-plain": job_limit("model.experts", _experts_are_special, lambda x, j: _experts_message(j)),
        "trial-attends-without-latents": _differs(
            "latent_attention",
            None,
            "the built-in trial job cannot train multi-head latent attention; predictions support it",
        ),
        "trial-attends-without-windows": job_limit(
            "model.num_windowed_layers",
            lambda j: j.model.num_windowed_layers > 0 and j.model.attention_window < j.workload.seq_len,
            "the built-in trial job cannot train attention windows, because every query sees all keys before it; "
            "predictions support them",
        ),
        "trial-rotates-pairs": job_limit(
            "model.head_dim",
            lambda j: j.model.num_learned_positions == 0 and j.model.head_dim % 2 != 0,
            "must be even, because rotary positions rotate pairs of numbers of a head",
        ),
        "trial-attends-in-every-layer": _differs(
            "num_linear_layers", 0, "the built-in trial job cannot train linear attention; predictions support it"
        ),
        "trial-norms-each-block-once": _differs(
            "num_norms_per_layer",
            2,
            "the built-in trial job builds only layers with two norms: one before attention and one before the "
            "feed-forward block; predictions support other numbers",
        ),
        "trial-norms-heads-alike": _differs(
            "qk_norm_of_all_heads",
            False,
            "the built-in trial job can normalise queries and keys only in each head separately, not over all heads; "
            "predictions support both",
        ),
        "trial-attends-to-tokens-alone": _differs(
            "attention_sinks", False, "the built-in trial job cannot train attention sinks; predictions support them"
        ),
        "trial-gates-no-attention": _differs(
            "attention_output_gate",
            False,
            "the built-in trial job cannot train a gate on the output of attention; predictions support it",
        ),
        "trial-embeds-without-norm": _differs(
            "embedding_norm",
            False,
            "the built-in trial job cannot train a norm of embedded tokens; predictions support it",
        ),
        "trial-projects-without-bias": _differs(
            "output_bias",
            False,
            "the built-in trial job cannot train an output projection with a bias; predictions support it",
        ),
    }
)


_FOREIGN_KERNELS = (AttentionKernel.FUSED_SOFTMAX, AttentionKernel.FLASH_1, AttentionKernel.FLASH_3)

_WHOLE_KERNELS = (AttentionKernel.CUDNN, AttentionKernel.FLEX)
"""PyTorch's attention kernels whose log-sum-exp the trial job does not read, so that context ranks cannot merge their
results."""

_FOREIGN_RECIPES = (Fp8Recipe.DELAYED, Fp8Recipe.BLOCKWISE, Fp8Recipe.MXFP8)
"""Ways to scale fp8 values for which the trial job has no linear module. torchao's float8 training has modules for the
other two."""


def _expert_width(job: Job) -> int:
    """Return the greatest common divisor of both widths of an expert's matrices; 0 in a dense model."""
    return math.gcd(job.model.hidden_size, job.model.experts.expert_ffn_size) if job.model.experts else 0


def _shared_ffn_size(job: Job) -> int:
    """Return the total width of the shared experts.

    The result is 0 without shared experts, so that every degree divides it.
    """
    return job.model.experts.shared_ffn_size if job.model.experts else 0


def _ranks_of_all_experts(x: Layout) -> int:
    """Return the number of ranks that together hold each element of a layer's experts once."""
    return x.data_parallel_shard_degree * x.context_parallel_degree * x.tensor_parallel_degree


def _shards_experts_alone(x: Layout) -> bool:
    """Return True if a layer's experts are sharded apart from its other parameters."""
    hybrid = (x.data_parallel_replicate_degree > 1) & (x.gradient_sync == GradientSync.FULL)
    several = hybrid | (_ranks_of_all_experts(x) > x.expert_parallel_degree)
    return (x.expert_parallel_degree > 1) & several


def _attends_by_blocks(x: Layout) -> bool:
    """Return True if context ranks compute attention block by block and merge the results."""
    return (x.context_parallel_degree > 1) & (x.context_exchange != ContextExchange.ALL_TO_ALL)


def _sums_whole_gradients(x: Layout) -> bool:
    """Return True if some ranks all-reduce gradients: replicas, or context ranks without shards."""
    replicas = (x.data_parallel_replicate_degree > 1) & (x.gradient_sync == GradientSync.FULL)
    return replicas | ((x.context_parallel_degree > 1) & (x.shard_level == ShardLevel.NONE))


def _left_of_rounds(x: Layout, j: Job) -> int:
    """Return the number of micro-batches that remain after the full rounds of ``ScheduleInterleavedZeroBubble``."""
    num_micro_batches = j.workload.num_micro_batches(x)
    return num_micro_batches % maximum(1, num_micro_batches // x.pipeline_parallel_degree)


_RULES: tuple[Rule, ...] = named(
    {
        "trial-compiles-rows-of-one-length": held(
            "compiled",
            False,
            "without a pipeline, the rows of the built-in trial job are as long as their sequences, so the "
            "compiler would run again for every length; a pipeline, which pads rows to "
            "{j.workload.seq_len} tokens, can be compiled",
            lambda x, j: (j.workload.lengths is not None) & (x.pipeline_parallel_degree == 1),
        ),
        "trial-recomputes-selectively-once": refuse(
            "recompute",
            lambda x, j: (x.recompute == Recompute.SELECTIVE) & any_of(x.pipeline_schedule, SPLIT_SCHEDULES),
            "schedule {x.pipeline_schedule} runs the backward pass in two parts, but torch can use the "
            "values of a selective recomputation only once; choose full recomputation",
            Recompute.FULL,
        ),
        "trial-gathers-recomputed-experts-once": refuse(
            "recompute",
            lambda x, j: (
                (x.recompute == Recompute.SELECTIVE)
                & (x.reshard_after_forward != 0)
                & _shards_experts_alone(x)
                & (x.pipeline_parallel_degree > 1)
                & (x.pipeline_schedule != PipelineSchedule.GPIPE)
            ),
            "in {x.pipeline_schedule} a forward pass may use experts that an earlier backward pass "
            "gathered, and then a selective recomputation cannot repeat the gathering; choose full "
            "recomputation, gpipe, or no resharding after the forward pass",
            Recompute.FULL,
        ),
        "trial-compiles-whole-backwards": held(
            "compiled",
            False,
            "schedule {x.pipeline_schedule} runs the backward pass in two parts, but compiled code "
            "computes both parts at once and frees their memory, so torch may refuse the second part",
            lambda x, j: any_of(x.pipeline_schedule, SPLIT_SCHEDULES),
        ),
        "trial-keeps-parameters-between-backwards": held(
            "reshard_after_forward",
            False,
            "schedule {x.pipeline_schedule} runs the backward pass in two parts, and parameters that "
            "are resharded between these parts lose their gradients",
            lambda x, j: any_of(x.pipeline_schedule, SPLIT_SCHEDULES),
        ),
        "trial-shards-gradients-of-whole-models": refuse(
            "shard_level",
            lambda x, j: (x.shard_level == ShardLevel.GRADIENTS) & (x.pipeline_parallel_degree > 1),
            "in a pipeline, gradients are reduced and parameters gathered once per step, so shard level gradients "
            "would give the same run as shard level parameters",
            ShardLevel.PARAMETERS,
        ),
        "trial-stages-hold-a-layer": refuse(
            "last_stage_less_layers",
            lambda x, j: (x.pipeline_parallel_degree > 1) & (smallest_end(x, j) < 1),
            lambda x, j: (
                f"with {max(x.first_stage_less_layers, x.last_stage_less_layers)} layers less than the other stages, "
                "the first or the last stage has no layer; the built-in trial job needs a layer on each stage"
            ),
        ),
        "trial-shards-over-data-ranks": held(
            "shard_level",
            ShardLevel.NONE,
            "the built-in trial job shards over context ranks only if there are also two or more data-parallel "
            "shard ranks",
            lambda x, j: x.data_parallel_shard_degree == 1,
        ),
        "trial-fills-zero-bubble-rounds": refuse(
            "micro_batch_size",
            lambda x, j: (x.pipeline_schedule == PipelineSchedule.ZERO_BUBBLE) & (_left_of_rounds(x, j) != 0),
            lambda x, j: (
                f"torch runs schedule zero_bubble in equal rounds of at least {x.pipeline_parallel_degree} "
                f"micro-batches, and {j.workload.num_micro_batches(x)} micro-batches do not split into such rounds; a "
                f"multiple of {x.pipeline_parallel_degree} always does"
            ),
        ),
        "trial-runs-attention-kernel": refuse(
            "attention_kernel",
            lambda x, j: any_of(x.attention_kernel, _FOREIGN_KERNELS),
            "the built-in trial job has only PyTorch's own attention kernels, and {x.attention_kernel} is not "
            "one of them",
            AttentionKernel.FLASH,
        ),
        "trial-runs-torch": job_limit(
            "stack.name",
            lambda j: j.stack.name != "torch",
            "trials run only with the software stack torch, not with {j.stack.name}, for which the product "
            "has only predictions",
            "torch",
        ),
        "trial-merges-blocks": refuse(
            "attention_kernel",
            lambda x, j: _attends_by_blocks(x) & any_of(x.attention_kernel, _WHOLE_KERNELS),
            "{x.context_exchange} merges blocks of attention by their log-sum-exp, which the built-in trial job "
            "cannot read from {x.attention_kernel}; the context exchange all_to_all works with every "
            "kernel",
            AttentionKernel.FLASH,
        ),
        "trial-blocks-have-heads-of-eight": refuse(
            "context_exchange",
            lambda x, j: (
                _attends_by_blocks(x)
                & (x.attention_kernel != AttentionKernel.MATH)
                & ((j.cluster.accelerator.kind != "cpu") & (j.model.head_dim % 8 != 0))
            ),
            "blocks of attention in kernel {x.attention_kernel} need a head size that is a multiple of "
            "8, not {j.model.head_dim}; the context exchange all_to_all works with every head size",
            ContextExchange.ALL_TO_ALL,
        ),
        "trial-shards-with-expert-ranks": refuse(
            "shard_level",
            lambda x, j: (
                (x.expert_parallel_degree > 1)
                & (any_of(x.shard_level, SHARDED_GRADIENTS) == 0)
                & ((num_gradients(x) > 1) | (x.expert_parallel_degree != x.tensor_parallel_degree))
            ),
            "with expert ranks the built-in trial job averages the gradients of experts through FSDP, which "
            "shard level {x.shard_level} does not use",
            ShardLevel.PARAMETERS,
        ),
        "trial-shards-experts-evenly": held(
            "expert_parallel_degree",
            1,
            lambda x, j: (
                f"the {_ranks_of_all_experts(x) // x.expert_parallel_degree} ranks with the same experts "
                f"can split neither their experts nor the width {_expert_width(j)} of an expert evenly"
            ),
            lambda x, j: (
                (num_experts(j) % _ranks_of_all_experts(x) != 0)
                & (_expert_width(j) * x.expert_parallel_degree % _ranks_of_all_experts(x) != 0)
            ),
        ),
        "trial-splits-tokens-for-experts": held(
            "expert_parallel_degree",
            1,
            lambda x, j: (
                f"tensor ranks split the sequence for their experts, and {j.workload.seq_len} tokens do not "
                f"split over {x.tensor_parallel_degree * x.context_parallel_degree} tensor and context ranks"
            ),
            lambda x, j: j.workload.seq_len % (x.tensor_parallel_degree * x.context_parallel_degree) != 0,
        ),
        "trial-splits-shared-experts": refuse(
            "tensor_parallel_degree",
            lambda x, j: _shared_ffn_size(j) % x.tensor_parallel_degree != 0,
            lambda x, j: (
                f"the shared experts' ffn size {_shared_ffn_size(j)} does not split over {x.tensor_parallel_degree} "
                "tensor ranks"
            ),
            1,
        ),
        "trial-rounds-no-experts": refuse(
            "precision",
            lambda x, j: any_of(x.precision, FP8_PRECISIONS) & (j.model.experts is not None),
            "torchao rounds only linear modules to fp8, and the matrices of experts are not linear "
            "modules: they would stay in bf16, although the prediction assumes fp8",
            Precision.BF16,
        ),
        "trial-scales-fp8": refuse(
            "fp8_recipe",
            lambda x, j: any_of(x.precision, FP8_PRECISIONS) & any_of(x.fp8_recipe, _FOREIGN_RECIPES),
            "the built-in trial job uses the float8 linear modules of torchao, which have the recipes "
            "tensorwise and rowwise, but not {x.fp8_recipe}",
            Fp8Recipe.TENSORWISE,
        ),
        "trial-multiplies-8-bits-or-more": refuse(
            "precision",
            lambda x, j: x.precision == Precision.NVFP4,
            "the built-in trial job cannot multiply in nvfp4, for which the product has only predictions; fp8 can run",
            Precision.FP8,
        ),
        "trial-compiles-experts-with-their-layer": held(
            "compiled",
            False,
            lambda x, j: (
                "the compiler needs a layer as one graph, and refuses the hooks with which FSDP gathers "
                "the experts of the layer; compile without expert ranks, or with "
                f"{_ranks_of_all_experts(x)} expert ranks and no replicas"
            ),
            lambda x, j: _shards_experts_alone(x),
        ),
        "trial-efficient-attention-has-equal-heads": refuse(
            "attention_kernel",
            lambda x, j: (
                (x.attention_kernel == AttentionKernel.EFFICIENT) & (j.model.num_heads != j.model.num_kv_heads)
            ),
            "torch's memory-efficient kernel needs as many kv heads as heads, and the model has "
            "{j.model.num_heads} heads and {j.model.num_kv_heads} kv heads",
            AttentionKernel.FLASH,
        ),
        "trial-efficient-attention-has-heads-of-eight": refuse(
            "attention_kernel",
            lambda x, j: (x.attention_kernel == AttentionKernel.EFFICIENT) & (j.model.head_dim % 8 != 0),
            "torch's memory-efficient kernel needs a head size that is a multiple of 8, not {j.model.head_dim}",
            AttentionKernel.FLASH,
        ),
        "trial-flash-attention-has-heads-of-256-at-most": refuse(
            "attention_kernel",
            lambda x, j: (
                (x.attention_kernel == AttentionKernel.FLASH)
                & (j.cluster.accelerator.kind != "cpu")
                & (j.model.head_dim > 256)
            ),
            "FlashAttention-2 on a GPU needs a head size of at most 256, not {j.model.head_dim}",
            AttentionKernel.MATH,
        ),
        "trial-cudnn-attention-has-short-heads-of-eight": refuse(
            "attention_kernel",
            lambda x, j: (
                (x.attention_kernel == AttentionKernel.CUDNN) & ((j.model.head_dim % 8 != 0) | (j.model.head_dim > 128))
            ),
            "torch's cuDNN kernel needs a head size that is a multiple of 8 and at most 128, not {j.model.head_dim}",
            AttentionKernel.FLASH,
        ),
        "trial-flex-attention-has-long-heads": refuse(
            "attention_kernel",
            lambda x, j: (x.attention_kernel == AttentionKernel.FLEX) & (j.model.head_dim < 16),
            "torch's FlexAttention needs a head size of at least 16, not {j.model.head_dim}",
            AttentionKernel.FLASH,
        ),
        "trial-keeps-fp32-moments": job_limit(
            "workload.optimizer_state_precision",
            lambda j: j.workload.optimizer_state_precision != "fp32",
            "the built-in trial job keeps the optimizer states of AdamW only in fp32; predictions support other "
            "formats",
            "fp32",
        ),
        "trial-climbs-trees-with-whole-gradients": refuse(
            "collective_algorithm",
            lambda x, j: (
                (x.collective_algorithm == CollectiveAlgorithm.TREE)
                & (j.cluster.accelerator.kind == "cpu")
                & (_sums_whole_gradients(x) == 0)
            ),
            "on CPUs the built-in trial job uses the algorithm tree only for all-reduces, and a layout without "
            "replicas has no all-reduces; the algorithm ring also runs reduce-scatters and all-gathers",
            CollectiveAlgorithm.RING,
        ),
        "trial-exchanges-on-one-level": held(
            "collective_hierarchy",
            CollectiveHierarchy.FLAT,
            "the gradient exchange {x.gradient_sync} gathers its data with torch's own collectives, which have "
            "only one level",
            lambda x, j: (x.gradient_sync != GradientSync.FULL) & (x.data_parallel_replicate_degree > 1),
        ),
    }
)

TRIAL_RULES: tuple[Rule, ...] = (*_RULES, *TRIAL_MODEL_RULES)
