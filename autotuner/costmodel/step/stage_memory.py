"""Memory of every pipeline rank of one layout, where a prediction knows the fullest alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np

from autotuner.core.choices import PipelineSchedule
from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.prediction import Memory
from autotuner.costmodel.layer.model_work import PartWorks
from autotuner.costmodel.memory.peak import MemoryColumns, fullest_rank, rank_memories
from autotuner.costmodel.pipeline.rank_load import RankLoad, critical_ranks, load_of_rank
from autotuner.costmodel.step.rank_step import RankStep


def stage_memory(layout: Layout, job: Job) -> tuple[Memory, ...]:
    """Peak bytes by part of each pipeline rank, in their order; the highest is that of the layout's prediction.

    A rank that holds several stages has the memory of all of them, and its number stands in ``worst_stage``.

    Args:
        layout: Legal for the job.
        job: The job.
    """
    x = LayoutColumns.from_layouts([layout] * layout.pipeline_parallel_degree)
    loads: Sequence[RankLoad] = [load_of_rank(x, job, np.arange(len(x)))]
    if layout.pipeline_schedule == PipelineSchedule.ADAPTIVE:
        loads = RankStep.of(x, job, critical_ranks(x, job), PartWorks.of(x, job)).keeping(loads)
    sizes = fullest_rank(x, job, rank_memories(x, job, loads))
    return tuple(_row(sizes, rank) for rank in range(len(x)))


def _row(sizes: MemoryColumns, rank: int) -> Memory:
    parts = {f.name: float(getattr(sizes, f.name)[rank]) for f in fields(Memory) if f.name != "worst_stage"}
    return Memory(worst_stage=rank, **parts)
