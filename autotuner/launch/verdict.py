"""What a trial's end means: a measurement, or a failure with its kind, its rank and that rank's last words."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import replace

from autotuner.core.measurement import Measurement
from autotuner.core.trial import FailureKind, TrialFailure
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.units import format_seconds
from autotuner.launch.ranks import Death, Ranks
from autotuner.launch.reports import RankFailure, Reports, TrialReports

_TAIL_LINES = 40

_CPP_FRAME = re.compile(r"frame #\d+: ")

_STACK = re.compile(r"^(?:Current thread|Stack) .*most recent call first\)?:?\n((?:  File .*\n?)+)", re.MULTILINE)
"""What faulthandler writes when a rank is asked for its stack."""


def is_complete(spec: TrialSpec, reports: TrialReports) -> bool:
    """Whether the ranks have reported all that the trial asks for; of a trainer no steps are profiled."""
    measured, has_profile = reports.measurement, bool(spec.settings.profiled_steps) and spec.trainer is None
    return measured is not None and (measured.breakdown is not None or not has_profile)


def verdict(
    spec: TrialSpec, reports: Reports, ranks: Ranks, *, rank_logs: Mapping[int, str], timed_out: bool, oom_killed: bool
) -> Measurement | TrialFailure:
    """How the trial ended, judged by what its ranks reported and what whoever started them saw of them.

    What ended the profiled steps costs the trial its breakdown, no more: the measurement was complete before them.

    One rank's death makes its peers fail in their collectives, so a communication failure is believed only when no
    rank reported anything else and none was killed.

    Args:
        spec: The trial.
        reports: What its ranks wrote, read to the end.
        ranks: As whoever started them saw them.
        rank_logs: Each rank's standard error, as far as there is one.
        timed_out: The trial ran past its limit.
        oom_killed: An out-of-memory killer struck where the ranks ran, while they did; so a rank that SIGKILL ended ran
            out of memory.
    """
    measured = reports.measurement
    if measured is not None and is_complete(spec, reports):
        return measured
    failure = _failure(spec, reports, ranks, rank_logs=rank_logs, timed_out=timed_out, oom_killed=oom_killed)
    return failure if measured is None else replace(measured, breakdown_failure=f"{failure.kind}: {failure.message}")


def _failure(
    spec: TrialSpec, reports: Reports, ranks: Ranks, *, rank_logs: Mapping[int, str], timed_out: bool, oom_killed: bool
) -> TrialFailure:
    own = [failure for failure in reports.failures if failure.kind != FailureKind.COMMUNICATION]
    if own:
        return _reported(own[0], rank_logs)
    if timed_out:
        return _timed_out(spec, rank_logs)
    reported = {failure.rank for failure in reports.failures}
    if silent := next((death for death in ranks.deaths() if death.rank not in reported), None):
        return _killed(silent, rank_logs, oom_killed=oom_killed)
    if reports.failures:
        return _reported(reports.failures[0], rank_logs)
    message = "the ranks ended, or never started, without a report"
    return TrialFailure(kind=FailureKind.CRASH, message=message, log_tail=_tail(ranks.log()))


def _reported(failure: RankFailure, logs: Mapping[int, str]) -> TrialFailure:
    log = logs.get(failure.rank, "")
    tail = _tail(log if failure.traceback in log else log + failure.traceback)
    return TrialFailure(kind=failure.kind, message=failure.message, rank=failure.rank, log_tail=tail)


def _timed_out(spec: TrialSpec, logs: Mapping[int, str]) -> TrialFailure:
    rank = _stuck_rank(logs)
    message = f"no result within {format_seconds(spec.settings.timeout_s)}"
    if rank is not None:
        message += f"; rank {rank} hangs, the others wait for it"
    tail = _tail(logs.get(rank if rank is not None else 0, ""))
    return TrialFailure(kind=FailureKind.TIMEOUT, message=message, rank=rank, log_tail=tail)


def _killed(death: Death, logs: Mapping[int, str], *, oom_killed: bool) -> TrialFailure:
    rank, exit_code = death.rank, death.exit_code
    cause = signal.Signals(-exit_code).name if exit_code < 0 else f"exit code {exit_code}"
    by_kernel = oom_killed and exit_code == -signal.SIGKILL
    kind = FailureKind.OOM if by_kernel else FailureKind.CRASH
    message = f"rank {rank} was ended by {cause}" + (", the kernel's out-of-memory killer" if by_kernel else "")
    return TrialFailure(kind=kind, message=message, rank=rank, log_tail=_tail(logs.get(rank, "")))


def _stuck_rank(logs: Mapping[int, str]) -> int | None:
    """The rank that the others wait for: it answers with no stack at all, or else with one outside torch.distributed.

    In this order, since a rank may wait where Python does not see it: for DDP, in the backward pass.
    """
    stacks = {rank: _STACK.findall(text)[-1:] for rank, text in logs.items()}
    if not any(stacks.values()):
        return None
    silent = [rank for rank, stack in stacks.items() if not stack]
    busy = [rank for rank, stack in stacks.items() if stack and "torch/distributed" not in _innermost_frames(stack[0])]
    return next(iter(silent + busy), None)


def _innermost_frames(stack: str) -> str:
    return "\n".join(stack.splitlines()[:3])


def _tail(text: str) -> str:
    """The last lines; of a text that is longer without torch's C++ stacks, which are, and stand behind their error."""
    lines = text.splitlines()
    if len(lines) > _TAIL_LINES:
        lines = [line for line in lines if not _CPP_FRAME.match(line)]
    return "\n".join(lines[-_TAIL_LINES:])
