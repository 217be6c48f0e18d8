"""Reads the reports of a trainer's run, from its reporter or its log, and judges how the run ended."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import time
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import structlog

from autotuner.core.codec import from_plain
from autotuner.core.measurement import LinkEvent, Measurement, StepReport
from autotuner.core.measuring import Peak, TrialObservations, measurement_of
from autotuner.core.node_line import CpuTime, Death, NodeEnd, NodeLine, Printed, RankFailure, TrainerLine
from autotuner.core.trial import (
    COMMUNICATION,
    OUT_OF_LIMITED_MEMORY,
    OUT_OF_MEMORY,
    FailureKind,
    TrialFailure,
)
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.units import format_seconds
from autotuner.launch.contract import AttemptEnd
from autotuner.launch.trainers.progress import LogReader, Progress, ReportedStep

_log = structlog.get_logger(__name__)


class ForeignShare:
    """The share of the nodes' CPU time that other processes used while a trainer's steps were measured."""

    def __init__(self) -> None:
        self._first: dict[int, CpuTime] = {}
        self._last: dict[int, CpuTime] = {}

    def look(self, now: CpuTime) -> None:
        """Record the CPU times of a node, which the node read while steps were measured."""
        self._first.setdefault(now.node, now)
        self._last[now.node] = now

    @property
    def share(self) -> float:
        """Return the fraction of CPU time, 0..1, that other processes used on the node that they used most.

        It covers the time from the first to the last call of ``look``.
        """
        return max((_foreign(first, self._last[node]) for node, first in self._first.items()), default=0.0)


def _foreign(first: CpuTime, last: CpuTime) -> float:
    total_s, busy_s = last.total_s - first.total_s, last.busy_s - first.busy_s
    own_s = max(0.0, last.own_s - first.own_s)  # processes that are gone take no time back
    return min(max((busy_s - own_s) / total_s, 0.0), 1.0) if total_s > 0.0 else 0.0


# Causes of a failure in a trainer's log: lines that name one, and torchrun's summary of failed ranks.

_RANK = re.compile(r"^\s*\[rank(\d+)\]:\s?")
"""Prefix that torch puts before each line of a rank's traceback."""

_RANKS = re.compile(r"(?=\[rank\d+\]:)")

_ERROR = re.compile(r"^((?:\w+\.)*\w*(?:Error|Exception|Failure|Exit|Interrupt))(?::\s*(.*))?$")
"""Pattern of the last line of a traceback, with the error's name and message."""

_OF_THE_AGENT = ("ChildFailedError", "SignalException", "KeyboardInterrupt", "SystemExit")
"""Errors that only report that another rank died, or that the run was ended from outside."""

_COMMUNICATION_ERRORS = (
    *("DistBackendError", "DistNetworkError", "DistStoreError", "DistError", "TimeoutError"),
    *("ConnectionError", "ConnectionResetError", "ConnectionRefusedError", "BrokenPipeError", "EOFError"),
)

_SUMMARY_RANK = re.compile(r"^\s*rank\s*:\s*(\d+)\b")
_SUMMARY_EXIT = re.compile(r"^\s*exitcode\s*:\s*(-?\d+)\b")
_SUMMARY_ROOT = "Root Cause"

_MOST = 16
"""Maximum number of error lines kept; the first ones say most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """A line of a trainer's output that names the cause of a failure, such as a lack of memory."""

    text: str
    rank: int | None
    """Rank that reported it, if the line names one."""


class Symptoms:
    """Reads every line of a trainer's output, and keeps the lines that name the cause of a failure.

    Attributes:
        out_of_memory: The first line that says that memory has run out.
        out_of_limited_memory: The first line that means a lack of memory only if a limit on memory was set.
        communication: The first line about a lost peer.
        error: The first error that is not about communication.
        root: The rank that torchrun found dead first.
    """

    def __init__(self) -> None:
        self.out_of_memory: Complaint | None = None
        self.out_of_limited_memory: Complaint | None = None
        self.communication: Complaint | None = None
        self.error: Complaint | None = None
        self.root: Death | None = None
        self._is_at_root = False
        self._root_rank: int | None = None

    def heard(self, line: str) -> None:
        """Read a line of the trainer's output, and keep it if it names the cause of a failure."""
        self._hear_summary(line)
        for piece in filter(None, _RANKS.split(line)):  # ranks that write at once share a line
            self._hear(piece)

    def _hear(self, line: str) -> None:
        signed = _RANK.match(line)
        rank = int(signed.group(1)) if signed else None
        text = _RANK.sub("", line).strip()
        complaint = Complaint(text=text, rank=rank)
        name = _error_name(text)
        if name == "MemoryError" or _mentions(text, OUT_OF_MEMORY):
            self.out_of_memory = self.out_of_memory or complaint
        elif _mentions(text, OUT_OF_LIMITED_MEMORY):
            self.out_of_limited_memory = self.out_of_limited_memory or complaint
        elif name in _COMMUNICATION_ERRORS or _mentions(text, COMMUNICATION):
            self.communication = self.communication or complaint
        elif name is not None and name not in _OF_THE_AGENT:
            self.error = self.error or complaint

    def _hear_summary(self, line: str) -> None:
        """Find the root cause in torchrun's summary, which lists it after all other failures."""
        if _SUMMARY_ROOT in line:
            self._is_at_root, self._root_rank = True, None
        elif self._is_at_root and (rank := _SUMMARY_RANK.match(line)):
            self._root_rank = int(rank.group(1))
        elif self._is_at_root and self._root_rank is not None and (code := _SUMMARY_EXIT.match(line)):
            self.root = self.root or Death(rank=self._root_rank, exit_code=int(code.group(1)))
            self._is_at_root = False


def _error_name(text: str) -> str | None:
    found = _ERROR.match(text)
    return found.group(1).rpartition(".")[2] if found else None


def _mentions(text: str, phrases: tuple[str, ...]) -> bool:
    return any(phrase in text for phrase in phrases)


_FIELDS = tuple(field.name for field in fields(ReportedStep))


class TrainerReports:
    """Translates the output of a registered trainer into the same reports that trials of the built-in decoder write.

    A registered trainer is a training program of the operator.

    Args:
        spec: The trial.
        peak: The peak FLOP/s by which MFU is computed.
        reader: Reader of steps in the trainer's log; None: the trainer reports them itself.
        environment: Facts about the machine and the software of the run, for the measurement.
        num_nodes: Number of nodes that the trainer runs on.

    Attributes:
        measurement: The measurement, once enough steps were measured; None before.
        symptoms: Lines of the log that explain a failure.
        progress: The steps so far.
        ended_at: Time at which the trainer ended, by the node's clock; None before.
    """

    def __init__(
        self,
        spec: TrialSpec,
        peak: Peak,
        reader: LogReader | None,
        environment: Mapping[str, str],
        *,
        num_nodes: int = 1,
    ) -> None:
        self._spec = spec
        self._peak = peak
        self._reader = reader
        self._environment = environment
        self._num_nodes = num_nodes
        self._environments: list[tuple[int, Mapping[str, str]]] = []
        self._foreign = ForeignShare()
        self._ends: dict[int, NodeEnd] = {}
        self.measurement: Measurement | None = None
        self.symptoms = Symptoms()
        self.progress = Progress(spec, peak)
        self.ended_at: float | None = None

    @property
    def failure(self) -> RankFailure | None:
        """Return the failure that the trainer reported and that ends the trial (such as a loss of NaN), or None."""
        return self.progress.failure

    def take(self, lines: Sequence[NodeLine]) -> list[StepReport | LinkEvent]:
        """Take in all lines since the last call, and return the steps that have become complete.

        If all nodes ended without an error, every step counts as complete. If the trainer died, the last step counts
        only if every rank has reported it.
        """
        for line in lines:
            self._take(line)
        steps = self.progress.whole_steps(is_over=self._has_ended_well())
        if self.measurement is None and self.progress.is_done and self.failure is None:
            self.complete()
        return list(steps)

    def complete(self) -> None:
        """Make the measurement of the trial from the training steps that were measured so far."""
        measurement = measurement_of(
            self._spec,
            self._peak,
            self.progress.steps,
            TrialObservations(
                peak_bytes=tuple(most for _, most in sorted(self.progress.peak_bytes.items())),
                foreign_cpu_share=self._foreign.share,
            ),
            environment={**self._environment, **_of_all(self._environments)},
        )
        self.measurement = measurement if self.progress.tells_losses else replace(measurement, losses=())

    def _take(self, line: NodeLine) -> None:
        match line:
            case Printed():
                self._hear(line)
            case TrainerLine():
                for step in self._steps(line):
                    self.progress.heard(step, time.time() if line.at is None else line.at)
            case CpuTime() if self.progress.num_measured:
                self._foreign.look(line)
            case NodeEnd():
                self._ends[line.node] = line
                self.ended_at = line.at

    def _hear(self, line: Printed) -> None:
        self.symptoms.heard(line.text)
        try:
            reported = None if self._reader is None else self._reader.read(line.text)
        except Exception:  # a reader that breaks costs its line, and not the trial
            _log.exception("trainer.line_not_read")
            return
        if reported is not None:
            self.progress.heard(reported, line.at)

    def _has_ended_well(self) -> bool:
        ends = self._ends.values()
        return len(ends) == self._num_nodes and not any(
            end.exit_code or end.told_to_end or end.timed_out for end in ends
        )

    def _steps(self, line: TrainerLine) -> Iterator[ReportedStep]:
        """Yield the step that a line reports, unless a log reader reports the steps.

        An environment that the line reports is kept.
        """
        with contextlib.suppress(ValueError, RecursionError):  # a torn line, or a line that the reporter did not write
            document = json.loads(line.line)
            if not isinstance(document, dict):
                return
            if "environment" in document:
                reports = from_plain(_EnvironmentReport, {"environment": document["environment"]})
                self._environments.append((line.node, reports.environment))
            if "step" in document and self._reader is None:
                yield from_plain(ReportedStep, {name: document[name] for name in _FIELDS if name in document})


@dataclass(frozen=True, slots=True, kw_only=True)
class _EnvironmentReport:
    """The environment that a rank or a node of a trainer reports."""

    environment: dict[str, str]


def _of_all(reports: Sequence[tuple[int, Mapping[str, str]]]) -> dict[str, str]:
    """Return the environment facts of all nodes: the first node's first report wins; ``nodes`` lists several hosts."""
    in_order = sorted(reports, key=lambda one: one[0])
    facts = dict(ChainMap(*(dict(environment) for _, environment in in_order)))
    hosts = sorted({one["host"] for _, one in reports if "host" in one})
    return facts | ({"nodes": ",".join(hosts)} if len(hosts) > 1 else {})


# The verdict on a trainer's run: a measurement, or a failure with its kind and the last printed lines.

_TAIL_LINES = 40

_AGENT_FOUND_DEAD = "failed (exitcode:"
"""First words of torchrun's line about a rank that died (torch/distributed/elastic/multiprocessing/api.py, 2.13)."""

_SHELL_SIGNALS = 128
"""Number that a shell adds to a signal's number in the exit code of a command that the signal ended."""


def trainer_verdict(spec: TrialSpec, reports: TrainerReports, end: AttemptEnd) -> Measurement | TrialFailure:
    """Return the measurement or the failure of a trainer's run, from its reports, its exit code and its output.

    The death of one rank makes collectives fail on the other ranks. Therefore the result is a communication failure
    only if the output names no other cause, and torchrun's summary shows no rank that a signal ended.
    """
    if reports.measurement is not None:
        return reports.measurement
    if end.exit_code == 0 and not end.timed_out and reports.progress.is_enough and reports.failure is None:
        reports.complete()
        return reports.measurement or _failure(
            FailureKind.CRASH, "the trainer ended, but no step was measured", None, end
        )
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
    return (
        FailureKind.CRASH,
        f"{message}; its last line was: {last_words}" if last_words else message,
        _rank(death.rank),
    )


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
    """Return the exit code in Python's form: a shell's code above 128 becomes the negative number of the signal."""
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
        f"the trainer ended after {seen} steps with times{of_which}; at least {needed} are needed: "
        f"{settings.warmup_steps} for warm-up and {settings.measured_steps} to measure"
    )


def _hang(spec: TrialSpec, reports: TrainerReports) -> str:
    limit = f"no result within {format_seconds(spec.settings.timeout_s)}"
    progress = reports.progress
    if progress.last_step is None or progress.last_at_s is None:
        return f"{limit}; the trainer reported no step"
    since_s = (reports.ended_at or time.time()) - progress.last_at_s  # both by the node's clock
    return f"{limit}; the last step was {progress.last_step}, {format_seconds(since_s)} before the end"


def _how_far(reports: TrainerReports) -> str:
    last = reports.progress.last_step
    return "before its first step" if last is None else f"after step {last}"


def _own_lines(log: str) -> list[str]:
    """Return the lines that the ranks printed.

    torchrun's own traceback and summary, which may be long, come after them.
    """
    lines = log.splitlines()
    agent = next((number for number, line in enumerate(lines) if _AGENT_FOUND_DEAD in line), len(lines))
    return lines[:agent] or lines


def _failure(kind: FailureKind, message: str, rank: int | None, end: AttemptEnd) -> TrialFailure:
    tail = "\n".join(_own_lines(end.log)[-_TAIL_LINES:])
    return TrialFailure(kind=kind, message=message, rank=rank, log_tail=tail)
