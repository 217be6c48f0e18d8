"""Step time of a pipeline rank, and of the slowest rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce

import numpy as np

from autotuner.core.columns import Floats, Integers, LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import options_entering
from autotuner.core.option import CostPart
from autotuner.core.prediction import StepTime
from autotuner.costmodel.communication.collectives import send_s
from autotuner.costmodel.communication.contention import PassTraffic
from autotuner.costmodel.communication.layout_groups import pipeline_group
from autotuner.costmodel.layer.memory_bound import stream_rate
from autotuner.costmodel.layer.model_work import ModelWork
from autotuner.costmodel.layer.quantization import weight_casts_s
from autotuner.costmodel.layer.work import Passes, Work
from autotuner.costmodel.memory.weights import Weights, gradient_bytes, weights
from autotuner.costmodel.shared.micro_batch import hidden_bytes, hidden_split
from autotuner.costmodel.shared.stages import RankLoad, num_micro_batches
from autotuner.costmodel.shared.table import where
from autotuner.costmodel.step.bubble import rank_bubble_s
from autotuner.costmodel.step.unequal_links import LinkTimes, link_times


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTime:
    """The seconds of a step on one pipeline rank, with its waiting and sending, one row per layout."""

    load: RankLoad
    bubble_s: Floats
    """Time of waiting for the passes of other ranks."""
    sends_s: Floats
    """Time of sending, and of waiting for sends."""
    total_s: Floats
    """Time of micro-batches, bubble and sends together."""
    planned_in_flight: Floats | None = None
    """Most micro-batches that the ranks of a planned pipeline keep; 0 in other layouts, None if no layout has a
    plan."""


def slowest_rank(x: LayoutColumns, job: Job, passes: ModelWork[Passes], loads: Sequence[RankLoad]) -> RankTime:
    """Return the time of the slowest pipeline rank of each layout, which decides how long the step takes.

    Args:
        x: Layouts, one per row.
        job: The job.
        passes: Seconds of one micro-batch's passes in each part of the model.
        loads: Pipeline ranks that may be the slowest.
    """
    whole, stage_send_s = passes.whole(), send_between_stages_s(x, job)
    slowest = reduce(_slower, (_on(x, job, load, passes.on(load), whole, stage_send_s) for load in loads))
    unequal = link_times(x, job, passes)
    return slowest if unequal is None else _on_links(slowest, unequal)


def _slower(one: RankTime, other: RankTime) -> RankTime:
    """Return the slower of two ranks, for each layout."""
    slower = other.total_s > one.total_s
    return where(slower, other, one) if slower.any() else one


def _on_links(time: RankTime, links: LinkTimes) -> RankTime:
    """Return the slowest rank on unequal links or with a planned schedule.

    The added time counts as sends.
    """
    planned = links.planned_s > 0
    computed_s = time.total_s - time.bubble_s - time.sends_s
    sends_s = np.where(planned, links.planned_s - links.unhindered_s, time.sends_s + links.added_s)
    bubble_s = np.where(planned, links.unhindered_s - computed_s, time.bubble_s)
    return RankTime(
        load=time.load,
        bubble_s=np.maximum(bubble_s, 0.0),
        sends_s=np.maximum(sends_s, 0.0),
        total_s=computed_s + np.maximum(bubble_s, 0.0) + np.maximum(sends_s, 0.0),
        planned_in_flight=links.in_flight,
    )


def _on(x: LayoutColumns, job: Job, load: RankLoad, own: Passes, whole: Passes, stage_send_s: Floats) -> RankTime:
    """Return the time of one rank among all others. Sends overlap with computation; with some stacks they block it."""
    m, others, nothing = num_micro_batches(x, job), whole - own, np.zeros(len(x))
    bubble_s = rank_bubble_s(x, m, load.rank, own, others, nothing)
    if job.stack.blocks_sends:
        sent_s = x.virtual_stages_per_rank * stage_send_s
        neighbours = 2.0 - (load.rank == 0) - (load.rank == x.pipeline_parallel_degree - 1)
        slowed = others.with_sends((x.pipeline_parallel_degree - 1) * sent_s)
        waited_s = rank_bubble_s(x, m, load.rank, own.with_sends(sent_s), slowed, nothing)
        sends_s = waited_s - bubble_s + m * neighbours * sent_s
    else:
        sends_s = rank_bubble_s(x, m, load.rank, own, others, stage_send_s) - bubble_s
    return RankTime(load=load, bubble_s=bubble_s, sends_s=sends_s, total_s=m * own.total_s + bubble_s + sends_s)


def send_between_stages_s(x: LayoutColumns, job: Job) -> Floats:
    """Return the seconds to send the hidden states of one micro-batch from one stage to the next stage."""
    wait_s = job.stack.send_wait_s * (x.pipeline_parallel_degree > 1)
    return send_s(hidden_bytes(x, job) / hidden_split(x), pipeline_group(x, job.cluster)) + wait_s


_NAMES = tuple(f.name for f in fields(StepTime))
_BEFORE_DATA = _NAMES[: _NAMES.index("data_communication_s")]


def before_data_s(step_time: StepTime[Floats]) -> Floats:
    """Return the sum of the parts of a step that stand before ``data_communication_s`` in the fields of ``StepTime``.

    These parts do not depend on how data-parallel ranks split the weights.
    """
    parts: list[Floats] = [getattr(step_time, name) for name in _BEFORE_DATA]
    return reduce(np.add, parts)  # in order, as ``StepTime.total_s`` adds


def total_s(before_data_s: Floats, data_communication_s: Floats, bubble_s: Floats, optimizer_s: Floats) -> Floats:
    """Return the seconds of a step: ``before_data_s`` plus data-parallel communication, bubble and optimizer step."""
    return before_data_s + data_communication_s + bubble_s + optimizer_s


RANK_STEP_FIELDS = ("data_parallel_degree", "pipeline_stride", *options_entering(CostPart.RANK))
"""Options that a rank's step depends on. In a complete space, three to six layouts share each combination of their
values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWindow:
    """The times and weights of one pipeline rank that decide how long its data-parallel collectives take."""

    forward_s: Floats
    """Computation time of one micro-batch's forward pass, without collectives. Gathers can be hidden by it."""
    backward_s: Floats
    """Computation time of one micro-batch's backward pass. Reductions can be hidden by it."""
    held: Weights
    """Weights that the rank holds."""
    num_layers: Integers
    """Number of layers of the rank."""
    weight_casts_s: Floats
    """Seconds to round the rank's weights, if they are rounded once per step."""
    traffic: PassTraffic | None = None
    """Traffic of the other axes in each pass, which shares a described network with the collectives. None: one switch
    joins all nodes, and nothing is known to be shared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStep:
    """The step of the slowest pipeline rank, by part, without the optimizer and data-parallel collectives."""

    step_time: StepTime[Floats]
    """Time of each part of the step; optimizer and data-parallel communication are zero."""
    window: RankWindow
    """Window of computation that hides collectives of the data-parallel group."""
    planned_in_flight: Floats | None
    """Micro-batches that ranks of planned pipelines keep; 0 in other layouts, None if no layout has a plan."""

    @classmethod
    def of(cls, x: LayoutColumns, job: Job, loads: Sequence[RankLoad], works: ModelWork[Work]) -> RankStep:
        """Return the step of each layout's slowest pipeline rank, by part.

        The optimizer and the data-parallel collectives are not included.

        Args:
            x: Layouts, one per row.
            job: The job.
            loads: Pipeline ranks that may be the slowest.
            works: Time of one micro-batch in each part of the model.
        """
        slowest, m = slowest_rank(x, job, works.passes(), loads), num_micro_batches(x, job)
        work = works.on(slowest.load)
        step, held, nothing = work * m, weights(x, job, slowest.load), np.zeros(len(x))
        step_time = StepTime(
            matrix_s=step.matrix_s,
            attention_s=step.attention_s,
            pointwise_s=step.pointwise_s + _accumulation_s(x, job, held, m),
            host_s=step.host_s,
            recompute_s=step.recompute_s,
            offload_s=step.offload_s,
            tensor_communication_s=step.tensor_s,
            context_communication_s=step.context_s,
            expert_communication_s=step.expert_s,
            pipeline_communication_s=slowest.sends_s,
            data_communication_s=nothing,
            bubble_s=slowest.bubble_s,
            optimizer_s=nothing,
        )
        window = RankWindow(
            forward_s=work.compute_s + work.recompute_s - work.backward_s,
            backward_s=work.backward_s,
            held=held,
            num_layers=slowest.load.num_layers,
            weight_casts_s=weight_casts_s(x, job, held.dense + held.expert),
            traffic=None if job.cluster.network is None else _traffic(x, job, work),
        )
        return cls(step_time=step_time, window=window, planned_in_flight=slowest.planned_in_flight)

    def keeping(self, loads: Sequence[RankLoad]) -> tuple[RankLoad, ...]:
        """Return the loads, with the number of micro-batches in flight that the adaptive schedule's plan needs.

        Loads of layouts with other schedules stay as they are. The activations of micro-batches in flight take memory.

        Args:
            loads: Layers and other model parts of one pipeline rank of each layout.
        """
        planned = self.planned_in_flight
        if planned is None:
            return tuple(loads)
        kept = (np.where(planned > 0, planned, load.micro_batches_in_flight) for load in loads)
        return tuple(replace(load, micro_batches_in_flight=one) for load, one in zip(loads, kept, strict=True))


def _traffic(x: LayoutColumns, job: Job, work: Work) -> PassTraffic:
    """Return the traffic of one pass on each axis.

    It is half of a micro-batch's traffic, because forward and backward pass have equal parts.
    """
    return PassTraffic(
        tensor_s=work.tensor_s / 2,
        context_s=work.context_s / 2,
        expert_s=work.expert_s / 2,
        sent_s=x.virtual_stages_per_rank * send_between_stages_s(x, job),
    )


def _accumulation_s(x: LayoutColumns, job: Job, held: Weights, m: Integers) -> Floats:
    """Return the time to add each micro-batch's gradients to their sum.

    The new gradients and the sum are read, and the sum is written.
    """
    moved_bytes = (x.element_bytes + 2 * gradient_bytes(x, job)) * (held.dense + held.expert)
    seconds: Floats = (m - 1) * moved_bytes / stream_rate(job)
    return seconds
