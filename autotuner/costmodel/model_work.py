"""ModelWork: the work of a model's parts, timed once for each combination of choices that it depends on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Generic, TypeVar

from autotuner.costmodel.columns import Booleans, Integers, LayoutColumns
from autotuner.costmodel.compute import input_work, layer_work, output_work
from autotuner.costmodel.groups import pipeline_group
from autotuner.costmodel.passes import Passes
from autotuner.costmodel.pipeline import RankLoad
from autotuner.costmodel.work import Work
from autotuner.domain.legality import Job

__all__ = ["WORK_FIELDS", "ModelWork"]

WORK_FIELDS = (
    "tensor_parallel_degree",
    "context_parallel_degree",
    "expert_parallel_degree",
    "micro_batch_size",
    "sequence_parallel",
    "recompute",
    "attention_kernel",
    "precision",
    "fused_norm",
)
"""All that a layer's work depends on; a table of a million layouts has a few hundred combinations of them."""


Told = TypeVar("Told", Work, Passes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWork(Generic[Told]):
    """Work of one micro-batch by part of the model, one column per combination, and each layout's combination.

    It is told in full (``Work``), or as schedules see it (``Passes``).

    Attributes:
        parts: Dense layer, input, output, and sparse layer where the model has any.
        which: Of each layout, the column of the parts.
        job: The job.
    """

    parts: tuple[Told, ...]
    which: Integers
    job: Job

    @staticmethod
    def of(x: LayoutColumns, job: Job) -> ModelWork[Work]:
        """Time the parts for every combination in the table."""
        few, which = x.distinct(*WORK_FIELDS)
        parts = _parts(few, job, sends_cross=False)
        if job.stack.tensor_wait_s:  # layers depend on one thing more: whether pipeline sends cross nodes
            crosses = pipeline_group(x, job.cluster).crosses_nodes & (x.pipeline_parallel_degree > 1)
            slowed = _parts(few, job, sends_cross=True)
            parts = tuple(part.beside(slow) for part, slow in zip(parts, slowed, strict=True))
            which = which + len(few) * crosses
        return ModelWork(parts=parts, which=which, job=job)

    def passes(self: ModelWork[Work]) -> ModelWork[Passes]:
        """The same as schedules see it."""
        return ModelWork(parts=tuple(part.passes() for part in self.parts), which=self.which, job=self.job)

    def on(self, load: RankLoad) -> Told:
        """What a pipeline rank does of it for a micro-batch."""
        counts: tuple[Integers | Booleans, ...]
        counts = (load.num_dense_layers, load.has_input, load.has_output, load.num_sparse_layers)
        total = self.parts[0].take(self.which) * counts[0]
        for part, count in zip(self.parts[1:], counts[1:], strict=False):
            total = total + part.take(self.which) * count
        return total

    def whole(self) -> Told:
        """What all pipeline ranks together do of it for a micro-batch."""
        model = self.job.model
        counts = (model.num_layers - model.num_sparse_layers, 1, 1, model.num_sparse_layers)
        total: Told = reduce(add, (part * float(n) for part, n in zip(self.parts, counts, strict=False)))
        return total.take(self.which)


def _parts(few: LayoutColumns, job: Job, *, sends_cross: bool) -> tuple[Work, ...]:
    dense = layer_work(few, job, sparse=False, sends_cross=sends_cross)
    ends = input_work(few, job), output_work(few, job)
    if not job.model.num_sparse_layers:
        return (dense, *ends)
    return (dense, *ends, layer_work(few, job, sparse=True, sends_cross=sends_cross))
