"""Rules of parallel degrees: the degrees must divide the model, the batch and the cluster.

A rule whose field is a degree reads only degrees and the schedule, because the search space applies it before other
options are added.
"""

from __future__ import annotations

from autotuner.core.choices import PipelineSchedule
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.rules.rule import Rule, any_of, held, maximum, named, refuse
from autotuner.core.stages import ONE_STAGE_SCHEDULES, V_SCHEDULES, layers_per_stage
from autotuner.core.value import nearest_divisor


def num_experts(job: Job) -> int:
    """Return the number of experts of the model; 1 for a dense model, so that no expert degree above 1 fits."""
    return job.model.experts.num_experts if job.model.experts else 1


def _lenders(x: Layout, job: Job) -> int:
    """Return the number of ranks among which expert ranks are chosen.

    Tensor ranks do not count if they split every expert.
    """
    inner = 1 if job.stack.splits_experts else x.tensor_parallel_degree
    return x.data_parallel_shard_degree * x.context_parallel_degree * inner


def _expert_ffn_size(job: Job) -> int:
    """Return the inner width of an expert.

    The result is 0 in a dense model, so that every degree divides it.
    """
    return job.model.experts.expert_ffn_size if job.model.experts else 0


def _joined_by_nvlink(job: Job) -> str:
    per_domain, per_node = job.cluster.accelerators_per_domain, job.cluster.accelerators_per_node
    return "a node" if per_domain == per_node else f"{per_domain // per_node} nodes that NVLink joins"


def _fewest_micro_batches(x: Layout) -> int:
    """Return the smallest number of micro-batches: one per pipeline rank.

    DualPipeV needs two per pipeline rank, because it runs two at once (github.com/deepseek-ai/DualPipe).
    """
    return x.pipeline_parallel_degree * (1 + (x.pipeline_schedule == PipelineSchedule.DUALPIPEV))


def _nearest_micro_batch(layout: Layout, job: Job) -> int | None:
    per_replica, remainder = divmod(job.workload.global_batch_size, layout.data_parallel_degree)
    return None if remainder else nearest_divisor(layout.micro_batch_size, per_replica)


_ONE_RANK = "with one pipeline rank all layers are in one stage, which cannot have fewer layers than other stages"

_SEVERAL_STAGES = (PipelineSchedule.INTERLEAVED_1F1B, *V_SCHEDULES)
"""Schedules that need more than one stage per rank. The schedule zero_bubble runs with any number of stages."""


_ONE_STAGE = (*ONE_STAGE_SCHEDULES, PipelineSchedule.ADAPTIVE)

_ENDS = 2
"""Number of stages that have other work than layers (embedding, loss). These may have no layer."""


def smallest_end(x: Layout, job: Job) -> int:
    """Return the number of layers of the first or the last pipeline stage, whichever has fewer layers.

    Both stages have as many layers as a middle stage, minus the number that the layout takes from them
    (``first_stage_less_layers``, ``last_stage_less_layers``).
    """
    share = layers_per_stage(x, job.model.num_layers)
    return share - maximum(x.first_stage_less_layers, x.last_stage_less_layers)


DEGREE_RULES: tuple[Rule, ...] = named(
    {
        "world-size": refuse(
            "data_parallel_replicate_degree",
            lambda x, j: x.world_size != j.cluster.world_size,
            "the product of the data, context, tensor and pipeline degrees must be the number of accelerators "
            "of the cluster, {j.cluster.world_size}, but it is {x.world_size}",
        ),
        "kv-heads-per-tensor-rank": refuse(
            "tensor_parallel_degree",
            lambda x, j: j.model.num_kv_heads % x.tensor_parallel_degree != 0,
            # the kv heads divide the query heads, so that query heads can be split too
            "{j.model.num_kv_heads} kv heads do not split over {x.tensor_parallel_degree} tensor ranks",
            lambda x, j: nearest_divisor(x.tensor_parallel_degree, j.model.num_kv_heads),
        ),
        "ffn-per-tensor-rank": refuse(
            "tensor_parallel_degree",
            lambda x, j: j.model.ffn_size % x.tensor_parallel_degree != 0,
            "ffn size {j.model.ffn_size} does not split over {x.tensor_parallel_degree} tensor ranks",
            lambda x, j: nearest_divisor(x.tensor_parallel_degree, j.model.ffn_size),
        ),
        "expert-ffn-per-tensor-rank": refuse(
            "tensor_parallel_degree",
            lambda x, j: (
                ((x.expert_parallel_degree == 1) | j.stack.splits_experts)
                & (_expert_ffn_size(j) % x.tensor_parallel_degree != 0)
            ),
            lambda x, j: (
                f"expert ffn size {_expert_ffn_size(j)} does not split over {x.tensor_parallel_degree} tensor ranks"
            ),
            lambda x, j: nearest_divisor(x.tensor_parallel_degree, _expert_ffn_size(j)),
        ),
        "tensor-group-inside-node": refuse(
            "tensor_parallel_degree",
            lambda x, j: j.cluster.accelerators_per_domain % x.tensor_parallel_degree != 0,
            lambda x, j: (
                f"{x.tensor_parallel_degree} tensor ranks do not divide the "
                f"{j.cluster.accelerators_per_domain} accelerators of {_joined_by_nvlink(j)}"
            ),
            lambda x, j: nearest_divisor(x.tensor_parallel_degree, j.cluster.accelerators_per_domain),
        ),
        "sequence-parallel-needs-tensor-ranks": held(
            "sequence_parallel",
            False,
            "sequence parallelism splits the sequence over tensor ranks, and this layout has one tensor rank",
            lambda x, j: x.tensor_parallel_degree == 1,
        ),
        "sequence-per-tensor-rank": held(
            "sequence_parallel",
            False,
            lambda x, j: (
                f"a sequence of {j.workload.seq_len} tokens does not split over "
                f"{x.tensor_parallel_degree * x.context_parallel_degree} ranks (tensor degree times context degree)"
            ),
            lambda x, j: j.workload.seq_len % (x.tensor_parallel_degree * x.context_parallel_degree) != 0,
        ),
        "sequence-per-context-rank": refuse(
            "context_parallel_degree",
            lambda x, j: (x.context_parallel_degree > 1) & (j.workload.seq_len % (2 * x.context_parallel_degree) != 0),
            "each context rank takes two parts of a sequence, so {x.context_parallel_degree} context ranks need a "
            "sequence length that is a multiple of twice their number, and it is {j.workload.seq_len}",
        ),
        "experts-per-expert-rank": refuse(
            "expert_parallel_degree",
            lambda x, j: num_experts(j) % x.expert_parallel_degree != 0,
            lambda x, j: f"{num_experts(j)} expert(s) do not split over {x.expert_parallel_degree} expert ranks",
            lambda x, j: nearest_divisor(x.expert_parallel_degree, num_experts(j)),
        ),
        "expert-ranks-are-borrowed": refuse(
            "expert_parallel_degree",
            lambda x, j: _lenders(x, j) % x.expert_parallel_degree != 0,
            lambda x, j: (
                f"{x.expert_parallel_degree} expert ranks do not divide the {_lenders(x, j)} "
                + ("shard and context" if j.stack.splits_experts else "shard, context and tensor")
                + " ranks that form the expert groups"
            ),
        ),
        "layers-per-stage": refuse(
            "pipeline_parallel_degree",
            lambda x, j: x.num_stages > j.model.num_layers + _ENDS,
            "{j.model.num_layers} layers are too few for {x.num_stages} stages: only the first and the "
            "last stage may have no layer",
            lambda x, j: max(1, j.model.num_layers // x.virtual_stages_per_rank),
        ),
        "equal-virtual-stages": held(
            "virtual_stages_per_rank",
            1,
            lambda x, j: (
                f"{j.model.num_layers} layers do not split evenly over {x.num_stages} virtual stages"
                + (
                    ", even after first_stage_less_layers and last_stage_less_layers are added"
                    if x.first_stage_less_layers + x.last_stage_less_layers
                    else ""
                )
            ),
            lambda x, j: (
                (j.model.num_layers + x.first_stage_less_layers + x.last_stage_less_layers) % x.num_stages != 0
            ),
        ),
        "smaller-ends-need-pipeline": held(
            "first_stage_less_layers", 0, _ONE_RANK, lambda x, j: x.pipeline_parallel_degree == 1
        ),
        "smaller-last-stage-needs-pipeline": held(
            "last_stage_less_layers", 0, _ONE_RANK, lambda x, j: x.pipeline_parallel_degree == 1
        ),
        "stages-between-hold-a-layer": refuse(
            "last_stage_less_layers",
            lambda x, j: (
                (x.pipeline_parallel_degree > 1)
                & (x.num_stages <= j.model.num_layers + _ENDS)
                & (layers_per_stage(x, j.model.num_layers) < 1)
            ),
            "{j.model.num_layers} layers on {x.num_stages} stages leave a middle stage without a layer; only the "
            "first stage (first_stage_less_layers) and the last stage (last_stage_less_layers) may have none",
        ),
        "smaller-ends-have-what-they-give": refuse(
            "last_stage_less_layers",
            lambda x, j: (
                (x.pipeline_parallel_degree > 1)
                & (layers_per_stage(x, j.model.num_layers) > 0)
                & (smallest_end(x, j) < 0)
            ),
            lambda x, j: (
                f"with {j.model.num_layers} layers on {x.num_stages} stages, the first or the last stage cannot have "
                f"{max(x.first_stage_less_layers, x.last_stage_less_layers)} layers less than the other stages; choose "
                "a smaller number, or fewer stages"
            ),
        ),
        "virtual-stages-fit-schedule": refuse(
            "virtual_stages_per_rank",
            lambda x, j: (
                (any_of(x.pipeline_schedule, _SEVERAL_STAGES) & (x.virtual_stages_per_rank == 1))
                | (any_of(x.pipeline_schedule, V_SCHEDULES) & (x.virtual_stages_per_rank != 2))
                | (any_of(x.pipeline_schedule, _ONE_STAGE) & (x.virtual_stages_per_rank > 1))
            ),
            "schedule {x.pipeline_schedule} does not run with {x.virtual_stages_per_rank} stage(s) per rank",
            lambda x, j: 2 if x.pipeline_schedule in _SEVERAL_STAGES else 1,
        ),
        "schedule-needs-pipeline": refuse(
            "pipeline_schedule",
            lambda x, j: (
                (x.pipeline_parallel_degree == 1)
                & ((x.pipeline_schedule != PipelineSchedule.ONE_F_ONE_B) | (x.virtual_stages_per_rank > 1))
            ),
            "with one pipeline rank the schedule has no effect, so it must keep its default",
            PipelineSchedule.ONE_F_ONE_B,
        ),
        "whole-micro-batches": refuse(
            "micro_batch_size",
            lambda x, j: j.workload.global_batch_size % (x.data_parallel_degree * x.micro_batch_size) != 0,
            "global batch {j.workload.global_batch_size} does not split into micro-batches of "
            "{x.micro_batch_size} on {x.data_parallel_degree} replicas",
            _nearest_micro_batch,
        ),
        "micro-batches-fill-pipeline": refuse(
            "micro_batch_size",
            lambda x, j: (
                (x.pipeline_parallel_degree > 1)
                & (x.pipeline_schedule != PipelineSchedule.GPIPE)
                & (j.workload.num_micro_batches(x) < _fewest_micro_batches(x))
            ),
            lambda x, j: (
                f"schedule {x.pipeline_schedule} needs {_fewest_micro_batches(x)} micro-batches or more, but there are "
                f"{j.workload.num_micro_batches(x)}; choose a smaller micro-batch, fewer pipeline ranks or a larger "
                "global batch"
            ),
        ),
        "micro-batches-in-rounds": refuse(
            "micro_batch_size",
            lambda x, j: (
                (x.pipeline_schedule == PipelineSchedule.INTERLEAVED_1F1B)
                & (j.workload.num_micro_batches(x) % x.pipeline_parallel_degree != 0)
            ),
            lambda x, j: (
                "schedule interleaved_1f1b needs a number of micro-batches that is a multiple of the number of "
                f"pipeline ranks, {x.pipeline_parallel_degree}, but there are {j.workload.num_micro_batches(x)}; "
                "choose another micro-batch size or global batch"
            ),
        ),
    }
)
