"""StagePasses: passes of every stage of many layouts, where a step depends on which stage sits beside which link."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from autotuner.core.columns import Floats, Integers, LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.stages import stages_of_rank
from autotuner.costmodel.layer.model_work import ModelWork
from autotuner.costmodel.pipeline.passes import Passes
from autotuner.costmodel.pipeline.rank_load import stage_load


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePasses:
    """Seconds of one micro-batch's passes, of shape (layouts, stages)."""

    forward_s: Floats
    input_s: Floats
    weight_s: Floats

    @classmethod
    def of(
        cls, x: LayoutColumns, job: Job, passes: ModelWork[Passes], rows: Integers, rank_of: Integers
    ) -> StagePasses:
        """Of some layouts of a table, which have as many stages on as many ranks, dealt alike.

        Args:
            x: All layouts of the table.
            job: The job.
            passes: Of the whole table.
            rows: Which layouts.
            rank_of: The pipeline rank of each stage.
        """
        num_stages = len(rank_of)
        repeated = np.repeat(rows, num_stages)
        stage, rank = (np.tile(one, len(rows)) for one in (np.arange(num_stages), rank_of))
        load = stage_load(x.take(repeated), job, stage, rank)
        taken = replace(passes, which=passes.which[repeated]).on(load)
        shape = len(rows), num_stages
        return cls(
            forward_s=np.maximum(taken.forward_s, 0.0).reshape(shape),
            input_s=np.maximum(taken.input_s, 0.0).reshape(shape),
            weight_s=np.maximum(taken.weight_s, 0.0).reshape(shape),
        )

    def take(self, rows: Integers) -> StagePasses:
        """Some of the layouts."""
        return StagePasses(forward_s=self.forward_s[rows], input_s=self.input_s[rows], weight_s=self.weight_s[rows])

    def twice(self) -> StagePasses:
        """All layouts, and all once more behind them."""
        return StagePasses(
            forward_s=np.concatenate([self.forward_s] * 2),
            input_s=np.concatenate([self.input_s] * 2),
            weight_s=np.concatenate([self.weight_s] * 2),
        )


def rank_of_stages(layout: Layout) -> Integers:
    """The pipeline rank of each stage of a layout."""
    rank_of = np.empty(layout.num_stages, dtype=np.int64)
    for rank in range(layout.pipeline_parallel_degree):
        rank_of[list(stages_of_rank(layout, rank))] = rank
    return rank_of
