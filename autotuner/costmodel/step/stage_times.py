"""StageTimes: what a prediction is made of, stage by stage and rank by rank, for one layout."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from autotuner.core.choices import P2PTransport
from autotuner.core.columns import Floats, Integers, LayoutColumns
from autotuner.core.job import BF16_PARTS, Job
from autotuner.core.layout import Layout
from autotuner.core.stages import stages_of_rank
from autotuner.costmodel.kernels.memory_bound import optimizer_s
from autotuner.costmodel.layer.model_work import ModelWork, PartWorks
from autotuner.costmodel.layer.work import Work
from autotuner.costmodel.links.hops import Hops
from autotuner.costmodel.memory.sharding import owned_elements
from autotuner.costmodel.narrow import is_bf16_on_cores
from autotuner.costmodel.pipeline.rank_load import load_of_rank, num_micro_batches, stage_load
from autotuner.costmodel.step.data_parallel import data_communication_s
from autotuner.costmodel.step.rank_step import RankStep

_FACTORED = tuple(
    name for f in fields(Work) if (name := f.name) not in ("forward_s", "weight_gradient_s", "backward_s")
)
"""Parts of a micro-batch's work that make up its total."""

_PART_OF_STEP = {
    "tensor_s": "tensor_communication_s",
    "context_s": "context_communication_s",
    "expert_s": "expert_communication_s",
}
"""Fields of ``StepTime`` whose names differ from those of ``Work``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes:
    """Seconds of one micro-batch's passes by stage, and of what follows them by pipeline rank.

    Exposed collectives of tensor, context and expert groups are part of the passes, as is what is computed again.

    Attributes:
        forward_s: F of each stage.
        input_s: I of each stage.
        weight_s: W of each stage; a whole backward takes both.
        blocks_s: What each link between neighbouring stages holds up the rank that sends over it, either way.
        flies_s: How long what it sent then is under way beside computation.
        num_delegates: Processes per link and direction that carry sends in turn; 0: ranks send for themselves.
        sync_s: Exposed collectives of the data-parallel group in a step, by pipeline rank.
        optimizer_s: The update, by pipeline rank.
    """

    forward_s: tuple[float, ...]
    input_s: tuple[float, ...]
    weight_s: tuple[float, ...]
    blocks_s: tuple[float, ...]
    flies_s: tuple[float, ...]
    num_delegates: int
    sync_s: tuple[float, ...]
    optimizer_s: tuple[float, ...]


def stage_times(layout: Layout, job: Job) -> StageTimes:
    """What ``predict`` adds up, of a legal layout; a calibrated job's parts take as much longer here as there."""
    stages, ranks = layout.num_stages, layout.pipeline_parallel_degree
    x = LayoutColumns.from_layouts([layout] * stages)
    rank_of = np.empty(stages, dtype=np.int64)
    for rank in range(ranks):
        rank_of[list(stages_of_rank(layout, rank))] = rank
    part_works = PartWorks.of(x, job)
    works = ModelWork.of(x, job, part_works).on(stage_load(x, job, np.arange(stages), rank_of))
    passes = works.passes() * (_calibrated_s(x, works, job) / works.total_s)
    once = _Once.of(x.take(slice(0, ranks)), job, part_works.on(slice(0, ranks)))
    added_s = once.accumulation_s[rank_of] / layout.virtual_stages_per_rank
    blocks_s, flies_s = _links(layout, job, x, rank_of)
    return StageTimes(
        forward_s=_told(passes.forward_s),
        input_s=_told(passes.input_s),
        weight_s=_told(passes.weight_s + added_s),
        blocks_s=blocks_s,
        flies_s=flies_s,
        num_delegates=layout.num_delegates if layout.p2p_transport == P2PTransport.DELEGATED else 0,
        sync_s=_told(once.sync_s),
        optimizer_s=_told(once.optimizer_s),
    )


def _links(
    layout: Layout, job: Job, x: LayoutColumns, rank_of: Integers
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """What holds the sending rank, and what flies, over each link between stages; nothing within one rank."""
    if layout.pipeline_parallel_degree == 1:
        return (0.0,) * (layout.num_stages - 1), (0.0,) * (layout.num_stages - 1)
    hops, factor = Hops.of(x.take(slice(0, 1)), job), _factor(job, "pipeline_communication_s")
    blocks_s, flies_s = factor * hops.blocks_s[0], factor * (hops.flies_s + hops.receives_s)[0]
    one, other = rank_of[:-1], rank_of[1:]
    hop = np.where(abs(one - other) == 1, np.minimum(one, other), layout.pipeline_parallel_degree - 1)
    apart = one != other
    return _told(blocks_s[hop] * apart), _told(flies_s[hop] * apart)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Once:
    """What each pipeline rank does beside its passes.

    Attributes:
        accumulation_s: Adding gradients, per micro-batch.
    """

    accumulation_s: Floats
    sync_s: Floats
    optimizer_s: Floats

    @classmethod
    def of(cls, x: LayoutColumns, job: Job, works: PartWorks) -> _Once:
        """One row per pipeline rank of one layout."""
        m = num_micro_batches(x, job)
        load = load_of_rank(x, job, np.arange(len(x)))
        step = RankStep.of(x, job, (load,), works)
        added_s = step.step_time.pointwise_s - m * ModelWork.of(x, job, works).on(load).pointwise_s
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


def _told(seconds: Floats) -> tuple[float, ...]:
    return tuple(float(one) for one in np.maximum(seconds, 0.0))
