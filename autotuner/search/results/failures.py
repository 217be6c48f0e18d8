"""Failures of trials, grouped by cause, with the properties that they share and a remedy."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import Literal

import numpy as np

from autotuner.core.layout import Layout
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import FailureKind, Trial
from autotuner.search.results.axis import AXES, Value, varied_axes

_SLACK = 2.0
"""Factor on the time of the fewest steps, so that a proposed time limit leaves room for the start and for steps that
become stationary late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WayOut:
    """A way to avoid the failures of a group of trials: a similar layout that ran, or a longer time limit."""

    died: Layout
    """Failed layout that is nearest to a successful one. Without ``trial`` and ``layout``: the failed layout with the
    least predicted memory."""
    trial: int | None = None
    """Number of a similar trial that succeeded; None if none did, or if no other layout helps."""
    layout: Layout | None = None
    """Layout of that trial. It may be equal to the failed one."""
    peak_bytes: float | None = None
    """Peak bytes of that trial; None if no rank reported them."""
    timeout_s: float | None = None
    """Time limit that is long enough for trials that timed out; None if a longer limit does not help, or if it is not
    known."""


def _way_out(
    kind: FailureKind, died: Sequence[Trial], ran: Sequence[Trial], needed_s: float | None, request: SweepRequest
) -> WayOut:
    least = min(died, key=lambda trial: trial.prediction.memory.total_bytes)
    if kind is FailureKind.TIMEOUT and needed_s is not None and needed_s >= request.trial_timeout_s:
        return WayOut(died=least.layout, timeout_s=_SLACK * needed_s)
    if not ran or kind in _WITHOUT_LAYOUT:
        return WayOut(died=least.layout)
    one, other = _nearest(died, ran)
    peak_bytes = other.measurement.highest_peak_bytes if other.measurement else None
    return WayOut(died=one.layout, trial=other.number, layout=other.layout, peak_bytes=peak_bytes)


_WITHOUT_LAYOUT = (FailureKind.TIMEOUT, FailureKind.INTERRUPTED, FailureKind.INFRASTRUCTURE)
"""Kinds of failures that another layout does not prevent."""


def _nearest(died: Sequence[Trial], ran: Sequence[Trial]) -> tuple[Trial, Trial]:
    """Return a failed and a successful trial that differ in the fewest choices, the fastest pair first."""
    fastest_first = sorted(ran, key=lambda trial: trial.reached.step_time_s if trial.reached else math.inf)
    every = [*fastest_first, *died]
    num_apart = np.zeros((len(ran), len(died)), dtype=np.int64)
    for axis in varied_axes([trial.layout for trial in every]):
        known: dict[Value, int] = {}
        codes = np.array([known.setdefault(axis.read(trial.layout), len(known)) for trial in every])
        num_apart += codes[: len(ran), None] != codes[None, len(ran) :]
    # the first pair with the smallest difference, and so the fastest
    column, row = divmod(int(num_apart.argmin()), len(died))
    return died[row], fastest_first[column]


def _fewest_steps_s(died: Sequence[Trial], request: SweepRequest) -> float | None:
    """Return the predicted time of a trial's fewest steps, for the slowest of the failed trials.

    Return None for proxy trials, because predictions are for the layout at full size and not for the proxy.
    """
    settings = request.trial
    if any(trial.proxy for trial in died):
        return None
    num_steps = settings.warmup_steps + settings.measured_steps + settings.profiled_steps
    num_faulty = 0 if request.fault_trace is None else request.fault_trace.num_steps
    return max(
        num_steps * trial.prediction.step_time.total_s + num_faulty * (trial.prediction.robust_step_s or 0.0)
        for trial in died
    )


# ---------------------------------------------------------------- groups
@dataclass(frozen=True, slots=True, kw_only=True)
class FailedTrial:
    """A trial that failed, with its error message and the rank that failed first."""

    trial: int
    """Number of the trial in its sweep."""
    message: str
    """Message of one line."""
    rank: int | None
    """Rank that failed first; None if it is not known."""
    has_log: bool
    """True if the trial has the last lines that this rank printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """An option value that most failed trials of a group have, but few successful ones: it may be the cause."""

    choice: str
    """Name of the choice: ``recompute``."""
    value: Value
    """Value of the choice: ``none``."""
    num_failed: int
    """Number of trials in the group with this value."""
    num_ran: int
    """Number of successful trials with this value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisive:
    """The figure that explains a group of failures (memory, time or attempts), and the limit that it exceeded."""

    unit: Literal["bytes", "s", "attempts"]
    """Unit of the figures: predicted peak bytes of trials that ran out of memory, predicted seconds of the fewest steps
    of trials that timed out, or numbers of attempts of trials whose machines were lost."""
    least: float | None
    """Smallest figure of any trial in the group; for steps, that of the slowest trial. None if it is unknown."""
    most: float | None
    """Largest figure of any trial in the group; None if it is unknown."""
    limit: float | None
    """Limit that the trials exceeded; None for attempts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """Failed trials of a sweep that have the same cause, with their common options and a possible remedy."""

    kind: FailureKind
    """Kind of the failures. Two groups of one kind differ in their trials' messages."""
    trials: tuple[FailedTrial, ...]
    """Failed trials of the group, by number."""
    num_ran: int
    """Number of trials of the sweep that were measured, without repeats."""
    shared: tuple[Shared, ...]
    """Values of choices that most failed trials have and few successful trials have, the clearest first; empty if there
    are none."""
    num_fitting: int
    """Number of the group's trials that were predicted to fit in memory."""
    decisive: Decisive | None
    """Figure that explains the failures, such as predicted peaks; None if there is none."""
    way_out: WayOut
    """Possible remedy for the group."""


def failures(request: SweepRequest, trials: Sequence[Trial]) -> tuple[FailureGroup, ...]:
    """Return the failed trials of a sweep in groups by cause, the largest group first.

    Args:
        request: The request of the sweep.
        trials: All trials of the sweep, including those that did not fail.
    """
    ordered = sorted(trials, key=lambda trial: trial.number)
    ran = [trial for trial in ordered if trial.ran_measurement is not None and trial.repeats is None]
    groups: dict[tuple[FailureKind, str], list[Trial]] = {}
    for trial in ordered:
        # within a kind, messages without ranks, addresses and sizes distinguish causes
        if (why := trial.failure) is not None:
            gist = "" if why.kind in _ONE_CAUSE else re.sub(r"0x[0-9a-f]+|\d+(\.\d+)?", "#", why.message)
            groups.setdefault((why.kind, gist), []).append(trial)
    found = [_group(kind, died, ran, request) for (kind, _), died in groups.items()]
    return tuple(sorted(found, key=lambda group: (-len(group.trials), group.trials[0].trial)))


_ONE_CAUSE = (FailureKind.OOM, FailureKind.TIMEOUT, FailureKind.INFRASTRUCTURE, FailureKind.INTERRUPTED)
"""Kinds of failures that are one cause, whatever the trials' messages are."""


def _group(kind: FailureKind, died: Sequence[Trial], ran: Sequence[Trial], request: SweepRequest) -> FailureGroup:
    needed_s = _fewest_steps_s(died, request) if kind is FailureKind.TIMEOUT else None
    return FailureGroup(
        kind=kind,
        trials=tuple(
            FailedTrial(trial=trial.number, message=why.message, rank=why.rank, has_log=bool(why.log_tail))
            for trial in died
            if (why := trial.failure)
        ),
        num_ran=len(ran),
        shared=_shared(died, ran),
        num_fitting=sum(trial.prediction.fits for trial in died),
        decisive=_decisive(kind, died, needed_s, request),
        way_out=_way_out(kind, died, ran, needed_s, request),
    )


def _decisive(
    kind: FailureKind, died: Sequence[Trial], needed_s: float | None, request: SweepRequest
) -> Decisive | None:
    match kind:
        case FailureKind.OOM:
            peaks = [trial.prediction.memory.total_bytes for trial in died]
            limit_bytes = float(request.trial_job.cluster.accelerator.memory_bytes)
            return Decisive(unit="bytes", least=min(peaks), most=max(peaks), limit=limit_bytes)
        case FailureKind.TIMEOUT:
            return Decisive(unit="s", least=needed_s, most=needed_s, limit=request.trial_timeout_s)
        case FailureKind.INFRASTRUCTURE | FailureKind.INTERRUPTED:
            attempts = [trial.attempts for trial in died]
            return Decisive(unit="attempts", least=min(attempts), most=max(attempts), limit=None)
        case _:
            return None


# ---------------------------------------------------------------- what they share
_LEAST_SHARE = 2 / 3
"""Smallest share of a group's trials that must have a value for it to be called shared."""

_MOST_ELSEWHERE = 3 / 4
"""Largest share of the successful trials that may have the value, relative to the group's share. A value that nearly
all trials have explains little."""

_CHANCE = 0.05
"""Largest probability of chance: a value is called shared only if as many trials of the group would have it by chance
in one of twenty cases at most."""

_NUM_SHARED = 3


def _shared(died: Sequence[Trial], ran: Sequence[Trial]) -> tuple[Shared, ...]:
    """Return the values that most failed trials have and few others have, the clearest first."""
    found: list[tuple[float, Shared]] = []
    for axis in AXES.values():
        had = Counter(axis.read(trial.layout) for trial in died)
        elsewhere = Counter(axis.read(trial.layout) for trial in ran)
        for value, num_failed in had.items():
            is_rarer = elsewhere[value] * len(died) <= _MOST_ELSEWHERE * num_failed * len(ran)
            chance = _chance(num_failed, len(died), num_failed + elsewhere[value], len(died) + len(ran))
            if num_failed >= _LEAST_SHARE * len(died) and is_rarer and chance <= _CHANCE:
                one = Shared(choice=axis.name, value=value, num_failed=num_failed, num_ran=elsewhere[value])
                found.append((chance, one))
    return tuple(one for _, one in sorted(found, key=lambda pair: pair[0])[:_NUM_SHARED])


def _chance(num_had: int, num_drawn: int, num_having: int, num_all: int) -> float:
    """Return the probability that as many or more of the drawn trials have a value (hypergeometric distribution)."""
    highest = min(num_drawn, num_having)
    ways = sum(comb(num_having, k) * comb(num_all - num_having, num_drawn - k) for k in range(num_had, highest + 1))
    return ways / comb(num_all, num_drawn)
