"""The answer of a sweep: what to train with, how fast that is, how sure it is, what it beats and why."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum

from autotuner.core.convergence_gate import GateOutcome
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.prediction import StepTime
from autotuner.core.sweep import Prospects, SweepRequest
from autotuner.core.trial import Trial
from autotuner.core.units import format_rate, format_seconds
from autotuner.search.explain.limits import PART_WORDS, limit_of
from autotuner.search.results.axis import AXES, Axis
from autotuner.search.results.comparison import measured_parts, shifts_between, shifts_in_words
from autotuner.search.results.reached import TRIED, Reached, Standing, named, ranked_times, standings
from autotuner.search.text.links import under_trace
from autotuner.search.text.sentences import change_in_words, gain_in_words, likely, ranges, signed

_NUM_NAMED = 3
"""Choices that a sentence names before it counts them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tie:
    """A layout that cannot be told from the best."""

    rank: int
    trial_id: str
    number: int
    """Of the trial, inside its sweep."""
    label: str
    """The layout in short."""
    layout: Layout
    change: str
    """What differs, from the best to it."""
    probability_best: float
    """How likely it is the fastest, 0..1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certainty:
    """How sure the answer is."""

    probability_best: float
    """How likely the best is the fastest of those ranked, 0..1."""
    ties: tuple[Tie, ...]
    """Ranked layouts that cannot be told from it, the best first."""
    num_ranked: int
    """Layouts that were compared."""
    num_tried: int
    """Trials that came to an end, however, without repeats."""
    num_legal: int | None
    """Layouts that the sweep may try, each of them predicted; None in records older than this field."""
    num_fitting: int | None
    """Those that are predicted to fit; None like the one before."""
    expected_gain: float | None
    """By which fraction one more trial is expected to raise the best value, or the hypervolume of the front; None where
    it is not known."""
    sentences: tuple[str, ...]
    """All this, without full stops."""


def certainty(
    request: SweepRequest,
    ranked: Sequence[Trial],
    trials: Sequence[Trial],
    standing: Mapping[str, Standing],
    prospects: Prospects | None,
) -> Certainty:
    """How sure it is that the first of the ranked trials is the best there is, by all trials and what is expected."""
    best = ranked[0]
    ties = tuple(
        Tie(
            **named(trial),
            rank=rank,
            layout=trial.layout,
            change=change_in_words(best.layout, trial.layout),
            probability_best=standing[trial.id].probability_best,
        )
        for rank, trial in enumerate(ranked[1:], 2)
        if standing[trial.id].tied_with_best
    )
    sure = standing[best.id].probability_best
    num_tried = sum(trial.state in TRIED and trial.repeats is None for trial in trials)
    raised = "the front's hypervolume" if request.objective.front else "the best value"
    return Certainty(
        probability_best=sure,
        ties=ties,
        num_ranked=len(ranked),
        num_tried=num_tried,
        num_legal=prospects.num_candidates if prospects else None,
        num_fitting=prospects.num_fitting if prospects else None,
        expected_gain=prospects.expected_gain if prospects else None,
        sentences=(*_of_ranked(sure, len(ranked), ties), *_of_space(num_tried, prospects, raised)),
    )


def _of_ranked(sure: float, num_ranked: int, ties: Sequence[Tie]) -> Iterator[str]:
    if num_ranked == 1:
        yield "it is the only layout with a rank so far"
        return
    yield f"the chance that it is the best of the {num_ranked:,} ranked layouts is {likely(sure)}"
    match ties:
        case ():
            yield "no other layout is as fast within the noise of equal runs"
        case (one,):
            yield f"it is tied with {_tie(one)}"
        case (one, *_):
            yield f"it is tied with ranks {ranges(tie.rank for tie in ties)}; the closest is {_tie(one)}"


def _tie(tie: Tie) -> str:
    """Its rank and what differs; of much only how many choices."""
    num_changes = tie.change.count(" → ")
    change = tie.change if num_changes <= _NUM_NAMED else f"{num_changes} choices differ"
    return f"rank {tie.rank} ({change}; its chance is {likely(tie.probability_best)})"


def _of_space(num_tried: int, prospects: Prospects | None, raised: str) -> Iterator[str]:
    if prospects is None:
        return
    legal, fitting = prospects.num_candidates, prospects.num_fitting
    yield f"{fitting:,} of {legal:,} legal layouts are predicted to fit in memory, and {num_tried:,} were tried"
    if prospects.expected_gain is not None:
        yield gain_in_words(prospects.expected_gain, raised)


# ---------------------------------------------------------------- what the best beats
_NUM_NEXT = 2
"""Ranks behind the best that are told of; the ranking has the others."""


class Rival(StrEnum):
    """Why a layout stands beside the best."""

    IN_USE = "in_use"  # it runs today
    NEXT = "next"  # one of the ranks that follow
    WITHOUT = "without"  # the best that lacks some choices of the best


@dataclass(frozen=True, slots=True, kw_only=True)
class Beaten:
    """A ranked layout beside the best."""

    rival: Rival
    """Why it stands there."""
    without: tuple[str, ...]
    """Choices of the best that no layout up to this rank lacks: ``tp 4``; empty for other rivals."""
    said: str
    """What it is, in words: ``what runs today``, ``rank 2``, ``rank 4, the best with a different tp``."""
    rank: int
    """From 1."""
    trial_id: str
    number: int
    """Of the trial, inside its sweep."""
    label: str
    """The layout in short."""
    layout: Layout
    change: str
    """What differs, from it to the best."""
    gain: float
    """Value of the best beyond its own, as a fraction of its own: throughput, where the sweep ranks by speed."""
    gain_error: float
    """Half the 95 % interval of the gain, with what equal runs differ by."""
    is_tie: bool
    """The difference is no larger than chance makes it, 95 times in 100."""


def beaten(request: SweepRequest, ranked: Sequence[Trial], standing: Mapping[str, Standing]) -> tuple[Beaten, ...]:
    """Each rival of the first ranked trial once, under the first name that it has.

    What runs today, which the request's challenge knows, then the next ranks, then what lacks choices.
    """
    rivals = {
        rank: (rival, axes) for rank, rival, axes in reversed([*_rivals(request, ranked)])
    }  # the first name comes last, and stays
    found = [_beside(ranked, rank, *rivals[rank], standing) for rank in sorted(rivals)]
    return tuple(sorted(found, key=lambda one: [*Rival].index(one.rival)))


def _rivals(request: SweepRequest, ranked: Sequence[Trial]) -> Iterator[tuple[int, Rival, tuple[Axis, ...]]]:
    """Ranks behind the best, each with why it is told of."""
    in_use = request.challenge.incumbent if request.challenge else None
    yield from ((rank, Rival.IN_USE, ()) for rank, trial in enumerate(ranked[1:], 2) if trial.layout == in_use)
    yield from ((rank, Rival.NEXT, ()) for rank in range(2, min(len(ranked), 1 + _NUM_NEXT) + 1))
    without: dict[int, tuple[Axis, ...]] = {}  # of the best rank with another value on some axes
    for axis in AXES.values():
        value = axis.read(ranked[0].layout)
        if rank := next((rank for rank, trial in enumerate(ranked, 1) if axis.read(trial.layout) != value), 0):
            without[rank] = (*without.get(rank, ()), axis)
    yield from ((rank, Rival.WITHOUT, axes) for rank, axes in without.items())


def _beside(
    ranked: Sequence[Trial], rank: int, rival: Rival, axes: tuple[Axis, ...], standing: Mapping[str, Standing]
) -> Beaten:
    best, other = ranked[0], ranked[rank - 1]
    mine, theirs = standing[best.id], standing[other.id]
    ratio = mine.value / theirs.value
    said = "what runs today" if rival is Rival.IN_USE else f"rank {rank}"
    return Beaten(
        **named(other),
        rival=rival,
        without=tuple(axis.said(axis.read(best.layout)) for axis in axes),
        said=f"{said}, the best with a different {_either([axis.label for axis in axes])}" if axes else said,
        rank=rank,
        layout=other.layout,
        change=change_in_words(other.layout, best.layout),
        gain=ratio - 1,
        gain_error=ratio * math.hypot(mine.relative_error, theirs.relative_error),
        is_tie=theirs.tied_with_best,
    )


def _either(choices: Sequence[str]) -> str:
    """``tp or pp``; of many the first few, as the change names all that differs."""
    if len(choices) <= _NUM_NAMED:
        return " or ".join(choices)
    return f"{', '.join(choices[: _NUM_NAMED - 1])} or {len(choices) - _NUM_NAMED + 1} other choices"


# ---------------------------------------------------------------- why one layout is faster than another
_WORTHWHILE = 0.01
"""Share of the step below which a part is not worth saying."""

_NUM_PARTS = 2
"""Parts of a kind, longer or shorter, that a sentence holds."""

_APART = 0.03
"""Prediction and measurement of a gain are said side by side where they differ by more: 3 points of throughput."""


def why_faster(best: Trial, other: Trial, request: SweepRequest, gain: float, than: str) -> Iterator[str]:
    """One to four sentences without full stops; they say whether parts are measured or predicted.

    Where the predictions do not tell the gain, a sentence says so. Under faults, what these cost is said first.

    Args:
        best: The faster one.
        other: What it is held to.
        request: Of both.
        gain: By which it was found to be faster, as a fraction of the other's throughput.
        than: What the other is called: ``rank 2``.
    """
    objective = request.objective
    mine, theirs = objective.predicted_step_s(best.prediction), objective.predicted_step_s(other.prediction)
    if objective.under_faults:
        means = f"{format_seconds(mine)} in the mean, that of {than} {format_seconds(theirs)}"
        yield f"under the fault trace a step is predicted to take {means}"
    yield from _parts(best, other, request.trial_job, than, gain, is_healthy=objective.under_faults)
    if _is_another(theirs / mine - 1, gain):
        yield f"predicted was a gain of {signed(theirs / mine - 1)}; {signed(gain)} was found"


def _parts(best: Trial, other: Trial, job: Job, than: str, gain: float, *, is_healthy: bool) -> Iterator[str]:
    where = "on healthy links " if is_healthy else ""
    if (measured := measured_parts([best, other])) is None:
        yield from _predicted_parts(best, other, job, than, where)
        return
    source, (mine, theirs) = measured
    told = sum(part.seconds for part in theirs) / sum(part.seconds for part in mine) - 1
    if not is_healthy and _is_another(told, gain) and (told * gain <= 0 or abs(told) < abs(gain) / 2):
        found = f"by their sum the gain is {signed(told)}, by the whole step {signed(gain)}"
        yield f"the {source} parts of their steps do not explain it: {found}"
        return
    least_s = _WORTHWHILE * sum(part.seconds for part in theirs)
    if moved := shifts_in_words(shifts_between(theirs, mine), least_s):
        yield f"{where}its {source} step spends {moved}"
    else:
        yield f"{where}no {source} part of the step differs by 1 % of it"


def _predicted_parts(best: Trial, other: Trial, job: Job, than: str, where: str) -> Iterator[str]:
    mine, theirs = best.prediction.step_time, other.prediction.step_time
    shifts = {f.name: getattr(mine, f.name) - getattr(theirs, f.name) for f in fields(StepTime)}
    moved = sorted((p for p, s in shifts.items() if abs(s) >= _WORTHWHILE * theirs.total_s), key=shifts.__getitem__)
    saved = [part for part in moved if shifts[part] < 0][:_NUM_PARTS]
    added = sorted((part for part in moved if shifts[part] > 0), key=lambda part: -shifts[part])[:_NUM_PARTS]
    if saved or added:
        less = " and ".join(f"{format_seconds(-shifts[part])} less on {PART_WORDS[part]}" for part in saved)
        more = " and ".join(f"{format_seconds(shifts[part])} more on {PART_WORDS[part]}" for part in added)
        yield f"{where}its step is predicted to spend {', but '.join(filter(None, (less, more)))}"
    else:
        yield f"{where}no part of the step is predicted to differ by 1 % of it"
    if saved:
        yield f"{PART_WORDS[saved[0]]} of {than}: {limit_of(saved[0], other.layout, job)}"


def _is_another(told: float, gain: float) -> bool:
    return abs(told - gain) >= _APART or (told < 0) != (gain < 0)


# ---------------------------------------------------------------- the answer
@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Why the best is faster than one of those that it beats."""

    than: str
    """What the other layout is, in words: ``rank 3``."""
    trial_id: str
    label: str
    """The other layout in short."""
    is_tie: bool
    """The two cannot be told apart, so that there is little to explain."""
    sentences: tuple[str, ...]
    """One to three, without full stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a sweep says so far; once it has ended, what it says."""

    sentence: str
    """The whole answer without a full stop."""
    best: Reached
    """What to train with."""
    is_in_use: bool
    """It runs today."""
    gate: GateOutcome | None
    """What the loss gate says of a layout that changes the mathematics; None of any other."""
    certainty: Certainty
    """How sure that is."""
    beaten: tuple[Beaten, ...]
    """What it beats: what runs today where that is known, the next ranks, the best without each choice."""
    why: Why | None
    """Why it beats one of them; None of a layout alone."""


def answer(request: SweepRequest, trials: Sequence[Trial], prospects: Prospects | None = None) -> Answer | None:
    """The answer of a sweep by all of its trials; None before one of them has a rank.

    ``prospects`` is what its search expects of going on, where that is known.
    """
    ranked = request.objective.ranked(trials)
    if not ranked:
        return None
    standing = standings(ranked_times(request.objective, trials))
    best, rivals = ranked[0], beaten(request, ranked, standing)
    figures, sure = Reached.of(best, request), certainty(request, ranked, trials, standing, prospects)
    gate = None if best.layout.is_equivalent else GateOutcome.NOT_GATED
    return Answer(
        sentence=_sentence(figures, sure, rivals, trace=request.fault_trace),
        best=figures,
        is_in_use=request.challenge is not None and request.challenge.incumbent == best.layout,
        gate=gate if best.gate is None else best.gate.outcome,
        certainty=sure,
        beaten=rivals,
        why=_why(best, rivals, {trial.id: trial for trial in ranked}, request),
    )


def _why(best: Trial, rivals: Sequence[Beaten], trials: Mapping[str, Trial], request: SweepRequest) -> Why | None:
    """Against what runs today, else the first that can be told from the best, else the first."""
    if not rivals:
        return None
    in_use = [one for one in rivals if one.rival is Rival.IN_USE]
    told_apart = sorted((one for one in rivals if not one.is_tie), key=lambda one: one.rank)
    other = (*in_use, *told_apart, *rivals)[0]
    name = other.said if other.rival is Rival.IN_USE else f"rank {other.rank}"
    return Why(
        than=name,
        trial_id=other.trial_id,
        label=other.label,
        is_tie=other.is_tie,
        sentences=tuple(why_faster(best, trials[other.trial_id], request, other.gain, name)),
    )


def _sentence(best: Reached, sure: Certainty, rivals: Sequence[Beaten], *, trace: FaultTrace | None) -> str:
    """Return the layout, its speed, and the first layout that it beats or is tied with."""
    noun = "MFU" if best.healthy_mfu is None or trace is None else f"MFU {under_trace(trace, best.healthy_mfu)}"
    reached = f"{100 * best.mfu:.1f} ± {100 * best.mfu * best.relative_error:.1f} % {noun}, {best.said or best.source}"
    against = ""
    if rivals and not rivals[0].is_tie:
        against = f"; {signed(rivals[0].gain, rivals[0].gain_error)} over {rivals[0].said}"
    elif sure.ties:
        against = f"; tied with rank{'s' if len(sure.ties) > 1 else ''} {ranges(tie.rank for tie in sure.ties)}"
    return f"{best.label}: {reached}, {format_rate(best.tokens_per_s, 'token/s')}{against}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepAnswer:
    """What to train with, by a sweep."""

    answer: Answer | None
    """None before a trial has a rank."""
    prospects: Prospects | None
    """What its search expects of going on; None before its first trial was chosen."""
