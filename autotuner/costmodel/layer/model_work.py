"""Work of a model's parts and of pipeline ranks, computed once for each combination of the options that matter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Generic, TypeVar, cast

import numpy as np

from autotuner.core.choices import Recompute
from autotuner.core.columns import Integers, LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import options_entering
from autotuner.core.option import CostPart
from autotuner.costmodel.communication.layout_groups import pipeline_group
from autotuner.costmodel.layer.layer_time import input_work, layer_work, output_work
from autotuner.costmodel.layer.work import Passes, Work
from autotuner.costmodel.shared.sequences import with_batch_fields
from autotuner.costmodel.shared.stages import Counts, PartKind, RankLoad, model_layers_not_recomputed
from autotuner.costmodel.shared.table import beside, taken

LAYER_FIELDS = options_entering(CostPart.LAYER)
"""Options that a layer's work depends on. A table of a million layouts has only a few hundred combinations of their
values."""


Times = TypeVar("Times", Work, Passes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWork(Generic[Times]):
    """The time of one micro-batch in each part of the model: in detail (``Work``), or by pass (``Passes``).

    The time of a part depends only on the options in ``LAYER_FIELDS``. Each column of a part therefore has one row per
    combination of these options, not one per layout. If the time also depends on whether pipeline sends cross nodes,
    the column has every combination twice: first without such sends, then with them.
    """

    job: Job
    parts: Mapping[PartKind, Times]
    """Work of one part of each kind that the model has."""
    changes: Mapping[PartKind, Times]
    """Difference in a layer's work if the layer does not recompute; empty if all layers of every layout do."""
    num_combinations: int
    which: Integers
    """Index of each layout's combination of options; after ``for_layouts``, the index of its column."""
    not_recomputed: Counts = field(default_factory=dict)
    """Number of the model's layers that do not recompute although the layout recomputes; filled by ``for_layouts``."""

    @staticmethod
    def of(x: LayoutColumns, job: Job) -> ModelWork[Work]:
        """Return the time of each part of the model, for every combination of options in the table of layouts."""
        few, which = x.distinct(*with_batch_fields(LAYER_FIELDS, job))
        skips_some = bool((x.recompute_every > 1).any())
        parts, changes = _parts(few, job, skips_some=skips_some, sends_cross=False)
        if job.stack.tensor_wait_s:
            slowed = _parts(few, job, skips_some=skips_some, sends_cross=True)
            parts, changes = beside(parts, slowed[0]), beside(changes, slowed[1])
        return ModelWork(job=job, parts=parts, changes=changes, num_combinations=len(few), which=which)

    def rows(self, rows: slice) -> ModelWork[Times]:
        """Return the work of only some layouts: those in the given rows of the table. No time is computed again."""
        return replace(self, which=self.which[rows])

    def for_layouts(self, x: LayoutColumns, row_of: Integers | None = None) -> ModelWork[Times]:
        """Return the same work, arranged with one row for each of the given layouts, as ``on`` and ``whole`` need it.

        It finds, for each layout, the row with the layout's combination of options and the layers that it does not
        recompute.

        Args:
            x: The table that the work was computed for, or a shorter table with only distinct rows.
            row_of: For each layout of the original table, its row in the shorter table. Layouts with the same row must
                have the same work. None: ``x`` is the original table.
        """
        which = self.which
        if row_of is not None:
            which = np.empty(len(x), dtype=np.int64)
            which[row_of] = self.which
        if self.job.stack.tensor_wait_s:  # layers also depend on whether pipeline sends cross nodes
            crosses = pipeline_group(x, self.job.cluster).crosses_nodes & (x.pipeline_parallel_degree > 1)
            which = which + self.num_combinations * crosses
        return replace(self, which=which, not_recomputed=model_layers_not_recomputed(x, self.job))

    def passes(self: ModelWork[Work]) -> ModelWork[Passes]:
        """Return the same work, reduced to the seconds of forward, input-gradient and weight-gradient passes."""
        parts, changes = ({kind: work.passes() for kind, work in works.items()} for works in (self.parts, self.changes))
        return replace(cast("ModelWork[Passes]", self), parts=parts, changes=changes)

    def on(self, load: RankLoad) -> Times:
        """Return the time that one micro-batch spends on one pipeline rank of each layout, over all its stages.

        Args:
            load: Layers and other parts of the model on this pipeline rank.
        """
        works = (taken(part, self.which) * load.counts[kind] for kind, part in self.parts.items())
        return self._changed(reduce(add, works), load.not_recomputed)

    def whole(self) -> Times:
        """Return the time that one micro-batch spends in the whole model, summed over all pipeline ranks."""
        model = self.job.model
        counts = {PartKind.DENSE: model.num_layers - model.num_sparse_layers, PartKind.SPARSE: model.num_sparse_layers}
        works = (part * float(counts.get(kind, 1)) for kind, part in self.parts.items())
        return self._changed(taken(reduce(add, works), self.which), self.not_recomputed)

    def _changed(self, total: Times, not_recomputed: Counts) -> Times:
        for kind, change in self.changes.items():
            total = total + taken(change, self.which) * not_recomputed[kind]
        return total


def _parts(
    few: LayoutColumns, job: Job, *, skips_some: bool, sends_cross: bool
) -> tuple[Mapping[PartKind, Work], Mapping[PartKind, Work]]:
    """Return the work of one part of each kind, and its difference in layers that do not recompute."""

    def layer(x: LayoutColumns, kind: PartKind) -> Work:
        return layer_work(x, job, sparse=kind is PartKind.SPARSE, sends_cross=sends_cross)

    parts = {kind: layer(few, kind) if kind.is_layer else _ENDS[kind](few, job) for kind in PartKind.of(job.model)}
    if not skips_some:
        return parts, {}
    plain = few.only(*with_batch_fields(LAYER_FIELDS, job), recompute=np.full_like(few.recompute, Recompute.NONE))
    return parts, {kind: layer(plain, kind) - part for kind, part in parts.items() if kind.is_layer}


_ENDS: Mapping[PartKind, Callable[[LayoutColumns, Job], Work]] = {
    PartKind.INPUT: input_work,
    PartKind.OUTPUT: output_work,
}
