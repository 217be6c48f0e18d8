"""What a trainer told of its run, read while it runs: its reporter's files, or its log."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import psutil

from autotuner.core.codec import from_plain
from autotuner.core.errors import InvalidInput
from autotuner.core.measurement import LinkEvent, Measurement, StepReport
from autotuner.core.measuring import Peak, Seen, measurement_of
from autotuner.core.trial import COMMUNICATION, OUT_OF_LIMITED_MEMORY, OUT_OF_MEMORY
from autotuner.core.trial_spec import TrialSpec
from autotuner.launch.ranks import Death
from autotuner.launch.reports import RankFailure
from autotuner.launch.trainers.progress import LogReader, Progress, Reported, ReportedStep

# How busy others kept the machine while a trainer's steps were measured.

_APART_S = 0.2
"""Looks that follow each other faster tell no more: the kernel's clock ticks every 10 ms, and a look takes some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTime:
    """CPU seconds: of the machine since boot, and of some processes since their start."""

    busy_s: float
    total_s: float
    own_s: float


class CoreWatch:
    """Looks at the machine's CPU time and at that of a trial's processes, from the first measured step to the last.

    Args:
        processes: Those of the trial, asked at each look; what their own children used counts once these are gone.
        look: Reads the counters.
        apart_s: Looks that follow each other faster are one.
    """

    def __init__(
        self,
        processes: Callable[[], Iterable[psutil.Process]],
        look: Callable[[Iterable[psutil.Process]], CpuTime] | None = None,
        *,
        apart_s: float = _APART_S,
    ) -> None:
        self._apart_s = apart_s
        self._processes = processes
        self._read = look or _read
        self._first: CpuTime | None = None
        self._last: CpuTime | None = None
        self._looked_at_s = 0.0

    def look(self) -> None:
        """Steps are being measured."""
        now_s = time.monotonic()
        if self._first is not None and now_s - self._looked_at_s < self._apart_s:
            return
        self._looked_at_s = now_s
        self._last = self._read(self._processes())
        self._first = self._first or self._last

    @property
    def foreign_share(self) -> float:
        """Fraction of the machine that others used between the first look and the last, 0..1."""
        if self._first is None or self._last is None or self._last.total_s <= self._first.total_s:
            return 0.0
        busy_s, own_s = self._last.busy_s - self._first.busy_s, self._last.own_s - self._first.own_s
        return min(max((busy_s - max(0.0, own_s)) / (self._last.total_s - self._first.total_s), 0.0), 1.0)


def _read(processes: Iterable[psutil.Process]) -> CpuTime:
    """The kernel's counters (proc(5)); guest time is already inside user and nice."""
    machine = psutil.cpu_times()
    total_s = sum(machine[:8])
    own_s = 0.0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            used = process.cpu_times()
            own_s += used.user + used.system + used.children_user + used.children_system
    return CpuTime(busy_s=total_s - machine.idle - machine.iowait, total_s=total_s, own_s=own_s)


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

_MOST_BYTES = 1 << 22
"""Read of one file at a look."""


class TrainerReports:
    """Reads what a trainer tells, and makes of it what any trial's ranks report.

    Args:
        spec: The trial.
        peak: What MFU is a share of.
        directory: Where its reporter writes a file per rank.
        reader: What finds steps in its log; None: it reports them itself.
        environment: What the measurement says of where it ran.

    Attributes:
        measurement: Once enough steps were measured.
        symptoms: What its log says of its death.
        progress: How far it came.
    """

    def __init__(
        self, spec: TrialSpec, peak: Peak, directory: Path, reader: LogReader | None, environment: dict[str, str]
    ) -> None:
        self._spec = spec
        self._peak = peak
        self._directory = directory
        self._reader = reader
        self._environment = environment
        self._told_environments: list[Mapping[str, str]] = []
        self._offsets: dict[Path, int] = {}
        self._mutex = threading.Lock()  # lines are heard on the thread that reads them
        self._told: list[tuple[Reported, float]] = []
        self._cores: CoreWatch | None = None
        self.measurement: Measurement | None = None
        self.symptoms = Symptoms()
        self.progress = Progress(spec, peak)

    @property
    def failures(self) -> list[RankFailure]:
        """What was reported that no trial survives."""
        return [] if self.progress.failure is None else [self.progress.failure]

    def runs_on(self, facts: Mapping[str, str]) -> None:
        """Have the measurement say that, too, of where it ran."""
        self._environment = {**self._environment, **facts}

    def watch_cores(self, cores: CoreWatch) -> None:
        """Have the machine watched while steps are measured."""
        self._cores = cores

    def heard(self, line: str, at_s: float) -> None:
        """One line that the trainer printed."""
        self.symptoms.heard(line)
        if self._reader is not None and (reported := self._reader.read(line)) is not None:
            with self._mutex:
                self._told.append((reported, at_s))

    def new_steps(self, *, is_over: bool = False) -> list[StepReport]:
        """Read what was added; the steps that are whole come back.

        Args:
            is_over: The trainer has ended, so nothing will be added.
        """
        for reported, at_s in self._news():
            self.progress.heard(reported, at_s)
        steps = self.progress.whole_steps(is_over=is_over)
        if self._cores is not None and self.progress.num_measured and not is_over:
            self._cores.look()
        if self.measurement is None and self.progress.is_done and self.progress.failure is None:
            self.complete()
        return steps

    def new_link_events(self) -> list[LinkEvent]:
        """None: trainers tell of no links."""
        return []

    def complete(self) -> None:
        """Take the steps that were measured for the whole result."""
        losses_known = self.progress.tells_losses
        measurement = measurement_of(
            self._spec,
            self._peak,
            self.progress.steps,
            Seen(
                peak_bytes=tuple(most for _, most in sorted(self.progress.peak_bytes.items())),
                foreign_cpu_share=self._cores.foreign_share if self._cores else 0.0,
            ),
            environment={**self._environment, **_of_all(self._told_environments)},
        )
        self.measurement = measurement if losses_known else _without_losses(measurement)

    def _news(self) -> Iterator[tuple[Reported, float]]:
        with self._mutex:
            told, self._told = self._told, []
        yield from told
        now_s = time.monotonic()
        for path in sorted(self._directory.glob("*.jsonl")):
            for reported in self._new_lines(path):
                if self._reader is None:
                    yield reported, now_s

    def _new_lines(self, path: Path) -> Iterator[ReportedStep]:
        """Complete lines only; a line still being written is left for the next look."""
        if not path.is_file():
            return
        with path.open("rb") as file:
            file.seek(self._offsets.get(path, 0))
            for line in file.readlines(_MOST_BYTES):
                if not line.endswith(b"\n"):
                    return
                self._offsets[path] = self._offsets.get(path, 0) + len(line)
                with contextlib.suppress(ValueError, InvalidInput, RecursionError):  # torn, or of another making
                    document = json.loads(line)
                    if isinstance(document, dict):
                        yield from self._taken(document)

    def _taken(self, document: dict[str, Any]) -> Iterator[ReportedStep]:
        """The step that a line tells; where it ran is kept until the end."""
        if "environment" in document:
            self._told_environments.append(from_plain(_Told, {"environment": document["environment"]}).environment)
        if "step" in document:
            yield from_plain(ReportedStep, {name: document[name] for name in _FIELDS if name in document})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """Where a rank or a node of a trainer says that it runs."""

    environment: dict[str, str]


def _of_all(told: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Whoever told a fact first is believed; ``nodes`` lists all machines where there is more than one."""
    facts = dict(ChainMap(*map(dict, told)))
    hosts = sorted({one["host"] for one in told if "host" in one})
    return facts | ({"nodes": ",".join(hosts)} if len(hosts) > 1 else {})


def _without_losses(measurement: Measurement) -> Measurement:
    return replace(measurement, losses=())
