"""One attempt at a trial, whatever runs as it: started once, followed, ended and judged."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from autotuner.core.measurement import Measurement, StepReport
from autotuner.core.trial import FailureKind, Stopped, TrialFailure
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.units import format_seconds
from autotuner.launch.contract import TrialWatcher
from autotuner.launch.ranks import ATTEMPT_ID, Death, Ranks, Starter, ask_for_stacks, launcher_work
from autotuner.launch.reports import RankFailure, Reports, TrialFiles, TrialReports

# What a trial's end means: a measurement, or a failure with its kind, its rank and that rank's last words.

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


# Follows the ranks of a trial while they run, wherever that is: passes their steps on and sees what ends it.

GRACE_S = 3.0
"""What a rank gets to leave after SIGTERM, or to say what it saw of a peer's death; gloo and torchrun were seen to need
about one second."""

_CAUSE_S = 60.0
"""What the cause gets to show where a rank has only said that it lost its peers: on a busy node torchrun was seen to
need more than ten seconds to find a killed rank, and the engine to pass that on."""

_POLL_S = 0.05

Ending = Stopped | Literal["measured", "failed", "timeout", "ended"]
"""What made a launcher end a trial: the watcher's wish, a complete result, a rank's failure, the time limit, or that
the ranks were gone."""


def follow(
    spec: TrialSpec,
    ranks: Ranks,
    reports: TrialReports,
    watcher: TrialWatcher,
    *,
    deadline: float,
    peers_s: float = GRACE_S,
    meanwhile: Callable[[], None] = lambda: None,
) -> Ending:
    """Pass steps on until the whole result is there, the ranks are gone, the watcher wants a stop, or time is up.

    Args:
        spec: The trial.
        ranks: Started; they are not ended here.
        reports: What they write.
        watcher: What it raises comes out as it is.
        deadline: On the monotonic clock.
        peers_s: What the other ranks get to say what they saw, once it is known why the first one failed.
        meanwhile: Called at every look, many times a second.

    Raises:
        CannotRun: The reports cannot be read.
    """
    peers_leave_by = float("inf")
    while not (seen := _look(ranks, reports)).have_ended:
        meanwhile()
        pass_on(seen.steps, reports, watcher)
        if is_complete(spec, reports):
            return "measured"
        if stopped := watcher.stop_requested():
            return stopped
        now = time.monotonic()
        if now >= deadline:
            return "timeout"
        if seen.has_failed:  # the others may say what they saw, then they are ended
            peers_leave_by = min(peers_leave_by, now + (peers_s if seen.knows_cause else _CAUSE_S))
        if now >= peers_leave_by:
            return "failed"
        time.sleep(_POLL_S)
    return "ended"


def pass_on(steps: Sequence[StepReport], reports: TrialReports, watcher: TrialWatcher) -> None:
    """Tell the watcher steps, and what was read of links with them."""
    for step in steps:
        watcher.on_step(step)
    for event in reports.new_link_events():
        watcher.on_link_event(event)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What there was to see of the ranks at one moment."""

    have_ended: bool
    has_failed: bool = False
    knows_cause: bool = False
    steps: Sequence[StepReport] = ()


def _look(ranks: Ranks, reports: TrialReports) -> _Seen:
    with launcher_work():
        if ranks.ended():
            return _Seen(have_ended=True)  # what they reported last is read when they have been ended for certain
        steps = reports.new_steps()
        failures, deaths = reports.failures, ranks.deaths()
        lost_peers = {failure.rank for failure in failures if failure.kind == FailureKind.COMMUNICATION}
        failed = {*(failure.rank for failure in failures), *(death.rank for death in deaths)}
        return _Seen(
            have_ended=False,
            has_failed=bool(failed),
            knows_cause=bool(failed - lost_peers),
            steps=steps,
        )


_STACKS_S = 0.5
"""What ranks get to write their stacks when a trial has run out of time."""

OVERTIME_S = 1.0
"""What they get to leave after that: a trial must not outlive its limit by more than five seconds, and a hung rank will
not leave anyway."""


class Attempt(Protocol):
    """One attempt at a trial on this machine."""

    @property
    def reports(self) -> TrialReports:
        """What its ranks tell."""
        ...

    @property
    def peers_s(self) -> float:
        """What ranks get to say what they saw of a peer's death."""
        ...

    def start(self) -> Ranks:
        """Start the ranks; returns before they run. An ``OSError`` is the launcher's own trouble."""
        ...

    def grace_s(self, ending: Ending) -> float:
        """Seconds that the ranks get to leave; whatever they can say before is asked for here."""
        ...

    def last_steps(self) -> Sequence[StepReport]:
        """The steps that were told since the last look; no rank is left."""
        ...

    def judge(self, *, timed_out: bool, oom_killed: bool) -> Measurement | TrialFailure:
        """How the attempt ended; no rank is left."""
        ...


class DecoderAttempt:
    """Runs our own decoder."""

    def __init__(self, spec: TrialSpec, files: TrialFiles, starter: Starter, variables: Mapping[str, str]) -> None:
        self._spec = spec
        self._files = files
        self._starter = starter
        self._variables = variables
        self._reports = Reports(files.reports)
        self._ranks: Ranks | None = None

    @property
    def reports(self) -> Reports:
        """What its ranks write."""
        return self._reports

    @property
    def peers_s(self) -> float:
        """The others may tell of another cause than a lost connection."""
        return GRACE_S

    def start(self) -> Ranks:
        """Start ranks that read the trial's files."""
        self._ranks = self._starter.start(self._spec, self._files, self._variables)
        return self._ranks

    def grace_s(self, ending: Ending) -> float:
        """Ranks that have run out of time say before where they are."""
        match ending:
            case "measured":
                return 0.0  # the ranks have nothing left to say
            case "timeout":
                ask_for_stacks(self._variables[ATTEMPT_ID])
                time.sleep(_STACKS_S)
                return OVERTIME_S
            case _:
                return GRACE_S

    def last_steps(self) -> Sequence[StepReport]:
        """What was written since."""
        return self._reports.new_steps()

    def judge(self, *, timed_out: bool, oom_killed: bool) -> Measurement | TrialFailure:
        """By what the ranks reported, and what whoever started them saw."""
        assert self._ranks is not None  # it was started
        return verdict(
            self._spec,
            self._reports,
            self._ranks,
            rank_logs=self._files.read_rank_logs(),
            timed_out=timed_out,
            oom_killed=oom_killed,
        )
