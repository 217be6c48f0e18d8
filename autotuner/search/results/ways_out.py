"""The nearest way out of a failure: the layout that ran and differs least, or what to change of the sweep."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autotuner.core.columns import Integers
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import FailureKind, Trial
from autotuner.core.units import format_bytes
from autotuner.search.results.axis import Axis, Value, varied
from autotuner.search.text.sentences import change_in_words

_SLACK = 2.0
"""Times what the fewest steps need, so that a limit leaves room for the start and for steps that settle slowly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WayOut:
    """What to do about trials that died of one cause.

    Attributes:
        sentence: Without a full stop.
        change: From a layout that died to the layout that ran and differs least; empty where none did or it says
            nothing.
        trial_id: The trial of the layout that ran; None without one.
        number: Of that trial, inside its sweep.
        label: The layout that ran, in short.
    """

    sentence: str
    change: str = ""
    trial_id: str | None = None
    number: int | None = None
    label: str = ""


def way_out(kind: FailureKind, died: Sequence[Trial], ran: Sequence[Trial], request: SweepRequest) -> WayOut:
    """What would have helped, as far as trials of the sweep tell.

    Args:
        kind: Of death.
        died: Trials of one group.
        ran: Trials of the sweep that were measured.
        request: Of the sweep.
    """
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
    if one.layout == other.layout:
        return _to(other, f"trial {other.number} ran the same layout: it may be run again")
    change = change_in_words(one.layout, other.layout)
    return replace(_to(other, f"trial {other.number} ran with {change}{_peak(other)}"), change=change)


def _to(other: Trial, sentence: str) -> WayOut:
    return WayOut(sentence=sentence, trial_id=other.id, number=other.number, label=str(other.layout))


def _nearest(died: Sequence[Trial], ran: Sequence[Trial]) -> tuple[Trial, Trial]:
    fastest_first = sorted(ran, key=lambda trial: trial.reached.step_time_s if trial.reached else math.inf)
    every = [*fastest_first, *died]
    num_apart = np.zeros((len(ran), len(died)), dtype=np.int64)
    for axis in varied([trial.layout for trial in every]):
        codes = _codes(axis, every)
        num_apart += codes[: len(ran), None] != codes[None, len(ran) :]
    column, row = divmod(int(num_apart.argmin()), len(died))  # the first of the least, so of the fastest
    return died[row], fastest_first[column]


def _codes(axis: Axis, trials: Sequence[Trial]) -> Integers:
    """A number for the value of each trial's layout."""
    known: dict[Value, int] = {}
    return np.array([known.setdefault(axis.read(trial.layout), len(known)) for trial in trials])


def _peak(trial: Trial) -> str:
    peaks = trial.measurement.peak_bytes if trial.measurement and trial.scaled is None else ()
    return f", in {format_bytes(max(peaks))}" if peaks else ""


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
