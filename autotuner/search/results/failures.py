"""What died, grouped by cause: how many, what they share, the number that decided, and the nearest way out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import comb

from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import FailureKind, Trial
from autotuner.core.units import format_bytes, format_duration
from autotuner.search.results.axis import AXES, Axis
from autotuner.search.results.ways_out import WayOut, fewest_steps_s, way_out
from autotuner.search.text.trials import FAILURE_WORDS


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedTrial:
    """A trial that died.

    Attributes:
        number: Inside its sweep.
        label: Its layout in short.
        message: One line.
        rank: The rank that died first; None where it is not known.
        has_log: Its trial holds the last lines that this rank printed.
    """

    trial_id: str
    number: int
    label: str
    message: str
    rank: int | None
    has_log: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """A value that most trials of a group have, and more of them than chance would give it.

    Attributes:
        said: The choice with its value: ``recompute none``.
        num_failed: Trials of the group that have it.
        num_ran: Trials that ran well and have it, too.
    """

    said: str
    num_failed: int
    num_ran: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """Trials that died of one cause.

    Attributes:
        cause: In words: ``out of memory``; groups of one kind differ in what their trials said.
        trials: By number.
        num_ran: Trials of the sweep that were measured, without repeats.
        shared: What sets them apart from these, what says most first; empty where nothing does.
        deciding: The number that decided, as a sentence without a full stop; empty where there is none.
        way_out: What to do.
    """

    kind: FailureKind
    cause: str
    trials: tuple[FailedTrial, ...]
    num_ran: int
    shared: tuple[Shared, ...]
    deciding: str
    way_out: WayOut


def failures(request: SweepRequest, trials: Sequence[Trial]) -> tuple[FailureGroup, ...]:
    """The groups of a sweep's trials that died, the largest first."""
    ordered = sorted(trials, key=lambda trial: trial.number)
    ran = [trial for trial in ordered if trial.measurement is not None and trial.repeats is None]
    groups: dict[tuple[FailureKind, str], list[Trial]] = {}
    for trial in ordered:
        if trial.failure is not None:
            groups.setdefault((trial.failure.kind, _gist(trial)), []).append(trial)
    found = [_group(kind, died, ran, request) for (kind, _), died in groups.items()]
    return tuple(sorted(found, key=lambda group: (-len(group.trials), group.trials[0].number)))


_ONE_CAUSE = (FailureKind.OOM, FailureKind.TIMEOUT, FailureKind.INFRASTRUCTURE, FailureKind.INTERRUPTED)
"""Kinds that are a cause by themselves, whatever their messages say."""


def _gist(trial: Trial) -> str:
    """What tells causes of one kind apart: the message without ranks, addresses and sizes."""
    assert trial.failure is not None, "it died"
    if trial.failure.kind in _ONE_CAUSE:
        return ""
    return re.sub(r"0x[0-9a-f]+|\d+(\.\d+)?", "#", trial.failure.message)


def _group(kind: FailureKind, died: Sequence[Trial], ran: Sequence[Trial], request: SweepRequest) -> FailureGroup:
    return FailureGroup(
        kind=kind,
        cause=FAILURE_WORDS[kind],
        trials=tuple(_failed(trial) for trial in died),
        num_ran=len(ran),
        shared=_shared(died, ran),
        deciding=_deciding(kind, died, request),
        way_out=way_out(kind, died, ran, request),
    )


def _failed(trial: Trial) -> FailedTrial:
    assert trial.failure is not None, "it died"
    return FailedTrial(
        trial_id=trial.id,
        number=trial.number,
        label=str(trial.layout),
        message=trial.failure.message,
        rank=trial.failure.rank,
        has_log=bool(trial.failure.log_tail),
    )


# ---------------------------------------------------------------- what they share
_LEAST_SHARE = 2 / 3
"""Share of the trials of a group that have to have what the group is said to share."""

_MOST_ELSEWHERE = 3 / 4
"""Most of that share which the trials that ran well may reach: what nearly all have tells little."""

_CHANCE = 0.05
"""A value is named where as many of the group would have it by chance in one of twenty cases at most."""

_NUM_SHARED = 3


def _shared(died: Sequence[Trial], ran: Sequence[Trial]) -> tuple[Shared, ...]:
    """Values that most of them have and too few of the others to call it chance, what says most first."""
    found = [one for axis in AXES.values() for one in _of_axis(axis, died, ran)]
    return tuple(one for _, one in sorted(found, key=lambda pair: pair[0])[:_NUM_SHARED])


def _of_axis(axis: Axis, died: Sequence[Trial], ran: Sequence[Trial]) -> Iterator[tuple[float, Shared]]:
    """Each such value of an axis, with how likely it is by chance."""
    had = Counter(axis.read(trial.layout) for trial in died)
    elsewhere = Counter(axis.read(trial.layout) for trial in ran)
    for value, num_failed in had.items():
        is_rarer = elsewhere[value] * len(died) <= _MOST_ELSEWHERE * num_failed * len(ran)
        if num_failed < _LEAST_SHARE * len(died) or not is_rarer:
            continue
        chance = _chance(num_failed, len(died), num_failed + elsewhere[value], len(died) + len(ran))
        if chance <= _CHANCE:
            yield chance, Shared(said=axis.said(value), num_failed=num_failed, num_ran=elsewhere[value])


def _chance(num_had: int, num_drawn: int, num_having: int, num_all: int) -> float:
    """Probability that so many or more of those drawn have it, of whom so many have it among all (hypergeometric)."""
    highest = min(num_drawn, num_having)
    ways = sum(comb(num_having, k) * comb(num_all - num_having, num_drawn - k) for k in range(num_had, highest + 1))
    return ways / comb(num_all, num_drawn)


# ---------------------------------------------------------------- what decided
def _deciding(kind: FailureKind, died: Sequence[Trial], request: SweepRequest) -> str:
    match kind:
        case FailureKind.OOM:
            return _too_little_memory(died, request)
        case FailureKind.TIMEOUT:
            limit, needed_s = format_duration(request.trial_timeout_s), fewest_steps_s(died, request)
            needed = "" if needed_s is None else format_duration(needed_s)
            steps = "the fewest steps of the slowest of them are predicted to take"
            return f"no end after {limit}" + (f"; {steps} {needed}" if needed else "")
        case FailureKind.INFRASTRUCTURE | FailureKind.INTERRUPTED:
            return f"started up to {max(trial.attempts for trial in died)} times"
        case _:
            return ""


def _too_little_memory(died: Sequence[Trial], request: SweepRequest) -> str:
    limit = request.trial_job.cluster.accelerator.memory_bytes
    peaks = sorted(trial.prediction.memory.total_bytes for trial in died)
    ends = [format_bytes(peaks[0]), format_bytes(peaks[-1])]
    need = ends[0] if ends[0] == ends[1] else " to ".join(ends)
    fitting = sum(trial.prediction.fits for trial in died)
    surprise = f"; {fitting} of {len(died)} were predicted to fit" if fitting else ""
    return f"predicted to need {need} of {format_bytes(limit)}{surprise}"
