"""LayoutComparison: two to four layouts compared by speed, certainty, and parts of a step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.measurement import Breakdown, PhaseTimes
from autotuner.core.objective import Objective
from autotuner.core.prediction import Prediction
from autotuner.core.trial import Trial
from autotuner.core.value import derived
from autotuner.costmodel.predict import predict_one
from autotuner.exports.shared.target import Note
from autotuner.search.explain.step_parts import ACTIVITY_WORDS, PartKind, step_parts
from autotuner.search.results.reached import Standing

LETTERS = "ABCD"

FiguresSource = Literal["measured", "estimated", "simulated", "predicted"]

PartsAre = Literal["measured", "simulated", "predicted"]

_MEASURED_PARTS: Mapping[str, tuple[PartKind, tuple[str, ...]]] = {
    "forward": ("forward", ("forward_s",)),
    "backward": ("backward", ("backward_s",)),
    "communication": (
        "communication",
        ("all_reduce_s", "all_gather_s", "reduce_scatter_s", "all_to_all_s", "send_receive_s"),
    ),
    "pipeline idle": ("idle", ("pipeline_idle_s",)),
    "optimizer": ("optimizer", ("optimizer_s",)),
    "anything else": ("other", ("other_s",)),
}
"""Measured parts that all layouts have in common, each with the fields of ``Breakdown`` that it sums. A profiler
separates kinds of collectives but not the groups of ranks that call them, and layouts differ in which group calls which
kind."""

_MEASURED_PHASES: Mapping[str, tuple[PartKind, tuple[str, ...]]] = {
    "forward and backward": ("forward", ("forward_backward_s",)),
    "waiting for gradients": ("communication", ("gradient_sync_s",)),
    "optimizer": ("optimizer", ("optimizer_s",)),
}
"""Measured phases of timed steps that were not profiled, each with its fields of ``PhaseTimes``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutCandidate:
    """One layout in a comparison of layouts, with its job, its prediction and, if a trial ran it, this trial."""

    layout: Layout
    job: Job
    """Job of the layout."""
    prediction: Prediction
    """Prediction of the layout in that job; for a trial, the prediction from before it ran."""
    trial: Trial | None = None
    """Trial that ran the layout; None if the layout is only predicted."""
    standing: Standing | None = None
    """Certainty of the trial's rank in its sweep; None if the trial has no rank."""
    of: str = ""
    """Reference of the layout for another request: an id, a URL of the page that explores layouts, or words."""
    name: str = ""
    """Name of the layout for people."""
    rank: int | None = None
    """Rank of the trial in its sweep; None if the trial has no rank."""
    explored: Mapping[str, str] = field(default_factory=dict)
    """URL query of the page that explores the layout; empty for a trial, which has its own page."""
    notes: tuple[Note, ...] = ()
    """Notes on flags that were assumed, changed or ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Step time, throughput, MFU and memory of a layout: measured if a trial ran it, else estimated or predicted."""

    source: FiguresSource
    """Source of the figures."""
    step_time_s: float
    tokens_per_s: float
    mfu: float
    relative_error: float | None
    """Half-width of the interval of all of these figures, as a share: 95 % for one measured run, 80 % for anything
    else. None if it is not known."""
    error_beside: float | None
    """Error of the difference from other layouts, including the noise between equal runs."""
    peak_bytes: float | None
    """Peak bytes of the rank with most memory; None if they are unknown."""
    is_robust: bool = False
    """True if the figures are those under the sweep's fault trace, by which the sweep ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """The relative gain of the fastest layout of a comparison over one other layout, and whether it is beyond noise."""

    gain: float
    """Gain of the fastest layout over this one, as a share of this layout's rate."""
    gain_error: float
    """Half-width of the interval of ``gain``."""
    is_beyond_noise: bool
    """True if the gain is larger than its error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the step time of a compared layout, such as its exposed communication, in seconds."""

    name: str
    kind: PartKind
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """The difference of one part of the step time between two layouts, in seconds.

    It is below 0 if the faster layout spends less time on this part.
    """

    name: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedLayout:
    """One of the layouts of a comparison, with its figures, its step's parts, and its difference from the fastest."""

    letter: str
    """Letter that stands for the layout in sentences."""
    of: str
    """Reference of the layout for another request."""
    layout: Layout
    trial_id: str | None
    """Id of the trial that ran the layout; null for a layout that is only predicted."""
    figures: Figures
    """Figures of the layout, measured if ``source`` says so."""
    beside: Beside | None
    """Difference from the fastest layout; null for the fastest one itself."""
    parts: tuple[Part, ...]
    """Parts of the layout's step, in the same order for all layouts and including parts of no time. ``parts_are`` of
    the comparison says if they were measured."""
    notes: tuple[Note, ...] = ()
    """Notes on flags that were assumed, changed or ignored."""

    @property
    @derived
    def label(self) -> str:
        """Name of the layout, such as ``tp2 pp4 1f1b mb1``: its degrees above 1 and its non-default options."""
        return str(self.layout)

    @property
    def step_s(self) -> float:
        """Seconds of the step: the sum of the layout's parts, which are measured or predicted."""
        return sum(part.seconds for part in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutComparison:
    """A comparison of two to four layouts: which is fastest, by how much, and in which parts of the step."""

    fastest: str
    """Letter of the layout with the highest rate."""
    slowest: str | None
    """Letter of the slowest layout, from which ``shifts`` start; null if all are equally fast."""
    is_one_job: bool
    """True if all layouts have the same model, workload and cluster. Rates are then tokens per second, otherwise
    MFU."""
    differing: tuple[str, ...]
    """Fields in which the layouts differ; ``data_parallel_degree`` for both data-parallel degrees."""
    parts_are: PartsAre
    """Source of the parts: measured, in kinds that all layouts have, or predicted, by group of ranks."""
    shifts: tuple[Shift, ...]
    """Differences between the parts of the slowest and of the fastest layout, the largest first."""
    items: tuple[ComparedLayout, ...]

    def at(self, letter: str) -> ComparedLayout:
        """Return the compared layout that a letter (A to D) stands for in the sentences of the comparison."""
        return self.items[LETTERS.index(letter)]


def side_by_side(candidates: Sequence[LayoutCandidate]) -> LayoutComparison:
    """Compare two to four legal layouts, of one job or several: which is fastest, by how much, and in which parts."""
    figures = tuple(_figures(one) for one in candidates)
    is_one_job = len({(one.job.model, one.job.workload, one.job.cluster) for one in candidates}) == 1
    rates = [_rate(*pair, is_one_job) for pair in zip(candidates, figures, strict=True)]
    fastest = max(range(len(rates)), key=rates.__getitem__)
    slowest = min(range(len(rates)), key=rates.__getitem__)
    parts_are, parts = _parts(candidates)
    return LayoutComparison(
        fastest=LETTERS[fastest],
        slowest=None if slowest == fastest else LETTERS[slowest],
        is_one_job=is_one_job,
        differing=_options([one.layout for one in candidates]),
        parts_are=parts_are,
        shifts=shifts_between(parts[slowest], parts[fastest]) if slowest != fastest else (),
        items=tuple(
            ComparedLayout(
                letter=LETTERS[place],
                of=one.of,
                layout=one.layout,
                trial_id=one.trial.id if one.trial else None,
                figures=figures[place],
                beside=None if place == fastest else _beside(figures, rates, fastest, place),
                parts=parts[place],
                notes=one.notes,
            )
            for place, one in enumerate(candidates)
        ),
    )


# ---------------------------------------------------------------------- figures
_RANKED_BY = Objective(under_faults=True)
"""Objective that counts results under a fault trace if there was one, as the trial's sweep does."""


def _figures(one: LayoutCandidate) -> Figures:
    reached = one.trial.reached if one.trial is not None and one.trial.is_valid else None
    if reached is None:
        return Figures(
            source="predicted",
            step_time_s=one.prediction.step_time.total_s,
            tokens_per_s=one.prediction.tokens_per_s,
            mfu=one.prediction.mfu,
            relative_error=one.prediction.relative_error,
            error_beside=one.prediction.relative_error,
            peak_bytes=one.prediction.memory.total_bytes,
        )
    counted = _RANKED_BY.counted(reached)
    error = counted.relative_error
    return Figures(
        source=reached.source,
        is_robust=counted is not reached,
        step_time_s=counted.step_time_s,
        tokens_per_s=counted.tokens_per_s,
        mfu=counted.mfu,
        relative_error=error,
        error_beside=one.standing.relative_error if one.standing else error,
        peak_bytes=reached.highest_peak_bytes,
    )


def _rate(one: LayoutCandidate, figures: Figures, is_one_job: bool) -> float:
    """Return steps per second over all runs of the layout, or MFU if the layouts are not of one job."""
    if not is_one_job:
        return figures.mfu
    return 1 / (one.standing.step_time_s if one.standing else figures.step_time_s)


def _beside(figures: Sequence[Figures], rates: Sequence[float], fastest: int, other: int) -> Beside:
    """Return the difference of a layout from the fastest one.

    Errors are combined as if they were independent, which is not quite true within one job.
    """
    ratio = rates[fastest] / rates[other]
    errors = (figures[fastest].error_beside or 0.0, figures[other].error_beside or 0.0)
    # errors of wide intervals are factors, not differences
    apart = math.log(ratio) > math.hypot(*map(math.log1p, errors))
    return Beside(gain=ratio - 1, gain_error=ratio * math.hypot(*errors), is_beyond_noise=apart)


# ---------------------------------------------------------------------- what differs
_DATA = ("data_parallel_replicate_degree", "data_parallel_shard_degree")


def _options(layouts: Sequence[Layout]) -> tuple[str, ...]:
    names = [name for name in OPTIONS if name not in _DATA]
    differing = [name for name in names if len({getattr(layout, name) for layout in layouts}) > 1]
    if len({layout.data_parallel_degree for layout in layouts}) > 1:
        differing.insert(0, "data_parallel_degree")
    elif "shard_level" not in differing and len({tuple(getattr(one, name) for name in _DATA) for one in layouts}) > 1:
        differing.append("data_parallel_shard_degree")
    return tuple(differing)


# ---------------------------------------------------------------------- where the time goes
def _parts(candidates: Sequence[LayoutCandidate]) -> tuple[PartsAre, tuple[tuple[Part, ...], ...]]:
    """Return the measured parts if a step of every layout was divided, otherwise the predicted parts."""
    trials = [one.trial for one in candidates if one.trial is not None]
    if len(trials) == len(candidates) and (measured := measured_parts(trials)):
        return measured
    steps = []
    for one in _in_one_state(candidates):
        found = step_parts(one.layout, one.job, one.prediction.step_time).parts
        steps.append({(ACTIVITY_WORDS[one], part.kind): s for part in found for one, s in part.predicted.items() if s})
    every = dict.fromkeys(part for step in steps for part in step)
    return "predicted", tuple(
        tuple(Part(name=name, kind=kind, seconds=step.get((name, kind), 0.0)) for name, kind in every) for step in steps
    )


def measured_parts(
    trials: Sequence[Trial],
) -> tuple[PartsAre, tuple[tuple[Part, ...], ...]] | None:
    """Return the parts of each trial's step, and their source: ``measured`` or ``simulated``.

    All trials get the same parts in the same order. If every trial has a profiled step, the parts come from the
    profiles; else they are the phases of timed steps. Return None if a trial has neither, or if a trial was a proxy
    trial, which runs a smaller layout.
    """
    measured = [one.measurement for one in trials if one.measurement]
    if len(measured) < len(trials):
        return None
    source: PartsAre = "simulated" if any(one.is_simulated for one in measured) else "measured"
    profiled = [one.breakdown for one in measured if one.breakdown]
    if len(profiled) == len(measured):
        return source, tuple(_by_kind(found, _MEASURED_PARTS) for found in profiled)
    phases = [one.phases for one in measured if one.phases]
    if len(phases) == len(measured):
        return source, tuple(_by_kind(found, _MEASURED_PHASES) for found in phases)
    return None


def _by_kind(
    measured: Breakdown | PhaseTimes, kinds: Mapping[str, tuple[PartKind, tuple[str, ...]]]
) -> tuple[Part, ...]:
    return tuple(
        Part(name=name, kind=kind, seconds=float(sum(getattr(measured, field) for field in summed)))
        for name, (kind, summed) in kinds.items()
    )


def _in_one_state(candidates: Sequence[LayoutCandidate]) -> Sequence[LayoutCandidate]:
    """Return the layouts with predictions that all use the trials of the same sweep state.

    Each trial was predicted before it ran, so that the prediction in a later sweep could use more trials. The state
    with most known trials is used for all.
    """
    calibrations = [one.job.calibration for one in candidates]
    if all(one == calibrations[0] for one in calibrations):
        return candidates
    most = max(calibrations, key=lambda one: one.num_runs if one else 0)
    jobs = (replace(one.job, calibration=most) for one in candidates)
    each = zip(candidates, jobs, strict=True)
    return [replace(one, job=job, prediction=predict_one(one.layout, job)) for one, job in each]


def shifts_between(old: Sequence[Part], new: Sequence[Part]) -> tuple[Shift, ...]:
    """Return the change of each part's time from an old step to a new step, the largest change first.

    Args:
        old: Parts of the old step.
        new: Parts of the new step: the same parts in the same order.
    """
    pairs = zip(old, new, strict=True)
    shifts = (Shift(name=after.name, seconds=after.seconds - before.seconds) for before, after in pairs)
    return tuple(sorted(shifts, key=lambda shift: -abs(shift.seconds)))
