"""What died, grouped by cause: how many, what they share, the number that decided, and the nearest way out."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import comb

import numpy as np

from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import FailureKind, Trial
from autotuner.core.units import format_bytes, format_duration
from autotuner.search.results.axis import AXES, Value, varied
from autotuner.search.results.reached import OfTrial, named
from autotuner.search.text.sentences import change_in_words
from autotuner.search.text.trials import FAILURE_WORDS

_SLACK = 2.0
"""Times what the fewest steps need, so that a limit leaves room for the start and for steps that settle slowly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WayOut:
    """What to do about trials that died of one cause."""

    sentence: str
    """Without a full stop."""
    change: str = ""
    """From a layout that died to the layout that ran and differs least; empty where none did or it says nothing."""
    trial_id: str | None = None
    """The trial of the layout that ran; None without one."""
    number: int | None = None
    """Of that trial, inside its sweep."""
    label: str = ""
    """The layout that ran, in short."""


def way_out(kind: FailureKind, died: Sequence[Trial], ran: Sequence[Trial], request: SweepRequest) -> WayOut:
    """What would have helped trials that died of one cause, as far as those that were measured tell."""
    match kind:
        case FailureKind.OOM:
            return _that_ran(died, ran) or WayOut(sentence=_more_memory(died, request))
        case FailureKind.TIMEOUT:
            return WayOut(sentence=_more_time(died, request))
        case FailureKind.INTERRUPTED | FailureKind.INFRASTRUCTURE:
            return WayOut(sentence="run them again once the machines are back; nothing is held against their layouts")
        case _:
            near = _that_ran(died, ran)
            read = "read the log of the rank that died first"
            return WayOut(sentence=read) if near is None else replace(near, sentence=f"{read}; {near.sentence}")


def _that_ran(died: Sequence[Trial], ran: Sequence[Trial]) -> WayOut | None:
    """The pair of a layout that died and one that ran which differ in the fewest choices, the fastest first."""
    if not died or not ran:
        return None
    one, other = _nearest(died, ran)
    change = change_in_words(one.layout, other.layout)
    peaks = other.measurement.peak_bytes if other.measurement else ()
    with_it = f"with {change}, in {format_bytes(max(peaks))}" if peaks else f"with {change}"
    is_same = one.layout == other.layout
    said = "the same layout: it may be run again" if is_same else with_it
    return WayOut(**named(other), sentence=f"trial {other.number} ran {said}", change="" if is_same else change)


def _nearest(died: Sequence[Trial], ran: Sequence[Trial]) -> tuple[Trial, Trial]:
    fastest_first = sorted(ran, key=lambda trial: trial.reached.step_time_s if trial.reached else math.inf)
    every = [*fastest_first, *died]
    num_apart = np.zeros((len(ran), len(died)), dtype=np.int64)
    for axis in varied([trial.layout for trial in every]):
        known: dict[Value, int] = {}
        codes = np.array([known.setdefault(axis.read(trial.layout), len(known)) for trial in every])
        num_apart += codes[: len(ran), None] != codes[None, len(ran) :]
    column, row = divmod(int(num_apart.argmin()), len(died))  # the first of the least, so of the fastest
    return died[row], fastest_first[column]


def _more_memory(died: Sequence[Trial], request: SweepRequest) -> str:
    """Where nothing ran: what the layout that needs least lacks."""
    limit = request.trial_job.cluster.accelerator.memory_bytes
    least = min(died, key=lambda trial: trial.prediction.memory.total_bytes)
    lacks = least.prediction.memory.total_bytes - limit
    most = "let more be recomputed or sharded, or use more ranks"
    if lacks <= 0:
        return f"nothing of the sweep ran; {most}"
    return f"nothing of the sweep ran; the least of them, {least.layout}, lacks {format_bytes(lacks)}: {most}"


def fewest_steps_s(died: Sequence[Trial], request: SweepRequest) -> float | None:
    """What the fewest steps that a trial runs are predicted to take, of the slowest of them.

    None of trials on fewer ranks than their job has: what is predicted is the layout that they stand for.
    """
    settings = request.trial
    if any(trial.scaled for trial in died):
        return None
    num_steps = settings.warmup_steps + settings.measured_steps + settings.profiled_steps
    num_faulty = 0 if request.fault_trace is None else request.fault_trace.num_steps
    return max(
        num_steps * trial.prediction.step_time.total_s + num_faulty * (trial.prediction.robust_step_s or 0.0)
        for trial in died
    )


def _more_time(died: Sequence[Trial], request: SweepRequest) -> str:
    """A longer limit where the steps need it; else something hangs."""
    needed_s = fewest_steps_s(died, request)
    if needed_s is None:
        return "give trials more time, or take fewer steps"
    if needed_s < request.trial_timeout_s:
        return "their steps need less: something hangs, which the log of the rank that was heard of last may tell"
    return f"set the timeout_s of trials to {_SLACK * needed_s:,.0f}, or take fewer steps"


# ---------------------------------------------------------------- groups
@dataclass(frozen=True, slots=True, kw_only=True)
class FailedTrial(OfTrial):
    """A trial that died."""

    message: str
    """One line."""
    rank: int | None
    """The rank that died first; None where it is not known."""
    has_log: bool
    """Its trial holds the last lines that this rank printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """A value that most trials of a group have, and more of them than chance would give it."""

    said: str
    """The choice with its value: ``recompute none``."""
    num_failed: int
    """Trials of the group that have it."""
    num_ran: int
    """Trials that ran well and have it, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """Trials that died of one cause."""

    kind: FailureKind
    cause: str
    """In words: ``out of memory``; groups of one kind differ in what their trials said."""
    trials: tuple[FailedTrial, ...]
    """By number."""
    num_ran: int
    """Trials of the sweep that were measured, without repeats."""
    shared: tuple[Shared, ...]
    """What sets them apart from these, what says most first; empty where nothing does."""
    deciding: str
    """The number that decided, as a sentence without a full stop; empty where there is none."""
    way_out: WayOut
    """What to do."""


def failures(request: SweepRequest, trials: Sequence[Trial]) -> tuple[FailureGroup, ...]:
    """The groups of a sweep's trials that died, the largest first."""
    ordered = sorted(trials, key=lambda trial: trial.number)
    ran = [trial for trial in ordered if trial.ran_measurement is not None and trial.repeats is None]
    groups: dict[tuple[FailureKind, str], list[Trial]] = {}
    for trial in ordered:
        if (why := trial.failure) is not None:  # of one kind, messages without ranks, addresses and sizes tell causes
            gist = "" if why.kind in _ONE_CAUSE else re.sub(r"0x[0-9a-f]+|\d+(\.\d+)?", "#", why.message)
            groups.setdefault((why.kind, gist), []).append(trial)
    found = [_group(kind, died, ran, request) for (kind, _), died in groups.items()]
    return tuple(sorted(found, key=lambda group: (-len(group.trials), group.trials[0].number)))


_ONE_CAUSE = (FailureKind.OOM, FailureKind.TIMEOUT, FailureKind.INFRASTRUCTURE, FailureKind.INTERRUPTED)
"""Kinds that are a cause by themselves, whatever their messages say."""


def _group(kind: FailureKind, died: Sequence[Trial], ran: Sequence[Trial], request: SweepRequest) -> FailureGroup:
    return FailureGroup(
        kind=kind,
        cause=FAILURE_WORDS[kind],
        trials=tuple(
            FailedTrial(**named(trial), message=why.message, rank=why.rank, has_log=bool(why.log_tail))
            for trial in died
            if (why := trial.failure)
        ),
        num_ran=len(ran),
        shared=_shared(died, ran),
        deciding=_deciding(kind, died, request),
        way_out=way_out(kind, died, ran, request),
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
    found: list[tuple[float, Shared]] = []
    for axis in AXES.values():
        had = Counter(axis.read(trial.layout) for trial in died)
        elsewhere = Counter(axis.read(trial.layout) for trial in ran)
        for value, num_failed in had.items():
            is_rarer = elsewhere[value] * len(died) <= _MOST_ELSEWHERE * num_failed * len(ran)
            chance = _chance(num_failed, len(died), num_failed + elsewhere[value], len(died) + len(ran))
            if num_failed >= _LEAST_SHARE * len(died) and is_rarer and chance <= _CHANCE:
                one = Shared(said=axis.said(value), num_failed=num_failed, num_ran=elsewhere[value])
                found.append((chance, one))
    return tuple(one for _, one in sorted(found, key=lambda pair: pair[0])[:_NUM_SHARED])


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
