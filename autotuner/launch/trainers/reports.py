"""What a trainer told of its run, read while it runs: its reporter's lines, or its log."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import structlog

from autotuner.core.codec import from_plain
from autotuner.core.measurement import LinkEvent, Measurement, StepReport
from autotuner.core.measuring import Peak, Seen, measurement_of
from autotuner.core.node_line import CpuTime, Death, NodeEnd, NodeLine, Printed, RankFailure, TrainerLine
from autotuner.core.trial import COMMUNICATION, OUT_OF_LIMITED_MEMORY, OUT_OF_MEMORY
from autotuner.core.trial_spec import TrialSpec
from autotuner.launch.trainers.progress import LogReader, Progress, ReportedStep

_log = structlog.get_logger(__name__)


class ForeignShare:
    """How busy others kept the nodes while a trainer's steps were measured."""

    def __init__(self) -> None:
        self._first: dict[int, CpuTime] = {}
        self._last: dict[int, CpuTime] = {}

    def look(self, now: CpuTime) -> None:
        """Steps are being measured on that node."""
        self._first.setdefault(now.node, now)
        self._last[now.node] = now

    @property
    def share(self) -> float:
        """Fraction of the CPU time that others used from the first look to the last, 0..1, of the busiest node."""
        return max((_foreign(first, self._last[node]) for node, first in self._first.items()), default=0.0)


def _foreign(first: CpuTime, last: CpuTime) -> float:
    total_s, busy_s = last.total_s - first.total_s, last.busy_s - first.busy_s
    own_s = max(0.0, last.own_s - first.own_s)  # processes that are gone take no time back
    return min(max((busy_s - own_s) / total_s, 0.0), 1.0) if total_s > 0.0 else 0.0


# What a trainer's log says of its death: lines that name a cause, and torchrun's summary of who died of what.

_RANK = re.compile(r"^\s*\[rank(\d+)\]:\s?")
"""What torch puts before each line of the traceback of a rank."""

_RANKS = re.compile(r"(?=\[rank\d+\]:)")

_ERROR = re.compile(r"^((?:\w+\.)*\w*(?:Error|Exception|Failure|Exit|Interrupt))(?::\s*(.*))?$")
"""Last line of a traceback."""

_OF_THE_AGENT = ("ChildFailedError", "SignalException", "KeyboardInterrupt", "SystemExit")
"""Errors that only say that somebody else died, or was ended."""

_COMMUNICATION_ERRORS = (
    *("DistBackendError", "DistNetworkError", "DistStoreError", "DistError", "TimeoutError"),
    *("ConnectionError", "ConnectionResetError", "ConnectionRefusedError", "BrokenPipeError", "EOFError"),
)

_SUMMARY_RANK = re.compile(r"^\s*rank\s*:\s*(\d+)\b")
_SUMMARY_EXIT = re.compile(r"^\s*exitcode\s*:\s*(-?\d+)\b")
_SUMMARY_ROOT = "Root Cause"

_MOST = 16
"""Complaints that are kept; the first tell most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """A line that names a cause."""

    text: str
    rank: int | None
    """Who said it, where the line tells."""


class Symptoms:
    """Hears every line, and remembers those that name a cause.

    Attributes:
        out_of_memory: The first line in words of memory that has run out.
        out_of_limited_memory: The first in words that mean it where memory is limited.
        communication: The first of a lost peer.
        error: The first error that is none of communication.
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
        """One line of what the trainer printed."""
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
        """Torchrun lists other failures first and the root cause, the first that it observed, last."""
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
    """Makes of what a trainer tells what any trial's ranks report.

    Args:
        spec: The trial.
        peak: What MFU is a share of.
        reader: What finds steps in its log; None: it reports them itself.
        environment: What the measurement says of where it ran.
        num_nodes: That it runs on.

    Attributes:
        measurement: Once enough steps were measured.
        symptoms: What its log says of its death.
        progress: How far it came.
        ended_at: By the node's clock; None before.
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
        self._told_environments: list[tuple[int, Mapping[str, str]]] = []
        self._foreign = ForeignShare()
        self._ends: dict[int, NodeEnd] = {}
        self.measurement: Measurement | None = None
        self.symptoms = Symptoms()
        self.progress = Progress(spec, peak)
        self.ended_at: float | None = None

    @property
    def failure(self) -> RankFailure | None:
        """What was told that no trial survives."""
        return self.progress.failure

    def take(self, lines: Sequence[NodeLine]) -> list[StepReport | LinkEvent]:
        """Take all new lines of one look; the steps that are whole come back.

        Where all nodes ended well every step is as whole as it will be; of a death the last one is only where no rank
        is missing in it.
        """
        for line in lines:
            self._take(line)
        steps = self.progress.whole_steps(is_over=self._has_ended_well())
        if self.measurement is None and self.progress.is_done and self.failure is None:
            self.complete()
        return list(steps)

    def complete(self) -> None:
        """Take the steps that were measured for the whole result."""
        measurement = measurement_of(
            self._spec,
            self._peak,
            self.progress.steps,
            Seen(
                peak_bytes=tuple(most for _, most in sorted(self.progress.peak_bytes.items())),
                foreign_cpu_share=self._foreign.share,
            ),
            environment={**self._environment, **_of_all(self._told_environments)},
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
        """The step that a line tells, where steps are told; where it runs is kept until the end."""
        with contextlib.suppress(ValueError, RecursionError):  # torn, or of another making
            document = json.loads(line.line)
            if not isinstance(document, dict):
                return
            if "environment" in document:
                told = from_plain(_Told, {"environment": document["environment"]})
                self._told_environments.append((line.node, told.environment))
            if "step" in document and self._reader is None:
                yield from_plain(ReportedStep, {name: document[name] for name in _FIELDS if name in document})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """Where a rank or a node of a trainer says that it runs."""

    environment: dict[str, str]


def _of_all(told: Sequence[tuple[int, Mapping[str, str]]]) -> dict[str, str]:
    """Whoever told a fact first on the first node is believed; ``nodes`` lists all machines if there are several."""
    in_order = sorted(told, key=lambda one: one[0])
    facts = dict(ChainMap(*(dict(environment) for _, environment in in_order)))
    hosts = sorted({one["host"] for _, one in told if "host" in one})
    return facts | ({"nodes": ",".join(hosts)} if len(hosts) > 1 else {})
