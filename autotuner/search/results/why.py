"""Why one layout is faster than another, by the parts of their steps: measured where both were, else predicted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from autotuner.core.job import Job
from autotuner.core.objective import Objective
from autotuner.core.prediction import StepTime
from autotuner.core.trial import Trial
from autotuner.core.units import format_seconds
from autotuner.search.explain.bottlenecks import PART_WORDS, limit_of
from autotuner.search.results.side_by_side import measured_parts, shifts_between, shifts_in_words
from autotuner.search.text.sentences import signed

_WORTHWHILE = 0.01
"""Share of the step below which a part is not worth saying."""

_NUM_PARTS = 2
"""Parts of a kind, longer or shorter, that a sentence holds."""

_APART = 0.03
"""Prediction and measurement of a gain are said side by side where they differ by more: 3 points of throughput."""


def why_faster(best: Trial, other: Trial, job: Job, gain: float, than: str, *, objective: Objective) -> tuple[str, ...]:
    """One to four sentences without full stops; they say whether parts are measured or predicted.

    Where the predictions do not tell the gain, a sentence says so.

    Args:
        best: The faster one.
        other: What it is held to.
        job: Of both.
        gain: By which it was found to be faster, as a fraction of the other's throughput.
        than: What the other is called: ``rank 2``.
        objective: What the gain is one of; under faults, what these cost is said first.
    """
    mine, theirs = objective.predicted_step_s(best.prediction), objective.predicted_step_s(other.prediction)
    expected = theirs / mine - 1
    return (
        *(_under_faults(mine, theirs, than) if objective.under_faults else ()),
        *_parts(best, other, job, than, gain, is_healthy=objective.under_faults),
        *_beside(expected, gain),
    )


def _under_faults(mine_s: float, theirs_s: float, than: str) -> Iterator[str]:
    """What is predicted of the whole trace."""
    means = f"{format_seconds(mine_s)} in the mean, that of {than} {format_seconds(theirs_s)}"
    yield f"under the fault trace a step is predicted to take {means}"


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
    moved = {part: shift for part, shift in shifts.items() if abs(shift) >= _WORTHWHILE * theirs.total_s}
    saved = sorted((part for part in moved if moved[part] < 0), key=moved.__getitem__)[:_NUM_PARTS]
    added = sorted((part for part in moved if moved[part] > 0), key=moved.__getitem__, reverse=True)[:_NUM_PARTS]
    if saved or added:
        yield f"{where}its step is predicted to spend {_lists(saved, added, shifts)}"
    else:
        yield f"{where}no part of the step is predicted to differ by 1 % of it"
    if saved:
        yield f"{PART_WORDS[saved[0]]} of {than}: {limit_of(saved[0], other.layout, job)}"


def _beside(expected: float, gain: float) -> Iterator[str]:
    """Where the predictions do not tell the gain."""
    if _is_another(expected, gain):
        yield f"predicted was a gain of {signed(expected)}; {signed(gain)} was found"


def _is_another(told: float, gain: float) -> bool:
    return abs(told - gain) >= _APART or (told < 0) != (gain < 0)


def _lists(saved: list[str], added: list[str], shifts: dict[str, float]) -> str:
    less = " and ".join(f"{format_seconds(-shifts[part])} less on {PART_WORDS[part]}" for part in saved)
    more = " and ".join(f"{format_seconds(shifts[part])} more on {PART_WORDS[part]}" for part in added)
    return ", but ".join(each for each in (less, more) if each)
