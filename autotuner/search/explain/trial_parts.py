"""A trial's time and memory, part by part, with what was measured of each beside what was predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.measurement import Measurement
from autotuner.core.prediction import Memory, StepTime
from autotuner.core.rules.legality import require_legal
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import Trial
from autotuner.costmodel.details import overlapped_share, stage_memory
from autotuner.costmodel.predict import predict_one
from autotuner.search.explain.step_parts import StepParts, step_parts


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePeak:
    """A pipeline rank's memory.

    Attributes:
        stage: The pipeline rank, from 0; it may hold several stages.
        predicted: By part.
        predicted_bytes: Sum of the parts.
        measured_bytes: Highest peak among the ranks of the job that it stands for; None where they did not tell.
        rank: Which of them had it.
    """

    stage: int
    predicted: Memory
    predicted_bytes: float
    measured_bytes: int | None
    rank: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialParts:
    """Where a trial's time and memory go.

    Attributes:
        is_small: It is the trial on fewer ranks that stands for the layout of which this is told, not that layout.
        step: A step's parts: as predicted before the trial ran, and as measured.
        largest_loss: What of the step is no computation: sentences.
        stages: Memory by pipeline rank, as today's cost model predicts it.
        limit_bytes: What a rank may allocate.
        predicted_overlap: Share of the bytes of gradients whose reduction starts before the backward passes end, by
            prediction; None where one rank sees all tokens.
        measured_overlap: The same by hooks; None where none hears of it, as under FSDP, and where nothing was measured.
    """

    is_small: bool
    step: StepParts
    largest_loss: str
    stages: tuple[StagePeak, ...]
    limit_bytes: float
    predicted_overlap: float | None = None
    measured_overlap: float | None = None


def trial_parts(trial: Trial, request: SweepRequest) -> TrialParts:
    """The parts of what ran as the trial, or would have.

    Args:
        trial: It need not have run.
        request: Of its sweep.

    Raises:
        InvalidInput: A rule that is younger than the trial forbids its layout.
    """
    require_legal(trial.layout, request.legal_job)
    layout, job = trial.ran, request.trial_job if trial.scaled is None else request.job_of(trial.scaled)
    predicted = trial.prediction.step_time if trial.scaled is None else predict_one(layout, job).step_time
    step = _step(layout, job, predicted, trial.measurement)
    return TrialParts(
        is_small=trial.scaled is not None,
        step=step,
        largest_loss=(step if step.rank is not None else step_parts(layout, job, predicted)).largest_loss,
        stages=stage_peaks(layout, job, trial.measurement.peak_bytes if trial.measurement else ()),
        limit_bytes=float(job.cluster.accelerator.memory_bytes),
        predicted_overlap=overlapped_share(layout, job),
        measured_overlap=trial.measurement.overlapped_share if trial.measurement else None,
    )


def stage_peaks(layout: Layout, job: Job, peak_bytes: Sequence[int] = ()) -> tuple[StagePeak, ...]:
    """Memory of each pipeline rank beside the peaks that all ranks of the job told, if they did.

    The pipeline is the outermost axis of the ranks: those of one stage are neighbours.
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
                predicted_bytes=memory.total_bytes,
                measured_bytes=None if fullest is None else peak_bytes[fullest],
                rank=fullest,
            )
        )
    return tuple(peaks)


def _step(layout: Layout, job: Job, predicted: StepTime, measured: Measurement | None) -> StepParts:
    divided = (measured.breakdown or measured.phases) if measured else None
    return step_parts(layout, job, predicted, divided)
