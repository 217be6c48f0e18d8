"""Follows one attempt to its outcome: it reads the ranks' reports until they measured, failed or must stop."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from autotuner.core.measurement import LinkEvent, Measurement, StepReport
from autotuner.core.node_line import Death, NodeEnd, NodeLine, RankFailure
from autotuner.core.trial import FailureKind, Stopped, TrialFailure
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.units import format_seconds
from autotuner.launch.contract import AttemptEnd, Ending, Ranks, Result, TrialWatcher, Work, launcher_work
from autotuner.launch.lines import RankReports, deaths_of

_CAUSE_S = 60.0
"""Seconds that the cause gets to appear when a rank has only reported the loss of its peers. On a busy node, torchrun
needed more than ten seconds to find a killed rank, and the engine needed more to pass that on."""

_POLL_S = 0.05


def follow(
    work: Work[Result],
    ranks: Ranks,
    watcher: TrialWatcher,
    *,
    deadline: float,
    meanwhile: Callable[[], None] = lambda: None,
) -> Result | TrialFailure | Stopped:
    """Follow the running ranks of a trial until they end or must be ended, and return the result.

    The ranks must end when the result is complete, the work has failed, the time is up or the watcher asks for a stop.
    This function then ends them.

    Args:
        work: The work that the ranks do.
        ranks: The started ranks, which are ended when this function returns or raises.
        watcher: Gets the reports. If the watcher raises an error, this function raises the same error.
        deadline: Time on the monotonic clock at which the time is up.
        meanwhile: Called many times a second while the ranks run.

    Returns:
        The result, the failure, or why the ranks were stopped.

    Raises:
        CannotRun: Files or processes of the launcher failed.
    """
    try:
        why = _followed(work, ranks, watcher, deadline, meanwhile)
    except BaseException:
        ranks.end("abandoned")
        raise
    with launcher_work():
        end = ranks.end(why)
    if isinstance(why, Stopped):
        return why
    with launcher_work():
        last = work.take(ranks.poll())
    _pass_on(last, watcher)
    with launcher_work():
        outcome = work.judge(end)
        return ranks.explain(outcome) if isinstance(outcome, TrialFailure) else outcome


def _followed(
    work: Work[Result], ranks: Ranks, watcher: TrialWatcher, deadline: float, meanwhile: Callable[[], None]
) -> Ending:
    peers, leave_by = _Peers(), float("inf")
    while True:
        with launcher_work():
            if ranks.has_ended():
                return "ended"  # their last reports are read after all of them have surely ended
            lines = ranks.poll()
            news = work.take(lines)
        meanwhile()
        _pass_on(news, watcher)
        if work.is_complete():
            return "measured"
        if stopped := watcher.stop_requested():
            return stopped
        now = time.monotonic()
        if now >= deadline:
            return "timeout"
        peers.hear(lines)
        if peers.has_failed:  # the other ranks may report their errors before they are ended
            leave_by = min(leave_by, now + (ranks.peers_s if peers.knows_cause else _CAUSE_S))
        if now >= leave_by or work.has_failed():
            return "ended"
        time.sleep(_POLL_S)


class _Peers:
    """A record of the ranks that failed, and of whether any failed for another reason than the loss of its peers."""

    def __init__(self) -> None:
        self._failed: set[int] = set()
        self._lost_peers: set[int] = set()
        self._has_bad_node = False

    def hear(self, lines: Sequence[NodeLine]) -> None:
        for line in lines:
            match line:
                case RankFailure():
                    self._failed.add(line.rank)
                    if line.kind == FailureKind.COMMUNICATION:
                        self._lost_peers.add(line.rank)
                case Death():
                    self._failed.add(line.rank)
                case NodeEnd():
                    self._failed |= {death.rank for death in deaths_of(line)}
                    self._has_bad_node |= line.exit_code != 0 and not line.deaths

    @property
    def has_failed(self) -> bool:
        return bool(self._failed) or self._has_bad_node

    @property
    def knows_cause(self) -> bool:
        return bool(self._failed - self._lost_peers) or self._has_bad_node


def _pass_on(news: Sequence[StepReport | LinkEvent], watcher: TrialWatcher) -> None:
    for one in news:
        if isinstance(one, StepReport):
            watcher.on_step(one)
        else:
            watcher.on_link_event(one)


# The verdict on our own ranks: a measurement, or a failure with its kind, its rank and that rank's last words.

_TAIL_LINES = 40

_CPP_FRAME = re.compile(r"frame #\d+: ")

_STACK = re.compile(r"^(?:Current thread|Stack) .*most recent call first\)?:?\n((?:  File .*\n?)+)", re.MULTILINE)
"""Pattern of the stack that faulthandler writes when a rank is asked for its stack."""


def verdict(spec: TrialSpec, reports: RankReports, end: AttemptEnd) -> Measurement | TrialFailure:
    """Return the measurement or the failure of a trial, from its ranks' reports and from how its processes ended.

    Steps are profiled after the measurement is complete. If only the profiled steps failed, the result is the
    measurement without a breakdown of the step time. The death of one rank makes collectives fail on the other ranks.
    Therefore the result is a communication failure only if no rank reported another failure and no rank was killed.

    Args:
        spec: The trial.
        reports: The reports of the ranks.
        end: How the processes ended.
    """
    measured = reports.measurement
    if measured is not None and (measured.breakdown is not None or not spec.settings.profiled_steps):
        return measured
    failure = _failure(spec, reports, end)
    return failure if measured is None else replace(measured, breakdown_failure=f"{failure.kind}: {failure.message}")


def _failure(spec: TrialSpec, reports: RankReports, end: AttemptEnd) -> TrialFailure:
    own = [failure for failure in reports.failures if failure.kind != FailureKind.COMMUNICATION]
    if own:
        return _reported(own[0], end.rank_logs)
    if end.timed_out:
        return _timed_out(spec, end.rank_logs)
    reported = {failure.rank for failure in reports.failures}
    if silent := next((death for death in end.deaths if death.rank not in reported), None):
        return _killed(silent, end)
    if reports.failures:
        return _reported(reports.failures[0], end.rank_logs)
    message = "the ranks ended without a report, or never started"
    return TrialFailure(kind=FailureKind.CRASH, message=message, log_tail=_tail(end.log))


def _reported(failure: RankFailure, logs: Mapping[int, str]) -> TrialFailure:
    log = logs.get(failure.rank, "")
    tail = _tail(log if failure.traceback in log else log + failure.traceback)
    return TrialFailure(kind=failure.kind, message=failure.message, rank=failure.rank, log_tail=tail)


def _timed_out(spec: TrialSpec, logs: Mapping[int, str]) -> TrialFailure:
    rank = _stuck_rank(logs)
    message = f"no result within {format_seconds(spec.settings.timeout_s)}"
    if rank is not None:
        message += f"; rank {rank} hangs, and the other ranks wait for it"
    tail = _tail(logs.get(rank if rank is not None else 0, ""))
    return TrialFailure(kind=FailureKind.TIMEOUT, message=message, rank=rank, log_tail=tail)


def _killed(death: Death, end: AttemptEnd) -> TrialFailure:
    rank, exit_code = death.rank, death.exit_code
    cause = signal.Signals(-exit_code).name if exit_code < 0 else f"exit code {exit_code}"
    by_kernel = end.oom_killed and exit_code == -signal.SIGKILL
    kind = FailureKind.OOM if by_kernel else FailureKind.CRASH
    message = f"rank {rank} was ended by {cause}" + (", the kernel's out-of-memory killer" if by_kernel else "")
    return TrialFailure(kind=kind, message=message, rank=rank, log_tail=_tail(end.rank_logs.get(rank, "")))


def _stuck_rank(logs: Mapping[int, str]) -> int | None:
    """Return the rank that the others wait for: one without a stack, else one outside torch.distributed.

    A rank without a stack comes first because it may hang in code that Python does not see, such as DDP's backward
    pass.
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
    """Return the last lines of a log. A long log loses torch's C++ stacks, which are long and follow their error."""
    lines = text.splitlines()
    if len(lines) > _TAIL_LINES:
        lines = [line for line in lines if not _CPP_FRAME.match(line)]
    return "\n".join(lines[-_TAIL_LINES:])
