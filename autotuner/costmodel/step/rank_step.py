"""RankStep: a step of the slowest pipeline rank, whichever way data-parallel ranks share its weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autotuner.core.columns import Floats, Integers, LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import options_entering
from autotuner.core.option import CostPart
from autotuner.costmodel.kernels.casts import weight_casts_s
from autotuner.costmodel.kernels.memory_bound import stream_rate
from autotuner.costmodel.layer.model_work import ModelWork, PartWorks
from autotuner.costmodel.layer.work import Work
from autotuner.costmodel.memory.sharding import gradient_bytes
from autotuner.costmodel.memory.weights import Weights, weights
from autotuner.costmodel.pipeline.rank_load import RankLoad, num_micro_batches
from autotuner.costmodel.step.critical_rank import send_between_stages_s, slowest_rank
from autotuner.costmodel.step.met_traffic import PassTraffic
from autotuner.costmodel.step.step_time import StepTimeColumns

STEP_FIELDS = ("data_parallel_degree", "pipeline_stride", *options_entering(CostPart.RANK))
"""All that it depends on; a whole space has three to six layouts for each combination of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWindow:
    """What the collectives of data-parallel ranks depend on: what one pipeline rank holds, and computes meanwhile.

    Attributes:
        forward_s: Computation of one micro-batch's forward, without collectives; gathers hide under it.
        backward_s: Computation of one micro-batch's backward; reductions hide under it.
        held: Its weights.
        num_layers: Its layers.
        weight_casts_s: Rounding its weights, where that is done once a step.
        traffic: What either pass spends on the other axes' traffic, which the collectives meet on a described network;
            None: one switch joins all nodes, and nothing is known to be shared.
    """

    forward_s: Floats
    backward_s: Floats
    held: Weights
    num_layers: Integers
    weight_casts_s: Floats
    traffic: PassTraffic | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStep:
    """What the slowest pipeline rank does in a step.

    Attributes:
        step_time: Its parts, but for the optimizer and the data-parallel group, which are zero.
        window: What hides collectives of the data-parallel group.
        planned_in_flight: Micro-batches that ranks of planned pipelines keep, 0 in other layouts; None: all others.
    """

    step_time: StepTimeColumns
    window: RankWindow
    planned_in_flight: Floats | None

    @classmethod
    def of(cls, x: LayoutColumns, job: Job, loads: Sequence[RankLoad], part_works: PartWorks) -> RankStep:
        """One row per layout, from the pipeline ranks among which the slowest is found."""
        works = ModelWork.of(x, job, part_works)
        slowest, m = slowest_rank(x, job, works.passes(), loads), num_micro_batches(x, job)
        work = works.on(slowest.load)
        step, held, nothing = work * m, weights(x, job, slowest.load), np.zeros(len(x))
        step_time = StepTimeColumns(
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
        """The loads, with the micro-batches that plans keep."""
        planned = self.planned_in_flight
        if planned is None:
            return tuple(loads)
        kept = (np.where(planned > 0, planned, load.micro_batches_in_flight) for load in loads)
        return tuple(replace(load, micro_batches_in_flight=one) for load, one in zip(loads, kept, strict=True))


def _traffic(x: LayoutColumns, job: Job, work: Work) -> PassTraffic:
    """Half of what a micro-batch spends on each axis, as much forward as backward."""
    return PassTraffic(
        tensor_s=work.tensor_s / 2,
        context_s=work.context_s / 2,
        expert_s=work.expert_s / 2,
        sent_s=x.virtual_stages_per_rank * send_between_stages_s(x, job),
    )


def _accumulation_s(x: LayoutColumns, job: Job, held: Weights, m: Integers) -> Floats:
    """Adding each micro-batch's gradients to the sum: the new one and the sum are read, the sum is written."""
    moved_bytes = (x.element_bytes + 2 * gradient_bytes(x, job)) * (held.dense + held.expert)
    seconds: Floats = (m - 1) * moved_bytes / stream_rate(job)
    return seconds
