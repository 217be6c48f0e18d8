"""What the end of a trainer's run means: a measurement, or a failure with its kind and the last that was printed."""

from __future__ import annotations

import contextlib
import signal
import time

from autotuner.core.measurement import Measurement
from autotuner.core.node_line import Death
from autotuner.core.trial import FailureKind, TrialFailure
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.units import format_seconds
from autotuner.launch.contract import AttemptEnd
from autotuner.launch.trainers.reports import Complaint, TrainerReports

_TAIL_LINES = 40

_AGENT_FOUND_DEAD = "failed (exitcode:"
"""First words of torchrun about a rank that died (torch/distributed/elastic/multiprocessing/api.py, 2.13)."""

_SHELL_SIGNALS = 128
"""A shell's exit code of a command that a signal ended is that much above the signal's number."""


def trainer_verdict(spec: TrialSpec, reports: TrainerReports, end: AttemptEnd) -> Measurement | TrialFailure:
    """How the run ended, judged by what the trainer told, how it left and what it printed.

    One rank's death makes its peers fail in their collectives, so a communication failure is believed only where
    nothing else is named, and torchrun's summary saw no rank ended by a signal.
    """
    if reports.measurement is not None:
        return reports.measurement
    if end.exit_code == 0 and not end.timed_out and reports.progress.is_enough and reports.failure is None:
        reports.complete()
        return reports.measurement or _failure(FailureKind.CRASH, "no step was measured", None, end)
    return _failure(*_cause(spec, reports, end), end)


_Cause = tuple[FailureKind, str, int | None]


def _cause(spec: TrialSpec, reports: TrainerReports, end: AttemptEnd) -> _Cause:
    symptoms = reports.symptoms
    if failure := reports.failure:
        return failure.kind, failure.message, failure.rank
    if end.exit_code == 0 and not end.timed_out:
        return FailureKind.CRASH, _too_few(spec, reports), None
    is_limited = spec.settings.memory_budget_bytes is not None
    if memory := symptoms.out_of_memory or (symptoms.out_of_limited_memory if is_limited else None):
        return _said(FailureKind.OOM, memory)
    if end.timed_out:
        return FailureKind.TIMEOUT, _hang(spec, reports), None
    death = symptoms.root or Death(rank=-1, exit_code=_signal_of(end.exit_code))
    if death.exit_code < 0 and not (death.rank < 0 and symptoms.error):
        return _killed(death, oom_killed=end.oom_killed)
    if symptoms.error:
        return _said(FailureKind.CRASH, symptoms.error, death)
    if symptoms.communication:
        return _said(FailureKind.COMMUNICATION, symptoms.communication, death)
    who = f"rank {death.rank}" if death.rank >= 0 else "the trainer"
    message = f"{who} ended with exit code {death.exit_code}, {_how_far(reports)}"
    last_words = next(iter(_own_lines(end.log)[-1:]), "")
    return FailureKind.CRASH, f"{message}; the last it said: {last_words}" if last_words else message, _rank(death.rank)


def _said(kind: FailureKind, complaint: Complaint, death: Death | None = None) -> _Cause:
    rank = complaint.rank
    if rank is None and death is not None:
        rank = _rank(death.rank)
    return kind, complaint.text, rank


def _killed(death: Death, *, oom_killed: bool) -> _Cause:
    who = f"rank {death.rank}" if death.rank >= 0 else "the trainer"
    by_kernel = oom_killed and death.exit_code == -signal.SIGKILL
    message = f"{who} was ended by {_signal_name(-death.exit_code)}"
    kind = FailureKind.OOM if by_kernel else FailureKind.CRASH
    return kind, message + (", the kernel's out-of-memory killer" if by_kernel else ""), _rank(death.rank)


def _signal_of(exit_code: int | None) -> int:
    """The code as Python has it: below zero is a signal, which a shell would tell as a number above 128."""
    code = exit_code or 0
    with contextlib.suppress(ValueError):
        if code > _SHELL_SIGNALS:
            return -signal.Signals(code - _SHELL_SIGNALS)
    return code


def _signal_name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def _rank(rank: int) -> int | None:
    return rank if rank >= 0 else None


def _too_few(spec: TrialSpec, reports: TrainerReports) -> str:
    settings = spec.settings
    needed = settings.warmup_steps + settings.measured_steps
    seen = len(reports.progress.steps)
    of_which = f", of which {reports.progress.num_measured} after the step time was stationary" if seen else ""
    return (
        f"the trainer ended by itself after {seen} steps whose times it told{of_which}; at least {needed} are needed, "
        f"{settings.warmup_steps} to warm up and {settings.measured_steps} measured"
    )


def _hang(spec: TrialSpec, reports: TrainerReports) -> str:
    limit = f"no result within {format_seconds(spec.settings.timeout_s)}"
    progress = reports.progress
    if progress.last_step is None or progress.last_at_s is None:
        return f"{limit}; no step was told"
    since_s = (reports.ended_at or time.time()) - progress.last_at_s  # both by the node's clock
    return f"{limit}; the last step was {progress.last_step}, {format_seconds(since_s)} before the end"


def _how_far(reports: TrainerReports) -> str:
    last = reports.progress.last_step
    return "before its first step" if last is None else f"after step {last}"


def _own_lines(log: str) -> list[str]:
    """What the ranks printed: torchrun's own traceback and summary, which are longer than any tail, come after it."""
    lines = log.splitlines()
    agent = next((number for number, line in enumerate(lines) if _AGENT_FOUND_DEAD in line), len(lines))
    return lines[:agent] or lines


def _failure(kind: FailureKind, message: str, rank: int | None, end: AttemptEnd) -> TrialFailure:
    tail = "\n".join(_own_lines(end.log)[-_TAIL_LINES:])
    return TrialFailure(kind=kind, message=message, rank=rank, log_tail=tail)
