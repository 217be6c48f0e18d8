"""What a trainer told of its run, read while it runs: its reporter's files, or its log."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from autotuner.core.codec import from_plain
from autotuner.core.errors import InvalidInput
from autotuner.core.measurement import LinkEvent, Measurement, StepReport
from autotuner.core.measuring import Peak, Seen, measurement_of
from autotuner.core.trial_spec import TrialSpec
from autotuner.launch.reports import RankFailure
from autotuner.launch.trainers.cores import CoreWatch
from autotuner.launch.trainers.progress import Progress
from autotuner.launch.trainers.reported import LogReader, Reported, ReportedStep
from autotuner.launch.trainers.symptoms import Symptoms

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
