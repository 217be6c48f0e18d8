"""Calibration by stored trials: learns correction factors for new jobs, and how wide their intervals must be."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TypeAlias

import numpy as np

from autotuner.core.columns import Floats, Integers
from autotuner.core.job import Calibration, Job, PartFactor
from autotuner.core.layout import Layout
from autotuner.core.trial import PastTrial
from autotuner.core.value import derived
from autotuner.costmodel.uncertainty import Z80
from autotuner.search.sampler.factors import FACTORS, Factors, TimedRuns, factor_deviations
from autotuner.search.sampler.gaussian_model import TIME_TRANSFER, TaskSimilarity


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """The hardware and software on which trials ran: accelerator, links, software stack and trainer."""

    accelerator: str
    """Name of the device."""
    intra_node_link: str
    """Name of the link within a node."""
    inter_node_link: str
    """Name of the link between nodes, also of a cluster of one node."""
    stack: str
    """Name of the software that predictions are for."""
    trainer: str | None = None
    """Name of the registered trainer; None: the product's own decoder."""

    @classmethod
    def of(cls, job: Job, trainer: str | None = None) -> Platform:
        """Return the platform of a job: its accelerator, links, software stack and trainer.

        Args:
            job: The job.
            trainer: Name of the registered trainer that runs it; None: the product's own training code.
        """
        cluster = job.cluster
        return cls(
            accelerator=cluster.accelerator.name,
            intra_node_link=cluster.intra_node_link.name,
            inter_node_link=cluster.inter_node_link.name,
            stack=job.stack.name,
            trainer=trainer,
        )

    def differences(self, other: Platform) -> int:
        """Return in how many of three things two platforms differ: accelerator, links, and software (0 to 3)."""
        links = (self.intra_node_link, self.inter_node_link) != (other.intra_node_link, other.inter_node_link)
        software = (self.stack, self.trainer) != (other.stack, other.trainer)
        return (self.accelerator != other.accelerator) + links + software


_CLAIM = 4.0
"""Number of jobs that the intervals' prior width counts for. With fewer jobs, stored trials change the width only a
little."""

_LEAST = 0.7
"""Smallest factor on the width of intervals. Even good predictions for past jobs may be worse for the next one."""


def interval_scale(errors: Floats, deviations: Floats, jobs: Integers) -> float:
    """Return the factor by which standard deviations must grow so that 80 % intervals contain 80 % of the errors.

    Use it to widen prediction intervals that were too narrow. Runs of one job have similar errors. Therefore n runs of
    a job weigh as much as sqrt(n) independent runs. The factor is at least 0.7. If there are few jobs, it is moved
    towards 1.

    Args:
        errors: Errors of the logarithms of predicted times, one per run. The prediction of a run was made without runs
            of the same job.
        deviations: Standard deviation that the prediction of each run claimed.
        jobs: Number of the job of each run.
    """
    _, which, counts = np.unique(jobs, return_inverse=True, return_counts=True)
    weights = np.asarray(counts[which] ** -0.5, dtype=np.float64)
    needed, jobs_told = needed_scale(errors, deviations, weights), len(counts)
    return float(max(needed, _LEAST) ** (jobs_told / (jobs_told + _CLAIM)))


def needed_scale(errors: Floats, deviations: Floats, weights: Floats) -> float:
    """Return the factor by which standard deviations must grow so that 80 % intervals hold 80 % of weighted errors.

    Args:
        errors: Errors of the logarithms of predictions.
        deviations: Standard deviation that each prediction claimed.
        weights: Weight of each error.
    """
    distance = np.abs(errors) / deviations
    order = np.argsort(distance)
    reached = np.cumsum(weights[order]) >= 0.8 * weights.sum()
    return float(distance[order][np.argmax(reached)]) / Z80


MAX_TRIALS = 96
"""Most trials that a prediction learns from: those on the most similar platforms, and the newest of each sweep. A trial
whose parts were measured counts once for each part. In replays of published tables, twice as many teach hardly more
(docs/explanation/learning.md). OpenBLAS solves 100 or more equations on all cores, and its threads then wait for each
other for seconds if trials keep the cores busy (its gesv.c)."""

MAX_KNOWN = 64
"""Most trials that a search knows in addition to its own. With them, the equations stay below the same 100, and each
trial is an observation that every proposal evaluates."""

_Ran: TypeAlias = tuple[Job, str | None]
"""A job that ran, with the name of the trainer that ran it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearntFactor:
    """A correction factor learnt from trials: actual time divided by the time predicted for a typical platform."""

    factor: float
    """Factor on the predicted time. Above 1, measured times are longer."""
    relative_error: float
    """Half-width of the factor's 80 % interval, as a share of it."""
    differs: bool
    """True if the factor's 80 % interval does not contain 1. A factor of 1 means that the prediction needs no
    correction."""

    @classmethod
    def of(cls, factor: float, deviation: float) -> LearntFactor:
        """Return the correction factor with its 80 % interval.

        Args:
            factor: Median of the factor.
            deviation: Standard deviation of its natural logarithm.
        """
        half_width = Z80 * deviation
        return cls(factor=factor, relative_error=math.expm1(half_width), differs=abs(math.log(factor)) > half_width)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearntCalibration:
    """The calibration of one platform's predictions by the stored trials on it, and their accuracy."""

    platform: Platform
    num_trials: int
    num_sweeps: int
    """Number of sweeps that the trials belong to."""
    last_finished_at: float
    """Time when the last of the trials finished, in epoch seconds."""
    calibration: Calibration | None
    """Calibration for the job of the newest trial; None if every trial ran out of memory."""
    median_error: float | None = None
    """Median of |predicted / measured - 1|, with predictions for a typical cluster; None if no trial has a step
    time."""
    left_out_error: float | None = None
    """Median error of predictions that learnt only from other jobs: each job is predicted from the trials of all other
    jobs. None with fewer than two jobs."""

    @property
    @derived
    def whole_step(self) -> LearntFactor | None:
        """Actual time of whole steps divided by their predicted time, with its interval.

        The result is None if every trial ran out of memory.
        """
        known = self.calibration
        return None if known is None else LearntFactor.of(known.factor, known.deviation)

    @property
    @derived
    def parts(self) -> dict[str, LearntFactor]:
        """Correction factor of each part of a step, by name of the part: its actual time divided by its predicted time.

        The factor is relative to ``whole_step``: a factor of 1 means that the part is as wrong as the whole step. If
        the trials say nothing about a part, its factor is about 1 with a wide interval.
        """
        parts = () if self.calibration is None else self.calibration.parts
        return {one.part: LearntFactor.of(one.factor, one.deviation) for one in parts}


class Learnt:
    """Calibrates predictions by the results of stored trials. Each stored job is predicted once, when first needed.

    Args:
        past: Stored trials in any order. The predictions of their jobs ignore earlier calibrations, because an earlier
            calibration may come from the same trials.
    """

    def __init__(self, past: Iterable[PastTrial]) -> None:
        known = (replace(trial, job=replace(trial.job, calibration=None)) for trial in past)
        self.past = tuple(sorted(known, key=lambda trial: -trial.finished_at))
        self._calibrations: dict[_Ran, Calibration | None] = {}

    def calibrated(self, job: Job, trainer: str | None = None) -> Job:
        """Return the job with a calibration from the stored trials, which replaces an earlier calibration of the job.

        Args:
            job: The job to be predicted.
            trainer: Name of the registered trainer that will run the job; None: the product's own training code.
        """
        typical = replace(job, calibration=None)
        if (typical, trainer) not in self._calibrations:
            self._calibrations[typical, trainer] = self._calibration(typical, trainer)
        return replace(job, calibration=self._calibrations[typical, trainer])

    def relevant(self, job: Job, trainer: str | None = None) -> tuple[PastTrial, ...]:
        """Return the stored trials on the job's platform from which a search should learn; at most ``MAX_KNOWN``.

        Trials of the same job come first; the newest trials of each sweep are preferred.

        Args:
            job: The job to be searched.
            trainer: Name of the registered trainer that runs its trials; None: the product's own training code.
        """
        here = Platform.of(job, trainer)
        trials = (trial for trial in self.past if not here.differences(Platform.of(trial.job, trial.trainer)))
        return self._likest(trials, (replace(job, calibration=None), trainer), MAX_KNOWN)

    def _likest(self, trials: Iterable[PastTrial], target: _Ran, most: int = MAX_TRIALS) -> tuple[PastTrial, ...]:
        """Return the trials that are most similar to a job.

        Trials on the most similar platforms come first, and among them those of the same job; sweeps take turns with
        their newest trials.
        """
        here = Platform.of(*target)
        turns: dict[str, int] = defaultdict(int)
        ranked = []
        for trial in trials:
            turns[trial.sweep_id] += 1
            there = Platform.of(trial.job, trial.trainer)
            ranked.append((here.differences(there), trial.job != target[0], turns[trial.sweep_id], trial))
        return tuple(trial for *_, trial in sorted(ranked, key=lambda one: one[:3])[:most])

    def calibrations(self) -> Iterator[LearntCalibration]:
        """Yield the calibration of each platform with stored trials; the platform with the newest trial comes first."""
        for platform in dict.fromkeys(Platform.of(trial.job, trial.trainer) for trial in self.past):
            trials = [trial for trial in self.past if Platform.of(trial.job, trial.trainer) == platform]
            before, after = _errors_of(trials)
            yield LearntCalibration(
                platform=platform,
                num_trials=len(trials),
                num_sweeps=len({trial.sweep_id for trial in trials}),
                last_finished_at=trials[0].finished_at,
                calibration=self.calibrated(trials[0].job, platform.trainer).calibration,
                median_error=before,
                left_out_error=after,
            )

    def _calibration(self, job: Job, trainer: str | None) -> Calibration | None:
        timed = (trial for trial in self.past if trial.step_time_s is not None)
        if not (trials := _that_fit(self._likest(timed, (job, trainer)))):
            return None
        factors = _factors((job, trainer), trials)
        mean, covariance = _beside_the_whole(factors, factor_deviations(job))
        # a part that makes up all of every step is the whole step
        left = np.sqrt(np.maximum(np.diag(covariance), 1e-12))
        parts = tuple(
            PartFactor(part=name, factor=math.exp(log_factor), deviation=deviation)
            for name, log_factor, deviation in zip(FACTORS[:-1], mean.tolist(), left.tolist(), strict=False)
        )
        return Calibration(
            factor=math.exp(mean[-1]),
            deviation=float(left[-1]),
            num_runs=len(trials),
            num_trials=len(trials),
            num_sweeps=len({trial.sweep_id for trial in trials}),
            parts=parts,
            correlations=tuple(map(tuple, (covariance / np.outer(left, left)).tolist())),
            interval_scale=_interval_scale(factors, [t.layout for t in trials if (t.job, t.trainer) == (job, trainer)]),
        )


def _interval_scale(factors: Factors, layouts: Sequence[Layout]) -> float:
    """Return the factor on the width of the job's intervals.

    The errors of other jobs' runs decide the factor. It is at least so large that the intervals contain the job's own
    runs.

    Args:
        factors: Factors after all runs.
        layouts: Layouts of the job's own runs. Each layout counts once, however often it ran.
    """
    scale = interval_scale(factors.left_out_errors, factors.left_out_deviations, factors.jobs)
    if not layouts:
        return scale
    weights = np.array([1 / layouts.count(layout) for layout in layouts])
    return max(scale, needed_scale(factors.fitted_errors, factors.fitted_deviations, weights))


def _beside_the_whole(factors: Factors, deviations: Floats) -> tuple[Floats, Floats]:
    """Return mean and covariance of the factors' logarithms, with the whole step separated from its parts.

    A factor that all parts share cannot be separated from the common factor of all steps, and need not be, because the
    shares of the parts sum to 1. The whole step is a step in the reference precision.
    """
    mean, num_parts = deviations * factors.mean, factors.parts_s.shape[1]
    learnt_s = factors.parts_s * np.exp(mean[:num_parts])
    by_parts = float(np.log(learnt_s.sum(axis=1) / factors.parts_s.sum(axis=1)).mean())
    mean[:num_parts] -= by_parts
    mean[-1] += by_parts
    turned = np.eye(len(mean))
    whole = (learnt_s / learnt_s.sum(axis=1, keepdims=True)).mean(axis=0)
    turned[:num_parts, :num_parts] -= whole
    turned[-1, :num_parts] = whole
    turned = turned * deviations
    return mean, turned @ factors.covariance @ turned.T


def _factors(target: _Ran, trials: Sequence[PastTrial]) -> Factors:
    """Return the factors of a job, learnt from these trials, all of which have step times."""
    by_job = _by_job(trials)
    rans = list(dict.fromkeys([target, *by_job]))
    return Factors.after(
        [TimedRuns.of(job, some) for (job, _), some in by_job.items()],
        [rans.index(ran) for ran in by_job],
        TaskSimilarity.between([job for job, _ in rans], FACTORS, TIME_TRANSFER, [trainer for _, trainer in rans]),
    )


def _that_fit(trials: Sequence[PastTrial]) -> Sequence[PastTrial]:
    """Return the first of these trials that together are at most ``MAX_TRIALS`` observations."""
    num_observations: dict[int, int] = {}
    for (job, _), some in _by_job(trials).items():
        counts = np.bincount(TimedRuns.of(job, some).runs)
        num_observations |= {id(trial): int(count) for trial, count in zip(some, counts, strict=True)}
    reached = accumulate(num_observations[id(trial)] for trial in trials)
    return trials[: max(1, sum(count <= MAX_TRIALS for count in reached))]


def _by_job(trials: Iterable[PastTrial]) -> Mapping[_Ran, list[PastTrial]]:
    by_job: dict[_Ran, list[PastTrial]] = defaultdict(list)
    for trial in trials:
        by_job[trial.job, trial.trainer].append(trial)
    return by_job


def _errors_of(trials: Iterable[PastTrial]) -> tuple[float | None, float | None]:
    """Return two median errors for the trials of one platform.

    The first is that of the original predictions, the second that of predictions learnt from the trials of the
    platform's other jobs.
    """
    timed = _that_fit([trial for trial in trials if trial.step_time_s is not None][:MAX_TRIALS])
    if not timed:
        return None, None
    factors = _factors((timed[0].job, timed[0].trainer), timed)
    after = _median_error(factors.left_out_errors) if len(set(factors.jobs.tolist())) > 1 else None
    return _median_error(factors.errors), after


def _median_error(log_errors: Floats) -> float:
    return float(np.median(np.abs(np.expm1(-log_errors))))
