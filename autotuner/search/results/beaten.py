"""What the best layout of a sweep beats: what runs today, the next ranks, and the best without each of its choices."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from autotuner.core.layout import Layout
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import Trial
from autotuner.search.results.axis import AXES, Axis
from autotuner.search.standings import Standing
from autotuner.search.text.sentences import change_in_words

_NUM_NEXT = 2
"""Ranks behind the best that are told of; the ranking has the others."""

_NUM_NAMED = 3
"""Choices that are named before the rest is counted."""


class Rival(StrEnum):
    """Why a layout stands beside the best."""

    IN_USE = "in_use"  # it runs today
    NEXT = "next"  # one of the ranks that follow
    WITHOUT = "without"  # the best that lacks some choices of the best


@dataclass(frozen=True, slots=True, kw_only=True)
class Beaten:
    """A ranked layout beside the best.

    Attributes:
        rival: Why it stands there.
        without: Choices of the best that no layout up to this rank lacks: ``tp 4``; empty for other rivals.
        said: What it is, in words: ``what runs today``, ``rank 2``, ``rank 4, the best with a different tp``.
        rank: From 1.
        number: Of the trial, inside its sweep.
        label: The layout in short.
        change: What differs, from it to the best.
        gain: Value of the best beyond its own, as a fraction of its own: throughput, where the sweep ranks by speed.
        gain_error: Half the 95 % interval of the gain, with what equal runs differ by.
        is_tie: The difference is no larger than chance makes it, 95 times in 100.
    """

    rival: Rival
    without: tuple[str, ...]
    said: str
    rank: int
    trial_id: str
    number: int
    label: str
    layout: Layout
    change: str
    gain: float
    gain_error: float
    is_tie: bool


def beaten(request: SweepRequest, ranked: Sequence[Trial], standing: Mapping[str, Standing]) -> tuple[Beaten, ...]:
    """Each rival once, under the first name that it has: what runs today, the next ranks, then what lacks choices.

    Args:
        request: Its challenge knows what runs today.
        ranked: The best first.
        standing: Of each of them.
    """
    best = ranked[0]
    rivals = {
        rank: (rival, axes) for rank, rival, axes in reversed([*_rivals(request, ranked)])
    }  # the first name comes last, and stays
    found = [_beside(best, ranked[rank - 1], rank, *rivals[rank], standing) for rank in sorted(rivals)]
    return tuple(sorted(found, key=lambda one: [*Rival].index(one.rival)))


def _rivals(request: SweepRequest, ranked: Sequence[Trial]) -> Iterator[tuple[int, Rival, tuple[Axis, ...]]]:
    """Ranks behind the best, each with why it is told of."""
    in_use = request.challenge.incumbent if request.challenge else None
    for rank, trial in enumerate(ranked[1:], 2):
        if trial.layout == in_use:
            yield rank, Rival.IN_USE, ()
    for rank in range(2, min(len(ranked), 1 + _NUM_NEXT) + 1):
        yield rank, Rival.NEXT, ()
    without: dict[int, tuple[Axis, ...]] = {}
    for axis in AXES.values():
        if rank := _first_without(axis, ranked):
            without[rank] = (*without.get(rank, ()), axis)
    for rank, axes in without.items():
        yield rank, Rival.WITHOUT, axes


def _first_without(axis: Axis, ranked: Sequence[Trial]) -> int:
    """The best rank with another value on that axis; 0 where all have the same."""
    value = axis.read(ranked[0].layout)
    return next((rank for rank, trial in enumerate(ranked, 1) if axis.read(trial.layout) != value), 0)


def _beside(
    best: Trial, other: Trial, rank: int, rival: Rival, axes: tuple[Axis, ...], standing: Mapping[str, Standing]
) -> Beaten:
    mine, theirs = standing[best.id], standing[other.id]
    ratio = mine.value / theirs.value
    without = tuple(axis.said(axis.read(best.layout)) for axis in axes)
    return Beaten(
        rival=rival,
        without=without,
        said=_said(rival, rank, tuple(axis.label for axis in axes)),
        rank=rank,
        trial_id=other.id,
        number=other.number,
        label=str(other.layout),
        layout=other.layout,
        change=change_in_words(other.layout, best.layout),
        gain=ratio - 1,
        gain_error=ratio * math.hypot(mine.relative_error, theirs.relative_error),
        is_tie=theirs.tied_with_best,
    )


def _said(rival: Rival, rank: int, other: tuple[str, ...]) -> str:
    match rival:
        case Rival.IN_USE:
            return "what runs today"
        case Rival.NEXT:
            return f"rank {rank}"
        case Rival.WITHOUT:
            return f"rank {rank}, the best with a different {_either(other)}"


def _either(choices: tuple[str, ...]) -> str:
    """``tp or pp``; of many the first few, as the change names all that differs."""
    if len(choices) <= _NUM_NAMED:
        return " or ".join(choices)
    return f"{', '.join(choices[: _NUM_NAMED - 1])} or {len(choices) - _NUM_NAMED + 1} other choices"
