"""Explanations: what takes the time and memory of a layout, which step away would help, what a trial measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from autotuner.core.caveat import Caveat
from autotuner.core.columns import LayoutColumns
from autotuner.core.field_change import FieldChange, difference
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.model import ModelSize
from autotuner.core.prediction import Memory, Prediction, StepTime
from autotuner.core.rules.legality import reasons, require_legal
from autotuner.core.rules.rule import Reason
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import Trial
from autotuner.core.value import derived
from autotuner.costmodel.details import overlapped_share, stage_memory
from autotuner.costmodel.predict import predict, predict_one
from autotuner.costmodel.table import row
from autotuner.search.caveats import caveats
from autotuner.search.explain.communication import CrossedLink, NcclWays, Route, crossed_links, nccl_ways, routes
from autotuner.search.explain.step_parts import Limit, StepParts, limit_of, step_parts
from autotuner.search.explain.timeline import what_ran
from autotuner.search.space.moves import Alternative, BatchWay, batch_ways, neighbours

_NUM_CHANGES = 5
"""Changes of one kind that are told; more are a table, and ``predict`` makes better tables."""

_WORTHWHILE = 0.01
"""Share of the step below which a change is not worth saying; the default of ``Budget.min_gain``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePart:
    """A part of the step time, with the resource that limits it."""

    part: str
    """The field of ``StepTime``."""
    seconds: float
    share: float
    """Fraction of the whole step, 0..1."""
    limit: Limit
    """Limit of the part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPart:
    """A part of the peak memory of a layout."""

    part: str
    """The field of ``Memory``."""
    num_bytes: float
    share: float
    """Fraction of the whole peak, 0..1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A layout one step away that cannot run, with the first rule that it breaks."""

    changes: tuple[FieldChange, ...]
    """Options that would differ."""
    reason: Reason
    """The first rule it breaks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The parts of one layout's time and memory, and layouts one step away that may be better.

    Nothing here was measured.
    """

    model_size: ModelSize
    """Size of the model."""
    layout: Layout
    prediction: Prediction
    time: tuple[TimePart, ...]
    """Parts that take time, longest first."""
    step: StepParts
    """Step time in the parts that measurements distinguish, in the order of a step."""
    memory: tuple[MemoryPart, ...]
    """Parts that take memory, largest first."""
    stages: tuple[Memory, ...]
    """Memory of each pipeline rank; ``memory`` is that of the fullest."""
    limit_bytes: float
    """Memory of a rank in bytes."""
    margin_bytes: float
    """The limit less the predicted peak; below 0 where it does not fit."""
    helpful: tuple[Alternative, ...]
    """Changes that fit, lengthen the step by 1 % at most and raise MFU x probability to fit by 1 % or more, the most
    first; where the layout itself does not fit, those that do."""
    too_large: tuple[Alternative, ...]
    """Changes that would save as much and do not fit, the nearest to fitting first."""
    illegal: tuple[Refusal, ...]
    """Changes that no cluster of this shape or model can run."""
    caveats: tuple[Caveat, ...]
    """Caveats for the reader."""
    links: tuple[CrossedLink, ...] = ()
    """Links of the cluster that are not healthy, and which groups reach over them."""
    batches: tuple[BatchWay, ...] = ()
    """Ways to deal and pack sequences that differ in length; none where all are as long."""
    routes: tuple[Route, ...] = ()
    """Links that limit the groups of each axis on a described network; empty without one."""
    nccl: tuple[NcclWays, ...] = ()
    """Algorithm and protocol that NCCL would choose by itself among the ranks of each axis; empty without NCCL."""

    @property
    @derived
    def label(self) -> str:
        """Short text of the layout, such as ``tp2 pp4 1f1b mb1``."""
        return str(self.layout)


def explain(layout: Layout, job: Job) -> Explanation:
    """Explain the predicted time and memory of a legal layout, and predict all layouts one step away from it.

    Raises:
        InvalidInput: The layout breaks a rule; the error names the first.
    """
    require_legal(layout, job)
    candidates = neighbours(layout, job)
    broken = {candidate: reasons(candidate, job) for candidate in candidates}
    legal = [candidate for candidate in candidates if not broken[candidate]]
    table = predict(LayoutColumns.from_layouts([layout, *legal]), job)
    own, *others = (row(table, index) for index in range(1 + len(legal)))
    limit_bytes = float(job.cluster.accelerator.memory_bytes)
    each = zip(legal, others, strict=True)
    changes = [Alternative.of(after, then, job, before=layout, own=own) for after, then in each]
    return Explanation(
        model_size=ModelSize.of(job.model),
        layout=layout,
        prediction=own,
        time=tuple(
            TimePart(part=name, seconds=seconds, share=share, limit=limit_of(name, layout, job))
            for name, seconds, share in _parts(own.step_time)
        ),
        step=step_parts(layout, job, own.step_time),
        memory=tuple(
            MemoryPart(part=name, num_bytes=num_bytes, share=share) for name, num_bytes, share in _parts(own.memory)
        ),
        stages=stage_memory(layout, job),
        limit_bytes=limit_bytes,
        margin_bytes=limit_bytes - own.memory.total_bytes,
        helpful=_helpful(changes, own),
        too_large=_too_large(changes),
        illegal=tuple(
            Refusal(changes=difference(layout, after), reason=why[0]) for after, why in broken.items() if why
        )[:_NUM_CHANGES],
        caveats=caveats(job, LayoutColumns.from_layouts([layout])),
        links=crossed_links(layout, job),
        batches=batch_ways(layout, job),
        routes=routes(layout, job),
        nccl=nccl_ways(layout, job),
    )


def _parts(whole: StepTime | Memory) -> list[tuple[str, float, float]]:
    """Names and sizes of the parts that take any, the largest first, with their shares of the sum."""
    found = {f.name: getattr(whole, f.name) for f in fields(whole) if f.name.endswith(("_s", "_bytes"))}
    total = whole.total_s if isinstance(whole, StepTime) else whole.total_bytes
    return [(name, one, one / total) for name, one in sorted(found.items(), key=lambda part: -part[1]) if one > 0]


# ---------------------------------------------------------------- its neighbours
def _helpful(changes: Sequence[Alternative], own: Prediction) -> tuple[Alternative, ...]:
    """Those that raise the expected MFU, the most first: a shorter step, or one about as long that fits more surely."""
    least_mfu = (1 + _WORTHWHILE) * own.expected_mfu if own.fits else 0.0
    least_saved = -_WORTHWHILE if own.fits else float("-inf")
    found = [c for c in changes if c.prediction.fits and c.saved_share >= least_saved]
    found = [c for c in found if c.prediction.expected_mfu >= least_mfu]
    return tuple(sorted(found, key=lambda c: -c.prediction.expected_mfu)[:_NUM_CHANGES])


def _too_large(changes: Sequence[Alternative]) -> tuple[Alternative, ...]:
    found = [c for c in changes if not c.prediction.fits and c.saved_share >= _WORTHWHILE]
    return tuple(sorted(found, key=lambda c: c.excess_bytes)[:_NUM_CHANGES])


# ---------------------------------------------------------------- a trial's parts, with what was measured of each
@dataclass(frozen=True, slots=True, kw_only=True)
class StagePeak:
    """Peak memory of one pipeline rank, predicted and, if known, measured."""

    stage: int
    """The pipeline rank, from 0; it may hold several stages."""
    predicted: Memory
    """Predicted memory by part."""
    measured_bytes: int | None
    """Highest peak among the ranks of the job that it stands for; None where they did not tell."""
    rank: int | None
    """Rank with the highest peak."""

    @property
    @derived
    def predicted_bytes(self) -> float:
        """Predicted peak in bytes: the sum of its parts."""
        return self.predicted.total_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialParts:
    """The parts of a trial's step time and memory, predicted and, if known, measured."""

    is_small: bool
    """It is the trial on fewer ranks that stands for the layout of which this is told, not that layout."""
    step: StepParts
    """A step's parts: as predicted before the trial ran, and as measured."""
    predicted_step: StepParts
    """Predicted parts, of which there are more than a measurement can distinguish."""
    stages: tuple[StagePeak, ...]
    """Memory by pipeline rank, as today's cost model predicts it."""
    limit_bytes: float
    """Bytes that a rank may allocate."""
    predicted_overlap: float | None = None
    """Share of the bytes of gradients whose reduction starts before the backward passes end, by prediction; None where
    one rank sees all tokens."""
    measured_overlap: float | None = None
    """Overlap measured by hooks; None if there are none, as under FSDP, or if nothing was measured."""


def trial_parts(trial: Trial, request: SweepRequest) -> TrialParts:
    """Return the parts of the time and memory of the layout that a trial ran, or would have run.

    A trial on fewer ranks (proxy trial) runs a smaller layout than the one that it stands for; the parts are those of
    the smaller one.

    Raises:
        InvalidInput: The layout breaks a rule that was added after the trial.
    """
    layout, job = what_ran(trial, request)
    predicted = trial.prediction.step_time if trial.scaled is None else predict_one(layout, job).step_time
    found = trial.ran_measurement
    return TrialParts(
        is_small=trial.scaled is not None,
        step=step_parts(layout, job, predicted, (found.breakdown or found.phases) if found else None),
        predicted_step=step_parts(layout, job, predicted),
        stages=stage_peaks(layout, job, found.peak_bytes if found else ()),
        limit_bytes=float(job.cluster.accelerator.memory_bytes),
        predicted_overlap=overlapped_share(layout, job),
        measured_overlap=found.overlapped_share if found else None,
    )


def stage_peaks(layout: Layout, job: Job, peak_bytes: Sequence[int] = ()) -> tuple[StagePeak, ...]:
    """Return the predicted peak memory of each pipeline rank, with the highest measured peak among its ranks.

    The pipeline is the outermost axis of the ranks: the ranks of one stage have consecutive numbers.

    Args:
        layout: The layout.
        job: The job.
        peak_bytes: Measured peak of each rank of the job; measured peaks are left out unless all ranks have one.
    """
    by_stage = stage_memory(layout, job)
    num_each = layout.world_size // len(by_stage)
    told = len(peak_bytes) == layout.world_size
    peaks = []
    for stage, memory in enumerate(by_stage):
        ranks = range(stage * num_each, (stage + 1) * num_each)
        fullest = max(ranks, key=lambda rank: peak_bytes[rank]) if told else None
        peaks.append(
            StagePeak(
                stage=stage,
                predicted=memory,
                measured_bytes=None if fullest is None else peak_bytes[fullest],
                rank=fullest,
            )
        )
    return tuple(peaks)
