"""Explanations: which parts take the time and memory of a layout, which changes help, and what a trial measured."""

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
from autotuner.costmodel.shared.table import row
from autotuner.search.caveats import caveats
from autotuner.search.explain.communication import CrossedLink, NcclWays, Route, crossed_links, nccl_ways, routes
from autotuner.search.explain.step_parts import Limit, StepParts, limit_of, step_parts
from autotuner.search.explain.timeline import what_ran
from autotuner.search.space.moves import Alternative, BatchWay, batch_ways, neighbours

_NUM_CHANGES = 5
"""Maximum number of changes of one kind in an explanation. ``predict`` makes better tables of many layouts."""

_WORTHWHILE = 0.01
"""Smallest share of the step time for which a change is worth mentioning; the default of ``Budget.min_gain``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePart:
    """A part of the predicted step time, such as the optimizer, with the resource that limits how fast it can be."""

    part: str
    """Name of the part: a field of ``StepTime``."""
    seconds: float
    share: float
    """Share of the whole step time, 0..1."""
    limit: Limit
    """Resource that limits the part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPart:
    """A part of the predicted peak memory of a layout, such as its activations."""

    part: str
    """Name of the part: a field of ``Memory``."""
    num_bytes: float
    share: float
    """Share of the whole peak, 0..1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A layout that differs from the explained layout in one change and cannot run, with the first rule it breaks."""

    changes: tuple[FieldChange, ...]
    """Options that the change would set."""
    reason: Reason
    """First rule that the changed layout breaks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The parts of one layout's step time and memory, and similar layouts that may be better.

    Each similar layout differs from the explained layout in one change. Nothing here was measured.
    """

    model_size: ModelSize
    """Size of the model."""
    layout: Layout
    prediction: Prediction
    time: tuple[TimePart, ...]
    """Parts that take time, the longest first."""
    step: StepParts
    """Step time in the parts that a measurement can distinguish, in the order of a step."""
    memory: tuple[MemoryPart, ...]
    """Parts that take memory, the largest first."""
    stages: tuple[Memory, ...]
    """Memory of each pipeline rank. ``memory`` has the parts of the pipeline rank with the most memory."""
    limit_bytes: float
    """Bytes of memory that a rank may use."""
    margin_bytes: float
    """Memory limit minus the predicted peak; below 0 if the layout does not fit."""
    helpful: tuple[Alternative, ...]
    """Changes that fit in memory, lengthen the step by 1 % at most, and raise MFU x probability to fit by 1 % or more,
    the best first. If the layout itself does not fit: changes that make it fit."""
    too_large: tuple[Alternative, ...]
    """Changes that would help as much but do not fit in memory. The change that is nearest to fitting comes first."""
    illegal: tuple[Refusal, ...]
    """Changes that break a rule, so that they cannot run on this cluster."""
    caveats: tuple[Caveat, ...]
    """Caveats for the reader."""
    links: tuple[CrossedLink, ...] = ()
    """Degraded links of the cluster, and the groups of ranks that communicate over each of them."""
    batches: tuple[BatchWay, ...] = ()
    """Methods to assign and pack sequences of different lengths; empty if all sequences have the same length."""
    routes: tuple[Route, ...] = ()
    """Limiting links of the groups of each axis on a described network; empty without such a network."""
    nccl: tuple[NcclWays, ...] = ()
    """Algorithm and protocol that NCCL would choose by default in the groups of each axis; empty without NCCL."""

    @property
    @derived
    def label(self) -> str:
        """Name of the layout, such as ``tp2 pp4 1f1b mb1``: its degrees above 1 and its non-default options."""
        return str(self.layout)


def explain(layout: Layout, job: Job) -> Explanation:
    """Explain the predicted time and memory of a legal layout, and predict all layouts that differ in one change.

    Raises:
        InvalidInput: The layout breaks a rule. The error names the first broken rule.
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
    """Return the names, sizes and shares of all parts above zero, the largest first."""
    found = {f.name: getattr(whole, f.name) for f in fields(whole) if f.name.endswith(("_s", "_bytes"))}
    total = whole.total_s if isinstance(whole, StepTime) else whole.total_bytes
    return [(name, one, one / total) for name, one in sorted(found.items(), key=lambda part: -part[1]) if one > 0]


# ---------------------------------------------------------------- its neighbours
def _helpful(changes: Sequence[Alternative], own: Prediction) -> tuple[Alternative, ...]:
    """Return the changes that raise the expected MFU, the best first.

    A change raises it by a shorter step, or by a step of similar length that fits more surely.
    """
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
    """Peak memory of one pipeline rank: as predicted, and as measured if its ranks reported a peak."""

    stage: int
    """Number of the pipeline rank, from 0. It may hold several stages."""
    predicted: Memory
    """Predicted memory by part."""
    measured_bytes: int | None
    """Highest measured peak among the ranks with this pipeline rank; None if no rank reported one."""
    rank: int | None
    """Number of the rank with the highest peak."""

    @property
    @derived
    def predicted_bytes(self) -> float:
        """Predicted peak of the pipeline rank in bytes: the sum of its parts, such as weights and activations."""
        return self.predicted.total_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialParts:
    """The parts of a trial's step time and memory: as predicted, and as measured if the trial has measurements."""

    is_small: bool
    """True if the figures are those of a proxy trial on fewer ranks, and not those of the layout itself."""
    step: StepParts
    """Parts of a step, as predicted before the trial ran and as measured."""
    predicted_step: StepParts
    """Predicted parts in more detail than a measurement can distinguish."""
    stages: tuple[StagePeak, ...]
    """Memory by pipeline rank, as the present cost model predicts it."""
    limit_bytes: float
    """Bytes that a rank may allocate."""
    predicted_overlap: float | None = None
    """Predicted share of the gradient bytes whose reduction starts before the backward passes end; None if one rank
    sees all tokens."""
    measured_overlap: float | None = None
    """Measured share of the gradient bytes whose reduction starts before the backward passes end. Hooks measure it.
    None if there are no hooks, as under FSDP, or if nothing was measured."""


def trial_parts(trial: Trial, request: SweepRequest) -> TrialParts:
    """Return the parts of the time and memory of the layout that a trial ran, or would have run.

    A proxy trial runs a smaller layout on fewer ranks in place of the full-size layout. For a proxy trial, the result
    has the parts of the smaller layout.

    Raises:
        InvalidInput: The layout breaks a rule that was added after the trial.
    """
    layout, job = what_ran(trial, request)
    predicted = trial.prediction.step_time if trial.proxy is None else predict_one(layout, job).step_time
    found = trial.ran_measurement
    return TrialParts(
        is_small=trial.proxy is not None,
        step=step_parts(layout, job, predicted, (found.breakdown or found.phases) if found else None),
        predicted_step=step_parts(layout, job, predicted),
        stages=stage_peaks(layout, job, found.peak_bytes if found else ()),
        limit_bytes=float(job.cluster.accelerator.memory_bytes),
        predicted_overlap=overlapped_share(layout, job),
        measured_overlap=found.overlapped_share if found else None,
    )


def stage_peaks(layout: Layout, job: Job, peak_bytes: Sequence[int] = ()) -> tuple[StagePeak, ...]:
    """Return the predicted peak memory of each pipeline stage and, if known, the measured peak of its fullest rank.

    The pipeline is the outermost axis of the ranks: the ranks of one stage have consecutive numbers.

    Args:
        layout: The layout.
        job: The job.
        peak_bytes: Measured peak of each rank of the job. If a rank has no measurement, all measured peaks are left
            out.
    """
    by_stage = stage_memory(layout, job)
    num_each = layout.world_size // len(by_stage)
    are_measured = len(peak_bytes) == layout.world_size
    peaks = []
    for stage, memory in enumerate(by_stage):
        ranks = range(stage * num_each, (stage + 1) * num_each)
        fullest = max(ranks, key=lambda rank: peak_bytes[rank]) if are_measured else None
        peaks.append(
            StagePeak(
                stage=stage,
                predicted=memory,
                measured_bytes=None if fullest is None else peak_bytes[fullest],
                rank=fullest,
            )
        )
    return tuple(peaks)
