"""SweepAnswer: the best layout of a sweep, its certainty, what it beats and why, and the accuracy of predictions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum

from autotuner.core.convergence_gate import GateOutcome
from autotuner.core.layout import Layout
from autotuner.core.prediction import StepTime
from autotuner.core.sweep import ExpectedImprovement, SweepRequest
from autotuner.core.trial import Trial
from autotuner.search.results.axis import AXES, Value
from autotuner.search.results.layout_comparison import PartsAre, Shift, measured_parts, shifts_between
from autotuner.search.results.reached import TRIED, Reached, Source, Standing, ranked_times, standings

_NUM_NEXT = 2
"""Number of ranks after the best that are described. The ranking has the others."""

_WORTHWHILE = 0.01
"""Smallest share of a step for which a part counts as a reason."""


class Role(StrEnum):
    """The reason to compare a layout with the best one: it is in use, next in rank, simpler, or as good."""

    IN_USE = "in_use"  # the layout that runs today
    NEXT = "next"  # one of the ranks that follow
    WITHOUT = "without"  # the best layout without some choices of the first
    TIE = "tie"  # a layout that does not differ measurably from the best


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """A ranked layout that the answer of a sweep compares with the best layout."""

    role: Role
    rank: int
    """Rank of the rival, from 1."""
    trial: int
    """Number of the rival's trial in the sweep."""
    layout: Layout
    gain: float
    """Gain of the best layout over the rival: its value divided by the rival's, minus 1. The value is throughput if the
    sweep ranks by speed."""
    gain_error: float
    """Half-width of the 95 % interval of the gain, including the deviation between equal runs."""
    is_tie: bool
    """True if the difference is no larger than chance explains in 95 of 100 cases."""
    probability_best: float
    """Probability that the rival is the best of the ranked layouts, 0..1."""
    lacks: Mapping[str, Value]
    """Choices of the best layout, by name, for which this rival is the best layout without the choice; empty in other
    roles than ``without``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """The reasons why the best layout is faster than another one (the rival): the step parts that differ."""

    rival: Rival
    """Rival with which the best layout is compared: the layout that runs today; else the first one that is certainly
    slower; else the first one."""
    predicted_gain: float
    """Gain as it was predicted before both layouts ran."""
    parts_are: PartsAre
    """Source of the parts of both steps: measured or predicted. Under a fault trace they are parts of steps without
    faults."""
    shifts: tuple[Shift, ...]
    """Parts that differ by 1 % of the rival's step or more, the largest difference first. Predicted parts have the
    names of fields of ``StepTime``."""
    parts_gain: float | None
    """Gain by the sums of the measured parts; None for predicted parts, and under a fault trace."""
    faulty_step_s: tuple[float, float] | None
    """Predicted mean step time under the fault trace, of the best layout and of the rival; None without a trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The best layout of a sweep so far, the certainty of this answer, and a comparison with other layouts."""

    best: Reached
    """Layout to train with."""
    is_in_use: bool
    """True if the best layout is the one that runs today."""
    gate: GateOutcome | None
    """Outcome of the best layout's convergence gate; None if the layout is numerically equivalent and needs no gate."""
    probability_best: float
    """Probability that the layout ``best`` is truly the best of the ranked layouts, 0..1."""
    num_ranked: int
    """Number of layouts that were ranked."""
    num_tried: int
    """Number of trials that ended, in any way, without repeats."""
    ties: tuple[Rival, ...]
    """Ranked layouts that do not differ measurably from the best, the best of them first."""
    rivals: tuple[Rival, ...]
    """Layouts to compare with, each once: the layout that runs today, if known; the next ranks; and the best layout
    without each choice."""
    why: Why | None
    """Explanation of the best layout's lead over one rival; None if there is no rival."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepAnswer:
    """The answer of a sweep (its best layout so far), and the improvement that further trials are expected to bring."""

    answer: Answer | None
    """Answer of the sweep; None before a trial has a rank."""
    expected_improvement: ExpectedImprovement | None
    """Expected improvement by further trials; None before the first trial was chosen."""


def answer(request: SweepRequest, trials: Sequence[Trial]) -> Answer | None:
    """Return the best layout of a sweep so far, and how certain this answer is; None if no trial has a rank yet.

    Args:
        request: The request of the sweep.
        trials: All trials of the sweep, including repeats.
    """
    ranked = request.objective.ranked(trials)
    if not ranked:
        return None
    places = [*standings(ranked_times(request.objective, trials)).values()]
    best, incumbent = ranked[0], request.challenge.incumbent if request.challenge else None
    tied = [rank for rank, place in enumerate(places[1:], 2) if place.tied_with_best]
    rivals = tuple(_rival(role, rank, ranked, places, lacks) for rank, role, lacks in _roles(ranked, incumbent))
    return Answer(
        best=Reached.of(best, request),
        is_in_use=best.layout == incumbent,
        gate=best.gate_outcome,
        probability_best=places[0].probability_best,
        num_ranked=len(ranked),
        num_tried=sum(trial.state in TRIED and trial.repeats is None for trial in trials),
        ties=tuple(_rival(Role.TIE, rank, ranked, places, {}) for rank in tied),
        rivals=rivals,
        why=_why(ranked, _most_telling(rivals), request) if rivals else None,
    )


# ---------------------------------------------------------------- what the best beats
def _roles(ranked: Sequence[Trial], incumbent: Layout | None) -> Iterator[tuple[int, Role, Mapping[str, Value]]]:
    """Yield the rank, the role and the lacking choices of each rival.

    Each rank occurs once, in its first role.
    """
    best, others = ranked[0].layout, [*enumerate(ranked[1:], 2)]
    in_use = [rank for rank, trial in others if trial.layout == incumbent]
    yield from ((rank, Role.IN_USE, {}) for rank in in_use)
    following = [rank for rank, _ in others[:_NUM_NEXT] if rank not in in_use]
    yield from ((rank, Role.NEXT, {}) for rank in following)
    lacks: dict[int, dict[str, Value]] = {}  # of the best rank with another value of some choices
    for axis in AXES.values():
        rank = next((rank for rank, trial in others if axis.read(trial.layout) != axis.read(best)), None)
        if rank is not None and rank not in (*in_use, *following):
            lacks.setdefault(rank, {})[axis.name] = axis.read(best)
    yield from ((rank, Role.WITHOUT, lacks[rank]) for rank in sorted(lacks))


def _rival(
    role: Role, rank: int, ranked: Sequence[Trial], places: Sequence[Standing], lacks: Mapping[str, Value]
) -> Rival:
    mine, theirs, other = places[0], places[rank - 1], ranked[rank - 1]
    ratio = mine.value / theirs.value
    return Rival(
        role=role,
        rank=rank,
        trial=other.number,
        layout=other.layout,
        gain=ratio - 1,
        gain_error=ratio * math.hypot(mine.relative_error, theirs.relative_error),
        is_tie=theirs.tied_with_best,
        probability_best=theirs.probability_best,
        lacks=lacks,
    )


# ---------------------------------------------------------------- why it is faster
def _most_telling(rivals: Sequence[Rival]) -> Rival:
    """Return the rival that is compared with the best layout.

    It is the layout that runs today, otherwise the first that is certainly slower than the best, otherwise the first.
    """
    in_use = [one for one in rivals if one.role is Role.IN_USE]
    slower = sorted((one for one in rivals if not one.is_tie), key=lambda one: one.rank)
    return (*in_use, *slower, *rivals)[0]


def _why(ranked: Sequence[Trial], rival: Rival, request: SweepRequest) -> Why:
    both, objective = (ranked[0], ranked[rival.rank - 1]), request.objective
    mine_s, theirs_s = (objective.predicted_step_s(trial.prediction) for trial in both)
    source, shifts, (best_s, rival_s) = _shifts(both)
    are_comparable = source != "predicted" and not objective.under_faults
    return Why(
        rival=rival,
        predicted_gain=theirs_s / mine_s - 1,
        parts_are=source,
        shifts=tuple(one for one in shifts if abs(one.seconds) >= _WORTHWHILE * rival_s),
        parts_gain=rival_s / best_s - 1 if are_comparable else None,
        faulty_step_s=(mine_s, theirs_s) if objective.under_faults else None,
    )


def _shifts(both: tuple[Trial, Trial]) -> tuple[PartsAre, Sequence[Shift], tuple[float, float]]:
    """Return the source of the parts of both steps, their differences (the largest first), and the sum of each step."""
    if (measured := measured_parts(both)) is not None:
        source, (mine, theirs) = measured
        sums_s = sum(part.seconds for part in mine), sum(part.seconds for part in theirs)
        return source, shifts_between(theirs, mine), sums_s
    own, other = (trial.prediction.step_time for trial in both)
    shifts = [Shift(name=f.name, seconds=getattr(own, f.name) - getattr(other, f.name)) for f in fields(StepTime)]
    return "predicted", sorted(shifts, key=lambda one: -abs(one.seconds)), (own.total_s, other.total_s)


# ---------------------------------------------------------------- how right the predictions were
@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedTrial:
    """A trial with its predicted and its measured figures. The prediction was made before the trial ran."""

    trial: int
    """Number of the trial in its sweep."""
    source: Source
    """Source of the trial's figures."""
    predicted_step_s: float
    """Predicted step time of the layout at full size."""
    reached_step_s: float
    """Step time that the trial reached: measured, estimated or simulated."""
    predicted_mfu: float
    """Predicted MFU of the layout at full size. On CPU cores, it is relative to the peak that was known before any
    trial."""
    reached_mfu: float
    """MFU that the trial reached: measured, estimated or simulated."""
    reached_error: float
    """Half-width of the interval of the reached figures, as a share."""
    relative_error: float | None
    """Half-width of the 80 % interval of the prediction; None in records older than this field."""
    error: float
    """Reached step time divided by the predicted one, minus 1. Above 0 the layout was slower than predicted."""
    is_within: bool | None
    """True if the reached step time is in the interval of the prediction; None if that is not known."""
    predicted_bytes: float
    """Predicted peak bytes of the rank with most memory, without memory that no allocator counts."""
    reached_bytes: float | None
    """Measured peak bytes; None if no rank reported them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """The accuracy of a sweep's predictions: how close the predictions were to the results of its trials."""

    trials: tuple[ComparedTrial, ...]
    """Measured trials, by number."""
    num_intervals: int
    """Number of trials whose prediction had an interval."""
    num_within: int
    """Number of these trials whose step time was in the interval. With correct 80 % intervals, these are four of
    five."""
    median_error: float | None
    """Median absolute error of step times; None before the first trial."""
    bias: float | None
    """Median signed error of step times. Above 0, layouts are slower than predicted."""
    memory_error: float | None
    """Median absolute error of peaks; None if no rank reported one."""


def accuracy(request: SweepRequest, trials: Sequence[Trial]) -> Accuracy:
    """Compare the predictions for a sweep's ranked trials with their results. Repeats of a layout are left out.

    Args:
        request: The request of the sweep.
        trials: All trials of the sweep.
    """
    # otherwise the peak is that of the whole process
    tells_peaks = request.trainer is None or request.job.cluster.accelerator.kind != "cpu"
    ranked = sorted((trial for trial in trials if trial.is_ranked), key=lambda trial: trial.number)
    compared = tuple(_compared(trial, tells_peaks=tells_peaks) for trial in ranked)
    errors = [one.error for one in compared]
    memory = [one.reached_bytes / one.predicted_bytes - 1 for one in compared if one.reached_bytes]
    with_interval = [one for one in compared if one.is_within is not None]
    return Accuracy(
        trials=compared,
        num_intervals=len(with_interval),
        num_within=sum(bool(one.is_within) for one in with_interval),
        median_error=statistics.median(map(abs, errors)) if errors else None,
        bias=statistics.median(errors) if errors else None,
        memory_error=statistics.median(map(abs, memory)) if memory else None,
    )


def _compared(trial: Trial, *, tells_peaks: bool) -> ComparedTrial:
    assert trial.reached is not None, "it has a rank"
    prediction, reached_s = trial.prediction, trial.reached.step_time_s
    predicted_s, memory = prediction.step_time.total_s, prediction.memory
    half_width = prediction.relative_error
    is_within = None if half_width is None else 1 / (1 + half_width) <= reached_s / predicted_s <= 1 + half_width
    measured = trial.measurement if tells_peaks else None
    return ComparedTrial(
        trial=trial.number,
        source=trial.reached.source,
        predicted_step_s=predicted_s,
        reached_step_s=reached_s,
        predicted_mfu=prediction.mfu,
        reached_mfu=trial.reached.mfu,
        reached_error=trial.reached.step_time_error_s / reached_s,
        relative_error=half_width,
        error=reached_s / predicted_s - 1,
        is_within=is_within,
        predicted_bytes=memory.total_bytes - memory.allowance_bytes,
        reached_bytes=measured.highest_peak_bytes if measured else None,
    )
