"""ModelWork: the work of a model's parts, timed once for each combination of choices that it depends on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

from autotuner.costmodel import collectives
from autotuner.costmodel.columns import Booleans, Integers, LayoutColumns
from autotuner.costmodel.compute import input_work, layer_work, output_work
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWork:
    """Work of one micro-batch by part of the model, one column per combination, and each layout's combination.

    Attributes:
        parts: Dense layer, input, output, and sparse layer where the model has any.
        which: Of each layout, the column of the parts.
        job: The job.
    """

    parts: tuple[Work, ...]
    which: Integers
    job: Job

    @classmethod
    def of(cls, x: LayoutColumns, job: Job) -> ModelWork:
        """Time the parts for every combination in the table."""
        few, which = x.distinct(*WORK_FIELDS)
        parts = _parts(few, job, sends_cross=False)
        if job.stack.tensor_wait_s:  # layers depend on one thing more: whether pipeline sends cross nodes
            crosses = collectives.pipeline_group(x, job.cluster).crosses_nodes & (x.pipeline_parallel_degree > 1)
            slowed = _parts(few, job, sends_cross=True)
            parts = tuple(part.beside(slow) for part, slow in zip(parts, slowed, strict=True))
            which = which + len(few) * crosses
        return cls(parts=parts, which=which, job=job)

    def passes(self) -> ModelWork:
        """The same in three rows: forward, input gradients, weight gradients, with their collectives."""
        return replace(self, parts=tuple(part.passes() for part in self.parts))

    def on(self, load: RankLoad) -> Work:
        """What a pipeline rank does of it for a micro-batch."""
        counts: tuple[Integers | Booleans, ...]
        counts = (load.num_dense_layers, load.has_input, load.has_output, load.num_sparse_layers)
        total = self.parts[0].take(self.which) * counts[0]
        for part, count in zip(self.parts[1:], counts[1:], strict=False):
            total = total + part.take(self.which) * count
        return total

    def whole(self) -> Work:
        """What all pipeline ranks together do of it for a micro-batch."""
        model = self.job.model
        counts = (model.num_layers - model.num_sparse_layers, 1, 1, model.num_sparse_layers)
        total = reduce(Work.__add__, (part * float(n) for part, n in zip(self.parts, counts, strict=False)))
        return total.take(self.which)


def _parts(few: LayoutColumns, job: Job, *, sends_cross: bool) -> tuple[Work, ...]:
    dense = layer_work(few, job, sparse=False, sends_cross=sends_cross)
    ends = input_work(few, job), output_work(few, job)
    if not job.model.num_sparse_layers:
        return (dense, *ends)
    return (dense, *ends, layer_work(few, job, sparse=True, sends_cross=sends_cross))
