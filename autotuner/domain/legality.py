"""Which layouts can run, and why the others cannot.

Every rule is one comparison written with ``%``, ``<``, ``!=``, ``&`` and ``|`` only, so the same line judges one
``Layout`` (Python integers) and a table of a million (numpy columns with the same field names).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from autotuner.domain.check import nearest_divisor
from autotuner.domain.choice import AttentionKernel, PipelineSchedule, Precision, Recompute, ShardLevel
from autotuner.domain.cluster import Cluster
from autotuner.domain.layout import Layout
from autotuner.domain.model import TransformerSpec
from autotuner.domain.workload import Workload

__all__ = ["RULES", "TRIAL_RULES", "Job", "Reason", "Rule", "illegal", "reasons"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is given while layouts are chosen: model, cluster and workload."""

    model: TransformerSpec
    cluster: Cluster
    workload: Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a layout cannot run.

    Attributes:
        rule: Name of the rule, stable enough to filter by.
        field: The layout field to change.
        message: A sentence with the numbers in it.
        nearest: The nearest value of ``field`` that keeps this rule, where one is known.
    """

    rule: str
    field: str
    message: str
    nearest: int | str | None = None


Layouts: TypeAlias = Any
"""One layout, or columns of them: the fields of ``Layout`` and its derived degrees, by the same names."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One comparison that an impossible layout fails."""

    name: str
    field: str
    broken: Callable[[Any, Job], Any]
    message: Callable[[Layout, Job], str]
    nearest: Callable[[Layout, Job], int | str | None] = lambda layout, job: None


def reasons(layout: Layout, job: Job, rules: Iterable[Rule] | None = None) -> tuple[Reason, ...]:
    """Every rule that the layout breaks; empty for a legal one."""
    return tuple(
        Reason(rule=r.name, field=r.field, message=r.message(layout, job), nearest=r.nearest(layout, job))
        for r in (RULES if rules is None else rules)
        if r.broken(layout, job)
    )


def illegal(layouts: Layouts, job: Job, rules: Iterable[Rule]) -> Any:
    """Whether any of the rules is broken: a bool for one layout, a bool column for columns."""
    verdict: Any = False
    for rule in rules:
        verdict = verdict | rule.broken(layouts, job)
    return verdict


def _num_experts(job: Job) -> int:
    return job.model.experts.num_experts if job.model.experts else 1


def _expert_ffn_size(job: Job) -> int:
    """0 in a dense model: everything divides it."""
    return job.model.experts.expert_ffn_size if job.model.experts else 0


def _batch_remainder(x: Layouts, job: Job) -> Any:
    return job.workload.global_batch_size % (x.data_parallel_degree * x.micro_batch_size)


def _num_micro_batches(x: Layouts, job: Job) -> Any:
    return job.workload.global_batch_size // (x.data_parallel_degree * x.micro_batch_size)


def _any_of(column: Any, members: Iterable[int]) -> Any:
    verdict: Any = False
    for member in members:
        verdict = verdict | (column == member)
    return verdict


def _labels(members: Iterable[object]) -> str:
    return ", ".join(str(m) for m in members)


def _nearest_micro_batch(layout: Layout, job: Job) -> int | None:
    per_replica, remainder = divmod(job.workload.global_batch_size, layout.data_parallel_degree)
    return None if remainder else nearest_divisor(layout.micro_batch_size, per_replica)


_SPLIT_STAGE_SCHEDULES = (PipelineSchedule.INTERLEAVED_1F1B, PipelineSchedule.ZBV)

RULES: tuple[Rule, ...] = (
    Rule(
        "world-size",
        "data_parallel_replicate_degree",
        lambda x, j: x.world_size != j.cluster.world_size,
        lambda x, j: f"the degrees multiply to {x.world_size} ranks, the cluster has {j.cluster.world_size}",
    ),
    Rule(
        "kv-heads-per-tensor-rank",
        "tensor_parallel_degree",
        lambda x, j: j.model.num_kv_heads % x.tensor_parallel_degree != 0,
        lambda x, j: (  # the kv heads divide the heads, so these split then too
            f"{j.model.num_kv_heads} kv heads do not split over {x.tensor_parallel_degree} tensor ranks"
        ),
        lambda x, j: nearest_divisor(x.tensor_parallel_degree, j.model.num_kv_heads),
    ),
    Rule(
        "ffn-per-tensor-rank",
        "tensor_parallel_degree",
        lambda x, j: j.model.ffn_size % x.tensor_parallel_degree != 0,
        lambda x, j: f"ffn size {j.model.ffn_size} does not split over {x.tensor_parallel_degree} tensor ranks",
        lambda x, j: nearest_divisor(x.tensor_parallel_degree, j.model.ffn_size),
    ),
    Rule(
        "expert-ffn-per-tensor-rank",
        "tensor_parallel_degree",
        lambda x, j: (x.expert_parallel_degree == 1) & (_expert_ffn_size(j) % x.tensor_parallel_degree != 0),
        lambda x, j: (
            f"expert ffn size {_expert_ffn_size(j)} does not split over {x.tensor_parallel_degree} tensor ranks, "
            "and no expert ranks take whole experts"
        ),
        lambda x, j: nearest_divisor(x.tensor_parallel_degree, _expert_ffn_size(j)),
    ),
    Rule(
        "tensor-group-inside-node",
        "tensor_parallel_degree",
        lambda x, j: j.cluster.accelerators_per_node % x.tensor_parallel_degree != 0,
        lambda x, j: (
            f"{x.tensor_parallel_degree} tensor ranks do not divide the "
            f"{j.cluster.accelerators_per_node} accelerators of a node"
        ),
        lambda x, j: nearest_divisor(x.tensor_parallel_degree, j.cluster.accelerators_per_node),
    ),
    Rule(
        "sequence-parallel-needs-tensor-ranks",
        "sequence_parallel",
        lambda x, j: (x.sequence_parallel != 0) & (x.tensor_parallel_degree == 1),
        lambda x, j: "sequence parallelism splits over the tensor ranks, and there is one",
        lambda x, j: "false",
    ),
    Rule(
        "sequence-per-tensor-rank",
        "sequence_parallel",
        lambda x, j: (
            (x.sequence_parallel != 0)
            & (j.workload.seq_len % (x.tensor_parallel_degree * x.context_parallel_degree) != 0)
        ),
        lambda x, j: (
            f"a sequence of {j.workload.seq_len} does not split over "
            f"{x.tensor_parallel_degree * x.context_parallel_degree} tensor and context ranks"
        ),
        lambda x, j: "false",
    ),
    Rule(
        "sequence-per-context-rank",
        "context_parallel_degree",
        lambda x, j: (x.context_parallel_degree > 1) & (j.workload.seq_len % (2 * x.context_parallel_degree) != 0),
        lambda x, j: (
            f"a sequence of {j.workload.seq_len} does not split into two balanced parts for each of "
            f"{x.context_parallel_degree} context ranks"
        ),
    ),
    Rule(
        "experts-per-expert-rank",
        "expert_parallel_degree",
        lambda x, j: _num_experts(j) % x.expert_parallel_degree != 0,
        lambda x, j: f"{_num_experts(j)} expert(s) do not split over {x.expert_parallel_degree} expert ranks",
        lambda x, j: nearest_divisor(x.expert_parallel_degree, _num_experts(j)),
    ),
    Rule(
        "expert-ranks-are-borrowed",
        "expert_parallel_degree",
        lambda x, j: (
            (x.data_parallel_shard_degree * x.context_parallel_degree * x.tensor_parallel_degree)
            % x.expert_parallel_degree
            != 0
        ),
        lambda x, j: (
            f"{x.expert_parallel_degree} expert ranks do not divide the "
            f"{x.data_parallel_shard_degree * x.context_parallel_degree * x.tensor_parallel_degree} "
            "shard, context and tensor ranks they are taken from"
        ),
    ),
    Rule(
        "layers-per-stage",
        "pipeline_parallel_degree",
        lambda x, j: x.num_stages > j.model.num_layers,
        lambda x, j: f"{x.num_stages} stages share {j.model.num_layers} layers: some would be empty",
        lambda x, j: max(1, j.model.num_layers // x.virtual_stages_per_rank),
    ),
    Rule(
        "equal-virtual-stages",
        "virtual_stages_per_rank",
        lambda x, j: (x.virtual_stages_per_rank > 1) & (j.model.num_layers % x.num_stages != 0),
        lambda x, j: f"{j.model.num_layers} layers do not split evenly over {x.num_stages} virtual stages",
        lambda x, j: 1,
    ),
    Rule(
        "virtual-stages-fit-schedule",
        "virtual_stages_per_rank",
        lambda x, j: (
            (_any_of(x.pipeline_schedule, _SPLIT_STAGE_SCHEDULES) & (x.virtual_stages_per_rank == 1))
            | ((x.pipeline_schedule == PipelineSchedule.ZBV) & (x.virtual_stages_per_rank != 2))
            | ((x.virtual_stages_per_rank > 1) & (_any_of(x.pipeline_schedule, _SPLIT_STAGE_SCHEDULES) == 0))
        ),
        lambda x, j: f"schedule {x.pipeline_schedule} does not run with {x.virtual_stages_per_rank} stage(s) per rank",
        lambda x, j: 2 if x.pipeline_schedule in _SPLIT_STAGE_SCHEDULES else 1,
    ),
    Rule(
        "schedule-needs-pipeline",
        "pipeline_schedule",
        lambda x, j: (
            (x.pipeline_parallel_degree == 1)
            & ((x.pipeline_schedule != PipelineSchedule.ONE_F_ONE_B) | (x.virtual_stages_per_rank > 1))
        ),
        lambda x, j: "one pipeline rank runs no schedule; the field keeps its default",
        lambda x, j: PipelineSchedule.ONE_F_ONE_B.label,
    ),
    Rule(
        "whole-micro-batches",
        "micro_batch_size",
        lambda x, j: _batch_remainder(x, j) != 0,
        lambda x, j: (
            f"global batch {j.workload.global_batch_size} does not split into micro-batches of "
            f"{x.micro_batch_size} on {x.data_parallel_degree} replicas"
        ),
        _nearest_micro_batch,
    ),
    Rule(
        "micro-batches-fill-pipeline",
        "micro_batch_size",
        lambda x, j: (
            (x.pipeline_parallel_degree > 1)
            & (x.pipeline_schedule != PipelineSchedule.GPIPE)
            & (_num_micro_batches(x, j) < x.num_stages)
        ),
        lambda x, j: (
            f"schedule {x.pipeline_schedule} needs {x.num_stages} micro-batches or more, "
            f"there are {_num_micro_batches(x, j)}"
        ),
    ),
    Rule(
        "micro-batches-in-rounds",
        "micro_batch_size",
        lambda x, j: (
            (x.pipeline_schedule == PipelineSchedule.INTERLEAVED_1F1B)
            & (_num_micro_batches(x, j) % x.pipeline_parallel_degree != 0)
        ),
        lambda x, j: (
            f"interleaved_1f1b runs micro-batches in rounds of {x.pipeline_parallel_degree}, "
            f"{_num_micro_batches(x, j)} is no multiple"
        ),
    ),
    Rule(
        "shard-degree-fits-level",
        "shard_level",
        lambda x, j: (x.data_parallel_shard_degree > 1) != (x.shard_level != ShardLevel.NONE),
        lambda x, j: f"shard level {x.shard_level} contradicts {x.data_parallel_shard_degree} shard rank(s)",
        lambda x, j: (ShardLevel.PARAMETERS if x.data_parallel_shard_degree > 1 else ShardLevel.NONE).label,
    ),
    Rule(
        "reshard-needs-sharded-parameters",
        "reshard_after_forward",
        lambda x, j: (x.reshard_after_forward != 0) & (x.shard_level != ShardLevel.PARAMETERS),
        lambda x, j: f"there is nothing to reshard at shard level {x.shard_level}",
        lambda x, j: "false",
    ),
    Rule(
        "attention-kernel-on-hardware",
        "attention_kernel",
        lambda x, j: _any_of(x.attention_kernel, j.cluster.accelerator.attention_kernels) == 0,
        lambda x, j: (
            f"{j.cluster.accelerator.name} runs {_labels(j.cluster.accelerator.attention_kernels)}, "
            f"not {x.attention_kernel}"
        ),
        lambda x, j: j.cluster.accelerator.attention_kernels[-1].label,
    ),
    Rule(
        "flash-needs-half-precision",
        "attention_kernel",
        lambda x, j: (
            (x.attention_kernel == AttentionKernel.FLASH)
            & (x.precision == Precision.FP32)
            & (j.cluster.accelerator.kind != "cpu")
        ),
        lambda x, j: "flash attention on a GPU computes in 16 bits, not fp32",
        lambda x, j: AttentionKernel.MATH.label,
    ),
    Rule(
        "precision-on-hardware",
        "precision",
        lambda x, j: _any_of(x.precision, j.cluster.accelerator.precisions) == 0,
        lambda x, j: (
            f"{j.cluster.accelerator.name} multiplies in {_labels(j.cluster.accelerator.precisions)}, not {x.precision}"
        ),
        lambda x, j: j.cluster.accelerator.precisions[-1].label,
    ),
    Rule(
        "fp8-block-shape",
        "precision",
        lambda x, j: (
            (x.precision == Precision.FP8)
            & ((j.model.hidden_size % 16 != 0) | (j.model.ffn_size % (16 * x.tensor_parallel_degree) != 0))
        ),
        lambda x, j: (
            f"fp8 multiplies blocks of 16; hidden {j.model.hidden_size} or ffn {j.model.ffn_size} is no multiple"
        ),
        lambda x, j: Precision.BF16.label,
    ),
)
"""Rules of physics and arithmetic: a layout that breaks one cannot run anywhere on this cluster."""

TRIAL_RULES: tuple[Rule, ...] = (
    Rule(
        "trial-runs-schedule",
        "pipeline_schedule",
        lambda x, j: _any_of(x.pipeline_schedule, (PipelineSchedule.GPIPE, PipelineSchedule.ONE_F_ONE_B)) == 0,
        lambda x, j: f"the trial job does not run schedule {x.pipeline_schedule} yet",
        lambda x, j: PipelineSchedule.ONE_F_ONE_B.label,
    ),
    Rule(
        "trial-runs-shard-level",
        "shard_level",
        lambda x, j: _any_of(x.shard_level, (ShardLevel.NONE, ShardLevel.PARAMETERS)) == 0,
        lambda x, j: f"the trial job does not shard {x.shard_level} yet",
        lambda x, j: ShardLevel.PARAMETERS.label,
    ),
    Rule(
        "trial-keeps-pipeline-parameters",
        "reshard_after_forward",
        lambda x, j: (x.reshard_after_forward != 0) & (x.pipeline_parallel_degree > 1),
        lambda x, j: "resharding would gather the parameters again for every micro-batch of the pipeline",
        lambda x, j: "false",
    ),
    Rule(
        "trial-runs-recompute",
        "recompute",
        lambda x, j: x.recompute == Recompute.SELECTIVE,
        lambda x, j: "the trial job does not recompute selectively yet",
        lambda x, j: Recompute.FULL.label,
    ),
    Rule(
        "trial-runs-precision",
        "precision",
        lambda x, j: x.precision == Precision.FP8,
        lambda x, j: "the trial job does not run fp8 yet",
        lambda x, j: Precision.BF16.label,
    ),
    Rule(
        "trial-splits-no-context",
        "context_parallel_degree",
        lambda x, j: x.context_parallel_degree > 1,
        lambda x, j: "the trial job does not split the context yet",
        lambda x, j: 1,
    ),
    Rule(
        "trial-model-is-dense",
        "expert_parallel_degree",
        lambda x, j: (j.model.experts is not None) | (x.expert_parallel_degree > 1),
        lambda x, j: "the trial job trains dense models only, so far",
        lambda x, j: None if j.model.experts else 1,
    ),
    Rule(
        "trial-attends-without-latents",
        "attention_kernel",
        lambda x, j: (x.world_size > 0) & (j.model.latent_attention is not None),
        lambda x, j: "the trial job has no multi-head latent attention yet",
    ),
    Rule(
        "trial-ties-within-a-stage",
        "pipeline_parallel_degree",
        lambda x, j: (x.pipeline_parallel_degree > 1) & j.model.tied_embeddings,
        lambda x, j: "the tied embedding would lie on the first and the last stage, and no schedule sums its gradients",
        lambda x, j: 1,
    ),
    Rule(
        "trial-ties-one-replica-of-tensor-ranks",
        "data_parallel_replicate_degree",
        lambda x, j: (
            (x.tensor_parallel_degree > 1)
            & (x.data_parallel_replicate_degree > 1)
            & (x.data_parallel_shard_degree == 1)
            & j.model.tied_embeddings
        ),
        lambda x, j: "DDP over tensor ranks loses track of a tied embedding; shard the replicas instead",
        lambda x, j: 1,
    ),
    Rule(
        "trial-efficient-attention-has-equal-heads",
        "attention_kernel",
        lambda x, j: (x.attention_kernel == AttentionKernel.EFFICIENT) & (j.model.num_heads != j.model.num_kv_heads),
        lambda x, j: (
            f"torch's memory-efficient kernel shares no kv heads, and {j.model.num_heads} heads share "
            f"{j.model.num_kv_heads}"
        ),
        lambda x, j: AttentionKernel.FLASH.label,
    ),
)
"""What today's trial job cannot run yet; a sweep keeps these rules too, a prediction does not."""
