"""The files of one attempt at a trial, and what its ranks write into them, read while it grows."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from autotuner.core.codec import from_plain
from autotuner.core.measurement import Breakdown, LinkEvent, Measurement, StepReport
from autotuner.core.profile import CollectivePoint, Measurements
from autotuner.core.timeline import StepTimeline
from autotuner.core.trial import FailureKind


@dataclass(frozen=True, slots=True)
class TrialFiles:
    """The directory of an attempt, and what lies in it."""

    directory: Path

    @property
    def spec(self) -> Path:
        """What to run; written before any rank is started."""
        return self.directory / "spec.json"

    @property
    def reports(self) -> Path:
        """What the ranks append to."""
        return self.directory / "reports.jsonl"

    @property
    def agent_log(self) -> Path:
        """What torchrun itself prints."""
        return self.directory / "torchrun.log"

    @property
    def deaths(self) -> Path:
        """The ranks that torchrun found dead, written when it ends."""
        return self.directory / "deaths.json"

    @property
    def rank_logs(self) -> Path:
        """Holds, at some depth, a directory per rank with what it printed; its name is the rank."""
        return self.directory / "ranks"

    @property
    def exported(self) -> Path:
        """Holds the layout in the words of a trainer."""
        return self.directory / "layout"

    @property
    def trainer_reports(self) -> Path:
        """Holds a file per rank that a trainer's reporter appends to."""
        return self.directory / "told"

    def read_rank_logs(self) -> dict[int, str]:
        """Each rank's standard error, by rank; torchrun nests it as ``<run>/attempt_0/<rank>/stderr.log``."""
        paths = sorted(self.rank_logs.rglob("stderr.log"))
        return {int(path.parent.name): path.read_text(errors="replace") for path in paths}


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFailure:
    """The last words of one rank."""

    rank: int
    kind: FailureKind
    message: str
    traceback: str


class TrialReports(Protocol):
    """What the ranks of a trial tell, whichever way they do."""

    @property
    def measurement(self) -> Measurement | None:
        """The trial's result, once it is known."""
        ...

    @property
    def failures(self) -> Sequence[RankFailure]:
        """Last words of ranks that died, in the order they were told."""
        ...

    def new_steps(self) -> Sequence[StepReport]:
        """Read what was added; the steps come back."""
        ...

    def new_link_events(self) -> Sequence[LinkEvent]:
        """Those among what was read since this was asked before."""
        ...


class Reports:
    """Reads a report file that other processes append to.

    Attributes:
        measurement: The trial's result, once it was reported, with every event of its links; its breakdown comes later.
        failures: Last words of ranks that died, in the order they were written.
        collectives: What benchmarks of nodes have timed by now.
        benchmarks: All that they measured, once they are complete.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._link_events: list[LinkEvent] = []
        self._num_events_told = 0
        self.measurement: Measurement | None = None
        self.failures: list[RankFailure] = []
        self.collectives: list[CollectivePoint] = []
        self.benchmarks: Measurements | None = None

    def new_steps(self) -> list[StepReport]:
        """Read what was added; the steps come back, everything else is kept."""
        steps = []
        for line in self._new_lines():
            with contextlib.suppress(ValueError, RecursionError):  # torn by a full disk, or of another making
                document = json.loads(line)
                if isinstance(document, dict):
                    steps += self._taken(document)
        return steps

    def new_link_events(self) -> list[LinkEvent]:
        """Those that were read since this was asked before."""
        new, self._num_events_told = self._link_events[self._num_events_told :], len(self._link_events)
        return new

    def _taken(self, document: dict[str, Any]) -> list[StepReport]:
        """The step that a line tells, if it does; all else is kept."""
        document.pop("schema_version", None)
        match document.pop("type", None):
            case "step":
                return [from_plain(StepReport, document)]
            case "link_event":
                self._happened(from_plain(LinkEvent, document))
            case "measurement":
                self.measurement = replace(from_plain(Measurement, document), link_events=tuple(self._link_events))
            case "timeline" if self.measurement is not None:
                self.measurement = replace(self.measurement, timeline=from_plain(StepTimeline, document))
            case "breakdown" if self.measurement is not None:
                self.measurement = replace(self.measurement, breakdown=from_plain(Breakdown, document))
            case "failure":
                self.failures.append(from_plain(RankFailure, document))
            case "collective":
                self.collectives.append(from_plain(CollectivePoint, document))
            case "profile":
                self.benchmarks = from_plain(Measurements, document)
            case _:
                pass  # "started" only shows a reader of the file how far a trial came
        return []

    def _happened(self, event: LinkEvent) -> None:
        self._link_events.append(event)
        if self.measurement is not None:
            self.measurement = replace(self.measurement, link_events=tuple(self._link_events))

    def _new_lines(self) -> Iterator[bytes]:
        """Complete lines only; a line still being written is left for the next call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                yield line
