"""The work of a model's parts, timed once for each combination of choices that it depends on, and of its ranks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Generic, TypeVar

import numpy as np

from autotuner.core.choices import Recompute
from autotuner.core.columns import Booleans, Integers, LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import options_entering
from autotuner.core.option import CostPart
from autotuner.costmodel.communication.layout_groups import pipeline_group
from autotuner.costmodel.layer.layer_time import input_work, layer_work, output_work
from autotuner.costmodel.layer.work import Passes, Work
from autotuner.costmodel.sequences import with_dealing
from autotuner.costmodel.stages import LayerCounts, RankLoad, model_layers_not_recomputed
from autotuner.costmodel.table import beside, taken

WORK_FIELDS = options_entering(CostPart.LAYER)
"""All that a layer's work depends on; a table of a million layouts has a few hundred combinations of them."""


Times = TypeVar("Times", Work, Passes)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartWorks:
    """Work of one micro-batch by part of the model, one column per combination of ``WORK_FIELDS`` in a table."""

    parts: tuple[Work, ...]
    """Dense layer, input, output, and sparse layer where the model has any. Where layers depend on whether pipeline
    sends cross nodes, all combinations come a second time, with sends that do."""
    changes: tuple[Work, ...]
    """What a layer's work changes by when it does not recompute, dense and sparse; empty where all layers of every
    layout do."""
    num_combinations: int
    """How many there are."""
    which: Integers
    """The combination of each layout."""

    @classmethod
    def of(cls, x: LayoutColumns, job: Job) -> PartWorks:
        """Time the parts for every combination in the table."""
        few, which = x.distinct(*with_dealing(WORK_FIELDS, job))
        skips_some = bool((x.recompute_every > 1).any())
        parts, changes = _parts(few, job, skips_some=skips_some, sends_cross=False)
        if job.stack.tensor_wait_s:
            slowed_parts, slowed_changes = _parts(few, job, skips_some=skips_some, sends_cross=True)
            parts, changes = tuple(map(beside, parts, slowed_parts)), tuple(map(beside, changes, slowed_changes))
        return cls(parts=parts, changes=changes, num_combinations=len(few), which=which)

    def on(self, rows: slice) -> PartWorks:
        """The works of some of the table's layouts."""
        return replace(self, which=self.which[rows])

    def told_apart_by(self, num_rows: int, row_of: Integers) -> PartWorks:
        """The works of a shorter table, from the row in it that each layout has; those of one row agree."""
        which = np.empty(num_rows, dtype=np.int64)
        which[row_of] = self.which
        return replace(self, which=which)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWork(Generic[Times]):
    """Work of one micro-batch by part of the model, one column per combination, and each layout's combination.

    Either in full (``Work``), or as schedules see it (``Passes``).
    """

    parts: tuple[Times, ...]
    """As in ``PartWorks``."""
    changes: tuple[Times, ...]
    """As in ``PartWorks``."""
    which: Integers
    """The column of the parts that belongs to each layout."""
    not_recomputed: LayerCounts
    """Layers of the whole model that do not recompute although the layout does."""
    job: Job
    """The job."""

    @staticmethod
    def of(x: LayoutColumns, job: Job, works: PartWorks) -> ModelWork[Work]:
        """One row per layout, from the works of its parts."""
        which = works.which
        if job.stack.tensor_wait_s:  # layers depend on one thing more: whether pipeline sends cross nodes
            crosses = pipeline_group(x, job.cluster).crosses_nodes & (x.pipeline_parallel_degree > 1)
            which = which + works.num_combinations * crosses
        not_recomputed = (
            model_layers_not_recomputed(x, job)
            if (x.recompute_every > 1).any()
            else LayerCounts(np.zeros_like(which), np.zeros_like(which))
        )
        return ModelWork(parts=works.parts, changes=works.changes, which=which, not_recomputed=not_recomputed, job=job)

    def passes(self: ModelWork[Work]) -> ModelWork[Passes]:
        """Passes in the place of works: what schedules see of them."""
        parts, changes = (tuple(work.passes() for work in works) for works in (self.parts, self.changes))
        return ModelWork(
            parts=parts, changes=changes, which=self.which, not_recomputed=self.not_recomputed, job=self.job
        )

    def on(self, load: RankLoad) -> Times:
        """What a pipeline rank does of it for a micro-batch."""
        counts: tuple[Integers | Booleans, ...]
        counts = (load.num_dense_layers, load.has_input, load.has_output, load.num_sparse_layers)
        total = taken(self.parts[0], self.which) * counts[0]
        for part, count in zip(self.parts[1:], counts[1:], strict=False):
            total = total + taken(part, self.which) * count
        return self._changed(total, LayerCounts(load.num_dense_not_recomputed, load.num_sparse_not_recomputed))

    def whole(self) -> Times:
        """What all pipeline ranks together do of it for a micro-batch."""
        model = self.job.model
        counts = (model.num_layers - model.num_sparse_layers, 1, 1, model.num_sparse_layers)
        total: Times = reduce(add, (part * float(n) for part, n in zip(self.parts, counts, strict=False)))
        return self._changed(taken(total, self.which), self.not_recomputed)

    def _changed(self, total: Times, not_recomputed: LayerCounts) -> Times:
        for change, count in zip(self.changes, not_recomputed, strict=False):
            total = total + taken(change, self.which) * count
        return total


def _parts(
    few: LayoutColumns, job: Job, *, skips_some: bool, sends_cross: bool
) -> tuple[tuple[Work, ...], tuple[Work, ...]]:
    kinds = (False, True) if job.model.num_sparse_layers else (False,)
    dense, *sparse = layers = [layer_work(few, job, sparse=kind, sends_cross=sends_cross) for kind in kinds]
    parts = (dense, input_work(few, job), output_work(few, job), *sparse)
    if not skips_some:
        return parts, ()
    plain = few.only(*with_dealing(WORK_FIELDS, job), recompute=np.full_like(few.recompute, Recompute.NONE))
    lighter = [layer_work(plain, job, sparse=kind, sends_cross=sends_cross) for kind in kinds]
    return parts, tuple(light - layer for light, layer in zip(lighter, layers, strict=True))
