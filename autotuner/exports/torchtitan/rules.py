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
from autotuner.core.rules.trial import TRIAL_RULES
from autotuner.core.units import MIB
from autotuner.exports.common_rules import exchanges_and_batches, keeps, sends_and_places
from autotuner.exports.torchtitan.catalog import PIPELINED_0_2, RELEASE_0_2, flavor_of

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
    """Return True if torchtitan applies FSDP, over shard ranks or context ranks (``ParallelDims.fsdp_enabled``)."""
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
        "torchtitan shards by FSDP2, parameters with all else; it has no word for {x.shard_level} alone",
        ShardLevel.PARAMETERS,
    ),
    "torchtitan-shards-over-context-ranks": refuse(
        "shard_level",
        lambda x, j: (x.context_parallel_degree > 1) & (x.shard_level == ShardLevel.NONE),
        "torchtitan shards parameters over context ranks wherever there are some",
        ShardLevel.PARAMETERS,
    ),
    "torchtitan-reduces-in-fp32": held(
        "fp32_gradient_reduce",
        True,
        "torchtitan sums gradients in float32, the one value of mixed_precision_reduce",
        lambda x, j: (x.precision != Precision.FP32) & (_num_gradients(x) > 1),
    ),
    "torchtitan-plans-no-pipelines": refuse(
        "pipeline_schedule",
        lambda x, j: x.pipeline_schedule == PipelineSchedule.ADAPTIVE,
        "torchtitan runs PyTorch's own schedules, none of which is planned around slow links",
        PipelineSchedule.ZBV,
    ),
    "torchtitan-runs-zero-bubble-on-several-stages": refuse(
        "virtual_stages_per_rank",
        lambda x, j: (x.pipeline_schedule == PipelineSchedule.ZERO_BUBBLE) & (x.virtual_stages_per_rank == 1),
        "its InterleavedZeroBubble wants two stages per rank or more, and is refused with one",
        2,
    ),
    "torchtitan-keeps-activations-on-the-device": keeps(
        "offload_activations",
        "its enable_cpu_offload moves parameters, gradients and optimizer states; activations stay",
    ),
    "torchtitan-fuses-norms": keeps("fused_norm", "its norms are torch.nn.RMSNorm, one kernel each"),
    "torchtitan-emulates-tensorwise": keeps(
        "fp8_recipe",
        "its float8 converter drops the recipe where it emulates, and scales tensorwise, not {x.fp8_recipe}",
        lambda x, j: x.precision == Precision.FP8_EMULATED,
    ),
    "torchtitan-emulates-no-experts": refuse(
        "precision",
        lambda x, j: (x.precision == Precision.FP8_EMULATED) & _has_experts(j),
        "its converters of grouped products emulate nothing, so that experts would stay in bf16",
        Precision.BF16,
    ),
    "torchtitan-emulates-uncompiled": keeps(
        "compiled",
        "its float8 converter refuses to emulate in a compiled model",
        lambda x, j: x.precision == Precision.FP8_EMULATED,
    ),
}

_COMMON = (*_of_torch(), *exchanges_and_batches("torchtitan"), *sends_and_places("torchtitan"), *named(_COMMON_LIMITS))

_LIMITS_0_2: Mapping[str, Limit] = {
    "torchtitan-scales-experts-by-rows": refuse(
        "fp8_recipe",
        lambda x, j: (x.precision == Precision.FP8) & (x.fp8_recipe == Fp8Recipe.TENSORWISE) & _has_experts(j),
        "its converter of grouped products scales experts rowwise, or by blocks of 32 (mxfp8)",
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
        "its float8 converter of grouped products refuses pipelines and context ranks",
        Precision.BF16,
    ),
    "torchtitan-splits-sequences": held(
        "sequence_parallel",
        True,
        "torchtitan 0.2 runs tensor ranks with sequence parallelism and has no switch for it",
        lambda x, j: x.tensor_parallel_degree > 1,
    ),
    "torchtitan-sequence-per-rank": refuse(
        "tensor_parallel_degree",
        lambda x, j: j.workload.seq_len % (2 * x.tensor_parallel_degree * x.context_parallel_degree) != 0,
        lambda x, j: (
            f"it refuses a sequence of {j.workload.seq_len} that does not split into two parts for each of "
            f"{x.tensor_parallel_degree * x.context_parallel_degree} tensor and context ranks"
        ),
    ),
    "torchtitan-exchanges-keys-and-values": refuse(
        "context_exchange",
        lambda x, j: (x.context_parallel_degree > 1) & (x.context_exchange == ContextExchange.ALL_TO_ALL),
        "its rotate method alltoall sends keys and values round a ring; no method exchanges heads for sequence",
        ContextExchange.ALL_GATHER,
    ),
    "torchtitan-replicates-alone": keeps(
        "data_parallel_replicate_degree",
        "its DDP refuses to stand beside tensor or pipeline ranks; replicas of shards (HSDP) may",
        lambda x, j: (shards(x) == 0) & (x.data_parallel_replicate_degree != x.world_size),
    ),
    "torchtitan-casts-what-it-shards": held(
        "precision",
        Precision.FP32,
        "beside tensor or pipeline ranks it casts by FSDP alone: with no shards it warns and trains in fp32",
        lambda x, j: (shards(x) == 0) & ((x.tensor_parallel_degree > 1) | (x.pipeline_parallel_degree > 1)),
    ),
    "torchtitan-fills-its-own-buckets": held(
        "gradient_bucket_bytes",
        DDP_BUCKET_BYTES,
        f"its DDP has buckets of {DDP_BUCKET_BYTES} bytes (bucket_cap_mb=100)",
        lambda x, j: (x.data_parallel_replicate_degree > 1) & (shards(x) == 0),
    ),
    "torchtitan-recomputes-operations-of-every-layer": keeps(
        "recompute_every",
        'selective_ac_option is "op", of every layer, or the interval of layers that recompute in full; not both',
        lambda x, j: x.recompute == Recompute.SELECTIVE,
    ),
    "torchtitan-rounds-to-8-bits": refuse(
        "precision",
        lambda x, j: x.precision == Precision.NVFP4,
        "the converters of 0.2 are float8 and mx (mxfp8); nvfp4 came with 0.3",
        Precision.FP8,
    ),
    "torchtitan-scales-fp8": refuse(
        "fp8_recipe",
        lambda x, j: (
            any_of(x.precision, FP8_PRECISIONS) & any_of(x.fp8_recipe, (Fp8Recipe.DELAYED, Fp8Recipe.BLOCKWISE))
        ),
        "torchtitan 0.2 scales tensorwise, rowwise or by blocks of 32 (mxfp8), not {x.fp8_recipe}",
        Fp8Recipe.TENSORWISE,
    ),
    "torchtitan-overlaps-or-recomputes": keeps(
        "recompute",
        "torchtitan 0.2 refuses DualPipeV with expert ranks and activation checkpointing together",
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
        "its nvfp4 converter rounds linear modules alone, so that experts would stay in bf16",
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
        "it refuses a sequence of {j.workload.seq_len} that its tensor and context ranks do not share evenly",
    ),
    "torchtitan-gathers-keys-and-values": held(
        "context_exchange",
        ContextExchange.ALL_GATHER,
        "torchtitan 0.3 gathers all keys and values for FlexAttention; {x.context_exchange} is gone",
        lambda x, j: x.context_parallel_degree > 1,
    ),
    "torchtitan-attends-by-flex-or-varlen": refuse(
        "attention_kernel",
        lambda x, j: any_of(x.attention_kernel, _KERNELS_0_3) == 0,
        "attn_backend of torchtitan 0.3 is flex or varlen (FlashAttention), and {x.attention_kernel} neither",
        AttentionKernel.FLEX,
    ),
    "torchtitan-attends-by-flex-over-context-ranks": refuse(
        "attention_kernel",
        lambda x, j: (x.context_parallel_degree > 1) & (x.attention_kernel == AttentionKernel.FLASH),
        "context ranks of torchtitan 0.3 attend by flex; varlen is refused beside them",
        AttentionKernel.FLEX,
    ),
    "torchtitan-keeps-logits-apart": keeps(
        "loss_parallel", "the loss of torchtitan 0.3 leaves logits on their tensor ranks; disable_loss_parallel is gone"
    ),
    "torchtitan-reduces-layer-by-layer": keeps(
        "gradient_bucket_bytes", "replicas of torchtitan 0.3 are FSDP2's, which reduces layer by layer, in no buckets"
    ),
    "torchtitan-recomputes-every-layer": keeps(
        "recompute_every", "torchtitan 0.3 recomputes every layer; its interval of layers went with 0.2"
    ),
    "torchtitan-scales-fp8": refuse(
        "fp8_recipe",
        lambda x, j: (x.precision == Precision.FP8) & (any_of(x.fp8_recipe, (Fp8Recipe.ROWWISE, Fp8Recipe.MXFP8)) == 0),
        "torchtitan 0.3 scales rowwise or by blocks of 32 (mxfp8), not {x.fp8_recipe}",
        Fp8Recipe.ROWWISE,
    ),
    "torchtitan-fuses-updates-of-bf16-moments": keeps(
        "optimizer_kernel",
        "torchtitan 0.3 has moments in bf16 with its fused optimizer alone (fused_opt_states_bf16)",
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
