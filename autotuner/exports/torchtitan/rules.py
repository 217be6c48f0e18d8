"""Rules for layouts that torchtitan cannot express. Their messages say what it does instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from autotuner.core.choices import (
    FP8_PRECISIONS,
    AttentionKernel,
    ContextExchange,
    Fp8Recipe,
    PipelineSchedule,
    Precision,
    Recompute,
    ShardLevel,
)
from autotuner.core.job import Job
from autotuner.core.layout import DEFAULT_BUCKET_BYTES, Layout
from autotuner.core.rules.rule import Limit, Rule, any_of, held, job_limit, named, refuse
from autotuner.core.rules.trial_job import TRIAL_RULES
from autotuner.core.units import MIB
from autotuner.exports.shared.common_rules import exchanges_and_batches, keeps, sends_and_places
from autotuner.exports.torchtitan.releases import PIPELINED_0_2, RELEASE_0_2, flavor_of

DDP_BUCKET_BYTES = 100 * MIB
"""Value of ``bucket_cap_mb`` in torchtitan's DDP (torchtitan 0.2.2, ``apply_ddp`` of
models/llama3/infra/parallelize.py)."""

_SHARED_WITH_TRIALS = (
    "trial-recomputes-selectively-once",
    "trial-compiles-whole-backwards",
    "trial-keeps-parameters-between-backwards",
    "trial-fills-zero-bubble-rounds",
)
"""Names of rules of the trial job that also apply to torchtitan, because PyTorch itself cannot run these layouts."""


def shards(x: Layout) -> bool:
    """Return True if torchtitan applies FSDP to the layout, over its shard ranks or its context ranks.

    This is the same rule as ``ParallelDims.fsdp_enabled`` in torchtitan.
    """
    return (x.data_parallel_shard_degree > 1) | (x.context_parallel_degree > 1)


def _num_gradients(x: Layout) -> int:
    return x.data_parallel_degree * x.context_parallel_degree


def _has_experts(job: Job) -> bool:
    return job.model.experts is not None


def _has_stages(job: Job) -> bool:
    """Return True if torchtitan 0.2.2 can split this model into stages.

    A model that torchtitan does not contain is the user's own, and can be split.
    """
    flavor = flavor_of(job.model, RELEASE_0_2.version)
    return flavor is None or flavor.family in PIPELINED_0_2


def _of_torch() -> tuple[Rule, ...]:
    by_name = {rule.name: rule for rule in TRIAL_RULES}
    return tuple(replace(by_name[name], name=name.replace("trial-", "torchtitan-")) for name in _SHARED_WITH_TRIALS)


_COMMON_LIMITS: Mapping[str, Limit] = {
    "torchtitan-shards-parameters": refuse(
        "shard_level",
        lambda x, j: any_of(x.shard_level, (ShardLevel.OPTIMIZER, ShardLevel.GRADIENTS)),
        "torchtitan shards with FSDP2, which shards the parameters too; it cannot shard only {x.shard_level}",
        ShardLevel.PARAMETERS,
    ),
    "torchtitan-shards-over-context-ranks": refuse(
        "shard_level",
        lambda x, j: (x.context_parallel_degree > 1) & (x.shard_level == ShardLevel.NONE),
        "torchtitan always shards parameters over context ranks",
        ShardLevel.PARAMETERS,
    ),
    "torchtitan-reduces-in-fp32": held(
        "fp32_gradient_reduce",
        True,
        "torchtitan always sums gradients in float32, the only value of mixed_precision_reduce",
        lambda x, j: (x.precision != Precision.FP32) & (_num_gradients(x) > 1),
    ),
    "torchtitan-plans-no-pipelines": refuse(
        "pipeline_schedule",
        lambda x, j: x.pipeline_schedule == PipelineSchedule.ADAPTIVE,
        "torchtitan runs only PyTorch's own schedules, which are not planned around slow links",
        PipelineSchedule.ZBV,
    ),
    "torchtitan-runs-zero-bubble-on-several-stages": refuse(
        "virtual_stages_per_rank",
        lambda x, j: (x.pipeline_schedule == PipelineSchedule.ZERO_BUBBLE) & (x.virtual_stages_per_rank == 1),
        "torchtitan's InterleavedZeroBubble needs two or more stages per rank",
        2,
    ),
    "torchtitan-keeps-activations-on-the-device": keeps(
        "offload_activations",
        "torchtitan's enable_cpu_offload moves parameters, gradients and optimizer states, but not activations",
    ),
    "torchtitan-fuses-norms": keeps("fused_norm", "torchtitan's norms are always torch.nn.RMSNorm, one kernel each"),
    "torchtitan-emulates-tensorwise": keeps(
        "fp8_recipe",
        "torchtitan's float8 converter ignores the recipe when it emulates fp8, and scales "
        "tensorwise, not {x.fp8_recipe}",
        lambda x, j: x.precision == Precision.FP8_EMULATED,
    ),
    "torchtitan-emulates-no-experts": refuse(
        "precision",
        lambda x, j: (x.precision == Precision.FP8_EMULATED) & _has_experts(j),
        "torchtitan's converters of grouped products do not emulate fp8, so experts would stay in bf16",
        Precision.BF16,
    ),
    "torchtitan-emulates-uncompiled": keeps(
        "compiled",
        "torchtitan's float8 converter refuses to emulate fp8 in a compiled model",
        lambda x, j: x.precision == Precision.FP8_EMULATED,
    ),
}

_COMMON = (*_of_torch(), *exchanges_and_batches("torchtitan"), *sends_and_places("torchtitan"), *named(_COMMON_LIMITS))

_LIMITS_0_2: Mapping[str, Limit] = {
    "torchtitan-scales-experts-by-rows": refuse(
        "fp8_recipe",
        lambda x, j: (x.precision == Precision.FP8) & (x.fp8_recipe == Fp8Recipe.TENSORWISE) & _has_experts(j),
        "torchtitan's converter of grouped products scales experts only rowwise, or by blocks of 32 (mxfp8)",
        Fp8Recipe.ROWWISE,
    ),
    "torchtitan-rounds-experts-of-whole-models": refuse(
        "precision",
        lambda x, j: (
            (x.precision == Precision.FP8)
            & (x.fp8_recipe != Fp8Recipe.MXFP8)
            & ((x.pipeline_parallel_degree > 1) | (x.context_parallel_degree > 1))
            & _has_experts(j)
        ),
        "torchtitan's float8 converter of grouped products refuses pipelines and context ranks",
        Precision.BF16,
    ),
    "torchtitan-splits-sequences": held(
        "sequence_parallel",
        True,
        "torchtitan 0.2 always runs tensor ranks with sequence parallelism and has no switch for it",
        lambda x, j: x.tensor_parallel_degree > 1,
    ),
    "torchtitan-sequence-per-rank": refuse(
        "tensor_parallel_degree",
        lambda x, j: j.workload.seq_len % (2 * x.tensor_parallel_degree * x.context_parallel_degree) != 0,
        lambda x, j: (
            f"torchtitan refuses a sequence of {j.workload.seq_len} that does not split into two parts "
            f"for each of {x.tensor_parallel_degree * x.context_parallel_degree} tensor and context "
            "ranks"
        ),
    ),
    "torchtitan-exchanges-keys-and-values": refuse(
        "context_exchange",
        lambda x, j: (x.context_parallel_degree > 1) & (x.context_exchange == ContextExchange.ALL_TO_ALL),
        "torchtitan's rotate method alltoall sends keys and values around a ring; no method "
        "exchanges heads for parts of the sequence",
        ContextExchange.ALL_GATHER,
    ),
    "torchtitan-replicates-alone": keeps(
        "data_parallel_replicate_degree",
        "torchtitan's DDP cannot be combined with tensor or pipeline ranks; replicas of shards (HSDP) can",
        lambda x, j: (shards(x) == 0) & (x.data_parallel_replicate_degree != x.world_size),
    ),
    "torchtitan-casts-what-it-shards": held(
        "precision",
        Precision.FP32,
        "with tensor or pipeline ranks torchtitan casts only through FSDP: without shards it warns and trains in fp32",
        lambda x, j: (shards(x) == 0) & ((x.tensor_parallel_degree > 1) | (x.pipeline_parallel_degree > 1)),
    ),
    "torchtitan-fills-its-own-buckets": held(
        "gradient_bucket_bytes",
        DDP_BUCKET_BYTES,
        f"torchtitan's DDP always has buckets of {DDP_BUCKET_BYTES} bytes (bucket_cap_mb=100)",
        lambda x, j: (x.data_parallel_replicate_degree > 1) & (shards(x) == 0),
    ),
    "torchtitan-recomputes-operations-of-every-layer": keeps(
        "recompute_every",
        'selective_ac_option is either "op", for every layer, or the interval of layers that recompute in full',
        lambda x, j: x.recompute == Recompute.SELECTIVE,
    ),
    "torchtitan-rounds-to-8-bits": refuse(
        "precision",
        lambda x, j: x.precision == Precision.NVFP4,
        "torchtitan 0.2 has the converters float8 and mx (mxfp8); nvfp4 needs torchtitan 0.3",
        Precision.FP8,
    ),
    "torchtitan-scales-fp8": refuse(
        "fp8_recipe",
        lambda x, j: (
            any_of(x.precision, FP8_PRECISIONS) & any_of(x.fp8_recipe, (Fp8Recipe.DELAYED, Fp8Recipe.BLOCKWISE))
        ),
        "torchtitan 0.2 scales only tensorwise, rowwise or by blocks of 32 (mxfp8), not {x.fp8_recipe}",
        Fp8Recipe.TENSORWISE,
    ),
    "torchtitan-overlaps-or-recomputes": keeps(
        "recompute",
        "torchtitan 0.2 refuses DualPipeV together with expert ranks and activation checkpointing",
        lambda x, j: (x.pipeline_schedule == PipelineSchedule.DUALPIPEV) & (x.expert_parallel_degree > 1),
    ),
    "torchtitan-cuts-this-model": keeps(
        "pipeline_parallel_degree",
        "torchtitan 0.2 has no pipelining_fn for the family of {j.model.name}",
        lambda x, j: not _has_stages(j),
    ),
    "torchtitan-keeps-fp32-moments": job_limit(
        "workload.optimizer_state_precision",
        lambda j: j.workload.optimizer_state_precision != "fp32",
        "torchtitan 0.2 keeps AdamW's moments in the format of the weights, fp32",
        "fp32",
    ),
}

RULES_0_2: tuple[Rule, ...] = (*_COMMON, *named(_LIMITS_0_2))

_KERNELS_0_3 = (AttentionKernel.FLEX, AttentionKernel.FLASH)
"""Attention kernels that ``attn_backend`` of the model registries selects: flex, and varlen, which is FlashAttention
for sequences of all lengths."""

_LIMITS_0_3: Mapping[str, Limit] = {
    "torchtitan-rounds-experts-to-8-bits": refuse(
        "precision",
        lambda x, j: (x.precision == Precision.NVFP4) & _has_experts(j),
        "torchtitan's nvfp4 converter rounds only linear modules, so experts would stay in bf16",
        Precision.FP8,
    ),
    "torchtitan-sequence-per-rank": refuse(
        "tensor_parallel_degree",
        lambda x, j: (
            j.workload.seq_len
            % (
                (1 + (x.tensor_parallel_degree - 1) * (x.sequence_parallel != 0))
                * (1 + (2 * x.context_parallel_degree - 1) * (x.context_parallel_degree > 1))
            )
            != 0
        ),
        "torchtitan refuses a sequence of {j.workload.seq_len} that does not split evenly over its "
        "tensor and context ranks",
    ),
    "torchtitan-gathers-keys-and-values": held(
        "context_exchange",
        ContextExchange.ALL_GATHER,
        "torchtitan 0.3 always gathers all keys and values for FlexAttention, and no longer has {x.context_exchange}",
        lambda x, j: x.context_parallel_degree > 1,
    ),
    "torchtitan-attends-by-flex-or-varlen": refuse(
        "attention_kernel",
        lambda x, j: any_of(x.attention_kernel, _KERNELS_0_3) == 0,
        "torchtitan 0.3 has only the attn_backend values flex and varlen (FlashAttention), not {x.attention_kernel}",
        AttentionKernel.FLEX,
    ),
    "torchtitan-attends-by-flex-over-context-ranks": refuse(
        "attention_kernel",
        lambda x, j: (x.context_parallel_degree > 1) & (x.attention_kernel == AttentionKernel.FLASH),
        "context ranks of torchtitan 0.3 need flex attention, because varlen is refused with them",
        AttentionKernel.FLEX,
    ),
    "torchtitan-keeps-logits-apart": keeps(
        "loss_parallel",
        "torchtitan 0.3 always keeps logits split over the tensor ranks, and no longer has disable_loss_parallel",
    ),
    "torchtitan-reduces-layer-by-layer": keeps(
        "gradient_bucket_bytes", "replicas of torchtitan 0.3 use FSDP2, which reduces layer by layer, not in buckets"
    ),
    "torchtitan-recomputes-every-layer": keeps(
        "recompute_every", "torchtitan 0.3 recomputes every layer, and no longer has an interval of layers"
    ),
    "torchtitan-scales-fp8": refuse(
        "fp8_recipe",
        lambda x, j: (x.precision == Precision.FP8) & (any_of(x.fp8_recipe, (Fp8Recipe.ROWWISE, Fp8Recipe.MXFP8)) == 0),
        "torchtitan 0.3 scales only rowwise or by blocks of 32 (mxfp8), not {x.fp8_recipe}",
        Fp8Recipe.ROWWISE,
    ),
    "torchtitan-fuses-updates-of-bf16-moments": keeps(
        "optimizer_kernel",
        "torchtitan 0.3 has moments in bf16 only with its fused optimizer (fused_opt_states_bf16)",
        lambda x, j: j.workload.optimizer_state_precision == "bf16",
    ),
}

RULES_0_3: tuple[Rule, ...] = (*_COMMON, *named(_LIMITS_0_3))

_DEFAULT_SPACE: Mapping[str, tuple[int, ...]] = {
    "shard_level": (ShardLevel.NONE, ShardLevel.PARAMETERS),
    "fp32_gradient_reduce": (False, True),  # the second one, wherever it has an effect
}

DEFAULT_SPACE_0_2 = {
    **_DEFAULT_SPACE,
    "context_exchange": (ContextExchange.RING, ContextExchange.ALL_GATHER),
    "gradient_bucket_bytes": (DEFAULT_BUCKET_BYTES, DDP_BUCKET_BYTES),
    "fp8_recipe": (Fp8Recipe.TENSORWISE, Fp8Recipe.ROWWISE, Fp8Recipe.MXFP8),
}

DEFAULT_SPACE_0_3 = {
    **_DEFAULT_SPACE,
    "context_exchange": (ContextExchange.RING, ContextExchange.ALL_GATHER),  # the first one, where no other rank exists
    "attention_kernel": _KERNELS_0_3,
    "fp8_recipe": (Fp8Recipe.TENSORWISE, Fp8Recipe.ROWWISE, Fp8Recipe.MXFP8),  # the first one with bf16
}
"""Default values that a sweep with such a trainer tries. Rules remove values that other options forbid."""
