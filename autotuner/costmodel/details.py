"""Details of one layout: times by stage, traffic by group, and shares of passes.

Bytes are computed by the same formulas as times: they are the seconds on links with one byte per second, if computation
takes no time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import get_args

import numpy as np

from autotuner.core.choices import P2PTransport, PipelineSchedule
from autotuner.core.columns import Floats, Integers, LayoutColumns
from autotuner.core.job import BF16_PARTS, Job
from autotuner.core.layout import Layout
from autotuner.core.link import CollectiveKind, Link, MeasuredCollective
from autotuner.core.prediction import Memory
from autotuner.core.stages import SPLIT_SCHEDULES, stages_of_rank
from autotuner.costmodel.layer.memory_bound import optimizer_s
from autotuner.costmodel.layer.model_work import ModelWork
from autotuner.costmodel.layer.work import Work
from autotuner.costmodel.memory.peak import fullest_rank, rank_memories
from autotuner.costmodel.memory.weights import owned_elements
from autotuner.costmodel.shared.low_precision import is_bf16_on_cores
from autotuner.costmodel.shared.micro_batch import hidden_bytes, hidden_split
from autotuner.costmodel.shared.stages import RankLoad, load_of_rank, num_micro_batches, slowest_candidates, stage_load
from autotuner.costmodel.shared.table import row
from autotuner.costmodel.step.data_parallel import data_communication_s, early_share
from autotuner.costmodel.step.rank_step import RankStep, slowest_rank
from autotuner.costmodel.step.sends import Hops

_FACTORED = tuple(
    name for f in fields(Work) if (name := f.name) not in ("forward_s", "weight_gradient_s", "backward_s")
)
"""Parts of a micro-batch's work that sum to its total."""

_PART_OF_STEP = {
    "tensor_s": "tensor_communication_s",
    "context_s": "context_communication_s",
    "expert_s": "expert_communication_s",
}
"""Fields of ``StepTime`` whose names differ from those of ``Work``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes:
    """The predicted times of one layout: for each stage, its passes; for each pipeline rank, the work that ends a step.

    The passes of a stage are those of one micro-batch, in seconds. They include recomputation and the exposed
    collectives of tensor, context and expert groups. The work that ends a step (data-parallel collectives and the
    optimizer) is in seconds per step.
    """

    forward_s: tuple[float, ...]
    """Time of the forward pass (F) of each stage."""
    input_s: tuple[float, ...]
    """Time for the gradient of the input (I) of each stage."""
    weight_s: tuple[float, ...]
    """Time for the gradients of the weights (W) of each stage. A whole backward pass is I and W."""
    blocks_s: tuple[float, ...]
    """Time for which a send over each link between neighbouring stages blocks the sending rank, in either direction."""
    flies_s: tuple[float, ...]
    """Remaining time of the transfer, which runs during computation."""
    num_delegates: int
    """Number of delegate processes per link and direction, which send in turn; 0: ranks send themselves."""
    sync_s: tuple[float, ...]
    """Time of exposed data-parallel collectives in a step, by pipeline rank."""
    optimizer_s: tuple[float, ...]
    """Time of the optimizer's step, by pipeline rank."""


def stage_times(layout: Layout, job: Job) -> StageTimes:
    """Return the predicted times of each stage and each pipeline rank, from which ``predict`` computes the step time.

    The layout must be legal for the job. The times are multiplied by the factors of the job's calibration.
    """
    stages, ranks = layout.num_stages, layout.pipeline_parallel_degree
    x = LayoutColumns.from_layouts([layout] * stages)
    rank_of = np.empty(stages, dtype=np.int64)
    for rank in range(ranks):
        rank_of[list(stages_of_rank(layout, rank))] = rank
    timed, x_of_ranks = ModelWork.of(x, job), x.take(slice(0, ranks))
    works = timed.for_layouts(x).on(stage_load(x, job, np.arange(stages), rank_of))
    passes = works.passes() * (_calibrated_s(x, works, job) / works.total_s)
    once = _Once.of(x_of_ranks, job, timed.rows(slice(0, ranks)).for_layouts(x_of_ranks))
    added_s = once.accumulation_s[rank_of] / layout.virtual_stages_per_rank
    blocks_s, flies_s = _links(layout, job, x, rank_of)
    return StageTimes(
        forward_s=_non_negative(passes.forward_s),
        input_s=_non_negative(passes.input_s),
        weight_s=_non_negative(passes.weight_s + added_s),
        blocks_s=blocks_s,
        flies_s=flies_s,
        num_delegates=layout.num_delegates if layout.p2p_transport == P2PTransport.DELEGATED else 0,
        sync_s=_non_negative(once.sync_s),
        optimizer_s=_non_negative(once.optimizer_s),
    )


def _links(
    layout: Layout, job: Job, x: LayoutColumns, rank_of: Integers
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the blocking time and the remaining transfer time of each link between stages.

    Both are 0 between stages of one rank.
    """
    if layout.pipeline_parallel_degree == 1:
        return (0.0,) * (layout.num_stages - 1), (0.0,) * (layout.num_stages - 1)
    hops, factor = Hops.of(x.take(slice(0, 1)), job), _factor(job, "pipeline_communication_s")
    blocks_s, flies_s = factor * hops.blocks_s[0], factor * (hops.flies_s + hops.receives_s)[0]
    one, other = rank_of[:-1], rank_of[1:]
    hop = np.where(abs(one - other) == 1, np.minimum(one, other), layout.pipeline_parallel_degree - 1)
    apart = one != other
    return _non_negative(blocks_s[hop] * apart), _non_negative(flies_s[hop] * apart)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Once:
    """The work that each pipeline rank does once per step, in addition to its passes."""

    accumulation_s: Floats
    """Seconds to add gradients, per micro-batch."""
    sync_s: Floats
    optimizer_s: Floats

    @classmethod
    def of(cls, x: LayoutColumns, job: Job, works: ModelWork[Work]) -> _Once:
        """Return the work of one layout's pipeline ranks, one row per rank."""
        m = num_micro_batches(x, job)
        load = load_of_rank(x, job, np.arange(len(x)))
        step = RankStep.of(x, job, (load,), works)
        added_s = step.step_time.pointwise_s - m * works.on(load).pointwise_s
        update_s = optimizer_s(x, job, owned_elements(x, job, step.window.held)) + step.window.weight_casts_s
        return cls(
            accumulation_s=_factor(job, "pointwise_s") * added_s / m,
            sync_s=_factor(job, "data_communication_s") * data_communication_s(x, job, step.window),
            optimizer_s=_factor(job, "optimizer_s") * update_s,
        )


def _calibrated_s(x: LayoutColumns, works: Work, job: Job) -> Floats:
    parts: list[Floats] = [_factor(job, _PART_OF_STEP.get(name, name)) * getattr(works, name) for name in _FACTORED]
    if job.calibration is not None and is_bf16_on_cores(x, job).all():
        in_bf16 = [job.calibration.bf16_on_cores if name in BF16_PARTS else 1.0 for name in _FACTORED]
        parts = [factor * part for factor, part in zip(in_bf16, parts, strict=True)]
    return np.sum(parts, axis=0)  # type: ignore[no-any-return]  # an array of seconds


def _factor(job: Job, part: str) -> float:
    return 1.0 if job.calibration is None else job.calibration.of(part)


def _non_negative(seconds: Floats) -> tuple[float, ...]:
    return tuple(float(one) for one in np.maximum(seconds, 0.0))


def stage_memory(layout: Layout, job: Job) -> tuple[Memory, ...]:
    """Return the peak memory of each pipeline rank in bytes, split into parts such as weights and activations.

    The entry of the fullest rank equals the memory in the layout's prediction. A rank that holds several stages has the
    memory of all of them. Each entry gives the number of its rank as ``worst_rank``.

    Args:
        layout: Legal for the job.
        job: The job.
    """
    x = LayoutColumns.from_layouts([layout] * layout.pipeline_parallel_degree)
    loads: Sequence[RankLoad] = [load_of_rank(x, job, np.arange(len(x)))]
    if layout.pipeline_schedule == PipelineSchedule.ADAPTIVE:
        loads = RankStep.of(x, job, slowest_candidates(x, job), ModelWork.of(x, job).for_layouts(x)).keeping(loads)
    sizes = fullest_rank(x, job, rank_memories(x, job, loads))
    return tuple(row(sizes, rank) for rank in range(len(x)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """The bytes that a rank sends in one communication group during a step, and the seconds that it waits there."""

    sent_bytes: float
    """Bytes that the rank sends; for an all-reduce, ``2 (n - 1) / n`` of the summed bytes."""
    exposed_s: float
    """Seconds that the rank waits for the collectives, without hidden time; for the pipeline, the seconds that sends
    add to the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanges:
    """The bytes that a rank sends, and the seconds that it waits, in each of its communication groups during one step.

    Both are zero in a group without other ranks.
    """

    tensor: Exchange
    context: Exchange
    expert: Exchange
    pipeline: Exchange
    data: Exchange


def exchanges(layout: Layout, job: Job, pipeline_rank: int) -> Exchanges:
    """Return, for each communication group of a rank, the bytes that it sends in a step and the seconds that it waits.

    All ranks with the same pipeline rank have the same figures.

    Args:
        layout: Legal for the job.
        job: The job.
        pipeline_rank: Number of the rank in the pipeline, from 0.
    """
    counted, spent = (_seconds(layout, one, pipeline_rank) for one in (_counting(layout, job), job))
    factors = {name: _factor(job, f"{name}_communication_s") for name in spent}
    found = {
        name: Exchange(sent_bytes=counted[name], exposed_s=factors[name] * spent[name])
        for name in ("tensor", "context", "expert", "data")
    }
    sent = Exchange(
        sent_bytes=_sent_bytes(layout, job, pipeline_rank), exposed_s=factors["pipeline"] * spent["pipeline"]
    )
    return Exchanges(pipeline=sent, **found)


def _seconds(layout: Layout, job: Job, pipeline_rank: int) -> dict[str, float]:
    x = LayoutColumns.from_layouts([layout])
    load = load_of_rank(x, job, np.array([pipeline_rank]))
    works = ModelWork.of(x, job).for_layouts(x)
    step = RankStep.of(x, job, (load,), works)
    slowest = RankStep.of(x, job, slowest_candidates(x, job), works)  # sends of the pipeline lengthen the step
    found = {
        "tensor": step.step_time.tensor_communication_s,
        "context": step.step_time.context_communication_s,
        "expert": step.step_time.expert_communication_s,
        "pipeline": slowest.step_time.pipeline_communication_s,
        "data": data_communication_s(x, job, step.window),
    }
    return {name: max(0.0, float(seconds[0])) for name, seconds in found.items()}


def _counting(layout: Layout, job: Job) -> Job:
    """Return the job on links of one byte per second, with computation that takes no time."""
    link = Link(
        name="one byte per second",
        bandwidth_bytes_per_s=1.0,
        latency_s=0.0,
        measured=tuple(_lines(_group_sizes(layout))),
    )
    accelerator = replace(job.cluster.accelerator, core=None)
    cluster = replace(
        job.cluster, accelerator=accelerator, intra_node_link=link, inter_node_link=link, oversubscription=1.0
    )
    return replace(job, cluster=cluster, calibration=None)


def _group_sizes(layout: Layout) -> list[int]:
    """Return the possible numbers of ranks of a group, from 2 on, in increasing order."""
    degrees = (
        *(layout.tensor_parallel_degree, layout.context_parallel_degree, layout.expert_parallel_degree),
        *(layout.data_parallel_shard_degree, layout.data_parallel_replicate_degree, layout.pipeline_parallel_degree),
    )
    products = {1}
    for degree in degrees:
        products |= {degree * product for product in products}
    quotients = {product // degree for product in products for degree in degrees if product % degree == 0}
    return sorted({size for size in products | quotients if 1 < size <= layout.world_size})


def _lines(sizes: Iterable[int]) -> Iterable[MeasuredCollective]:
    for num_ranks in sizes:
        for kind in get_args(CollectiveKind):
            passed = {"send": 1.0, "all_reduce": 2 * (num_ranks - 1) / num_ranks}
            share = passed.get(kind, (num_ranks - 1) / num_ranks)
            yield MeasuredCollective(kind=kind, num_ranks=num_ranks, start_s=0.0, s_per_byte=share)


def _sent_bytes(layout: Layout, job: Job, pipeline_rank: int) -> float:
    """Return the bytes that a pipeline rank sends in a step.

    These are hidden states to the next stage and gradients to the previous one.
    """
    ranks, chunks = layout.pipeline_parallel_degree, layout.virtual_stages_per_rank
    if ranks == 1:
        return 0.0
    x = LayoutColumns.from_layouts([layout])
    once = float((hidden_bytes(x, job) / hidden_split(x) * num_micro_batches(x, job))[0])
    ends = (pipeline_rank == 0) + (pipeline_rank == ranks - 1)
    return once * (2 * chunks - ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassShares:
    """The shares of forward, backward and deferred weight-gradient passes in a rank's computation; they sum to 1.

    The rank is the slowest pipeline rank. Recomputation is not counted.
    """

    forward: float
    """Share of the time before the loss."""
    backward: float
    """Share of the time after the loss: all gradients, or only those of inputs if the schedule defers gradients of
    weights."""
    weight: float
    """Share of the time for deferred gradients of weights; 0 if the schedule does not defer them."""


def pass_shares(layout: Layout, job: Job) -> PassShares:
    """Return the shares of forward, backward and deferred weight-gradient passes in the slowest rank's computation.

    The layout must be legal for the job. Gradients of weights have a share of their own only if the pipeline schedule
    computes them later than the gradients of inputs. Otherwise they are part of ``backward``.

    Example:
        >>> from autotuner.catalog.hardware import load_cluster
        >>> from autotuner.catalog.models import load_model
        >>> from autotuner.core.workload import Workload
        >>> workload = Workload(seq_len=8192, global_batch_size=64)
        >>> job = Job(model=load_model("llama-3.1-8b"), cluster=load_cluster("h100:8"), workload=workload)
        >>> shares = pass_shares(Layout.parse("fsdp8 mb1 recompute-full"), job)
        >>> round(shares.forward + shares.backward + shares.weight, 6)
        1.0
    """
    x = LayoutColumns.from_layouts([layout])
    works = ModelWork.of(x, job).for_layouts(x)
    load, m = slowest_rank(x, job, works.passes(), slowest_candidates(x, job)).load, num_micro_batches(x, job)
    step = RankStep.of(x, job, (load,), works)
    parts = step.step_time
    computed_s = _only(parts.matrix_s + parts.attention_s + parts.pointwise_s + parts.host_s)
    deferred_s = _only(m * works.on(load).weight_gradient_s) if layout.pipeline_schedule in SPLIT_SCHEDULES else 0.0
    forward, weight = _only(m * step.window.forward_s) / computed_s, deferred_s / computed_s
    return PassShares(forward=forward, backward=1 - forward - weight, weight=weight)


def _only(column: Floats) -> float:
    return float(column[0])


def overlapped_share(layout: Layout, job: Job) -> float | None:
    """Return the share of a rank's gradient bytes whose reduction starts before the last backward pass ends, 0..1.

    The rank is the slowest pipeline rank. A reduction that starts early is not always hidden behind computation: see
    ``communication.overlap``.

    Args:
        layout: Legal for the job.
        job: The job.

    Returns:
        None if one rank sees all tokens, so that nothing is reduced.
    """
    if layout.data_parallel_degree * layout.context_parallel_degree == 1:
        return None
    x = LayoutColumns.from_layouts([layout])
    window = RankStep.of(x, job, slowest_candidates(x, job), ModelWork.of(x, job).for_layouts(x)).window
    return float(early_share(x, job, window)[0])
