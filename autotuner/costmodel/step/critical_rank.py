"""RankTime: what the slowest pipeline rank does in a step, and how long it waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotuner.core.columns import Floats, Integers, LayoutColumns
from autotuner.core.job import Job
from autotuner.costmodel.communication.collectives import send_s
from autotuner.costmodel.communication.process_groups import pipeline_group
from autotuner.costmodel.layer.model_work import ModelWork
from autotuner.costmodel.links.link_times import LinkTimes, link_times
from autotuner.costmodel.micro_batch import hidden_bytes, hidden_split
from autotuner.costmodel.pipeline.bubble import rank_bubble_s
from autotuner.costmodel.pipeline.passes import Passes
from autotuner.costmodel.pipeline.rank_load import RankLoad, num_micro_batches


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTime:
    """A pipeline rank in a step.

    Attributes:
        bubble_s: Its waiting for the other ranks' passes.
        sends_s: Its sending, and its waiting for sends.
        total_s: Its micro-batches, bubble and sends.
        planned_in_flight: Micro-batches that a planned pipeline keeps at most; 0 where none is planned, None where no
            layout has a plan.
    """

    load: RankLoad
    bubble_s: Floats
    sends_s: Floats
    total_s: Floats
    planned_in_flight: Floats | None = None

    def where_slower(self, other: RankTime) -> RankTime:
        """The slower of both, layout by layout."""
        slower = other.total_s > self.total_s
        if not slower.any():
            return self
        return RankTime(
            load=other.load.where(slower, self.load),
            bubble_s=np.where(slower, other.bubble_s, self.bubble_s),
            sends_s=np.where(slower, other.sends_s, self.sends_s),
            total_s=np.maximum(other.total_s, self.total_s),
        )


def slowest_rank(x: LayoutColumns, job: Job, passes: ModelWork[Passes], loads: Sequence[RankLoad]) -> RankTime:
    """The rank that a step waits for, found among some of each layout."""
    m, stage_send_s = num_micro_batches(x, job), send_between_stages_s(x, job)
    whole = passes.whole()
    first, *others = (_on(x, job, load, passes.on(load), whole, m, stage_send_s) for load in loads)
    for other in others:
        first = first.where_slower(other)
    unequal = link_times(x, job, passes)
    return first if unequal is None else _on_links(first, unequal)


def _on_links(time: RankTime, links: LinkTimes) -> RankTime:
    """The slowest rank where links are not alike, or the schedule is planned; what that adds counts as sends."""
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


def _on(
    x: LayoutColumns, job: Job, load: RankLoad, own: Passes, whole: Passes, m: Integers, stage_send_s: Floats
) -> RankTime:
    """One rank beside all others; sends overlap with computation, or stand in its way where the stack lets them."""
    others, nothing = whole - own, np.zeros(len(x))
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
    """Hidden states of one micro-batch from one stage to the next."""
    wait_s = job.stack.send_wait_s * (x.pipeline_parallel_degree > 1)
    return send_s(hidden_bytes(x, job) / hidden_split(x), pipeline_group(x, job.cluster)) + wait_s
