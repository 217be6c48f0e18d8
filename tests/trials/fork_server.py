"""Runs trials on ranks that the launcher's own fork server forks, and reads what they left behind."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import torch

from autotuner.core import codec
from autotuner.core.measurement import Breakdown, Measurement, StepReport
from autotuner.core.timeline import StepTimeline
from autotuner.core.trial_spec import TrialSpec
from autotuner.launch.contract import ATTEMPT_ID
from autotuner.launch.forks import ForkedRanks, Forks
from autotuner.launch.node_processes import ask_for_stacks
from tests.patience import PATIENCE_S

GRACE_S = 5.0
"""Long enough for the other ranks to notice and report what they saw."""

_STACKS_S = 1.0
"""A rank that hangs has nothing else to do than to write its stack."""

_CRASHES = {signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV}
"""Signals that nobody sends to a rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a trial left behind; an exit code below zero is the signal that ended the rank."""

    folder: Path
    exit_codes: tuple[int, ...]
    lines: tuple[dict[str, Any], ...]
    logs: tuple[str, ...]

    @property
    def steps(self) -> tuple[StepReport, ...]:
        return tuple(codec.from_plain(StepReport, line) for line in self._of("step"))

    @property
    def failures(self) -> tuple[dict[str, Any], ...]:
        return self._of("failure")

    @property
    def measurement(self) -> Measurement:
        found = self._of("measurement")
        assert len(found) == 1, (self.exit_codes, self.failures, self.logs)
        measurement = codec.from_plain(Measurement, found[0])
        for line in self._of("timeline"):
            measurement = replace(measurement, timeline=codec.from_plain(StepTimeline, line))
        for line in self._of("breakdown"):
            measurement = replace(measurement, breakdown=codec.from_plain(Breakdown, line))
        return measurement

    def saved(self) -> list[Any]:
        """What each rank saved as ``RANK.pt``; all of them ended well."""
        assert set(self.exit_codes) == {0}, (self.exit_codes, self.logs)
        return [torch.load(self.folder / f"{rank}.pt") for rank in range(len(self.exit_codes))]

    def _of(self, kind: str) -> tuple[dict[str, Any], ...]:
        return tuple({k: v for k, v in line.items() if k != "type"} for line in self.lines if line["type"] == kind)


Once = Callable[[TrialSpec], Run]
"""Runs a trial for the first test of a module that asks for it; the others read what it left behind."""


class ForkServer:
    """The process with torch in it, and the tasks of ``tests.trials.tasks`` on ranks that it forks."""

    def __init__(self, forks: Forks, *, deadline_s: float = PATIENCE_S) -> None:
        self._deadline_s = deadline_s
        self._forks = forks
        self._numbers = count()

    def run(self, spec: TrialSpec, folder: Path, *, world_size: int | None = None, task: str = "trial") -> Run:
        """Run a task on as many ranks as the layout has, or as said, and wait for them all."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "spec.json").write_text(codec.dumps(spec))
        (folder / "task").write_text(task)
        num_ranks = spec.layout.world_size if world_size is None else world_size
        return self.have_done("tests.trials.tasks:perform", folder, num_ranks)

    def have_done(self, task: str, folder: Path, num_ranks: int) -> Run:
        """Have so many ranks do a task, ``module:function``, and wait for them all."""
        folder.mkdir(parents=True, exist_ok=True)
        attempt_id = f"test-{os.getpid()}-{next(self._numbers)}"
        fork_server = self._forks.idle_fork_server()
        ranks = fork_server.start(task, folder, num_ranks, {**os.environ, ATTEMPT_ID: attempt_id})
        hangs = not _ended(ranks, self._deadline_s)
        assert len(ranks.exit_codes) == num_ranks, ranks.log()
        exit_codes = tuple(ranks.exit_codes[rank] for rank in range(num_ranks))
        logs = _logs(folder, num_ranks)
        for rank, exit_code in enumerate(exit_codes):
            if hangs or -exit_code in _CRASHES:  # whole, where an assertion would cut it short
                end = "hung" if hangs else f"ended by {signal.Signals(-exit_code).name}"
                sys.stdout.write(f"rank {rank} {end}:\n{logs[rank]}\n")
        return Run(folder=folder, exit_codes=exit_codes, lines=read_lines(folder / "reports.jsonl"), logs=logs)


def read_lines(reports: Path) -> tuple[dict[str, Any], ...]:
    """The reports of a trial, oldest first."""
    return tuple(map(json.loads, reports.read_text().splitlines())) if reports.exists() else ()


def _logs(folder: Path, num_ranks: int) -> tuple[str, ...]:
    """What each rank printed, errors last."""
    directories = [folder / "ranks" / str(rank) for rank in range(num_ranks)]
    return tuple("".join((d / name).read_text() for name in ("stdout.log", "stderr.log")) for d in directories)


def _ended(ranks: ForkedRanks, deadline_s: float) -> bool:
    """Whether all ended of themselves. As in a launcher, the first that fails takes the others with it, after a moment.

    At the deadline each rank that is left writes its stack to its log.
    """
    deadline = time.monotonic() + deadline_s
    while not ranks.has_ended() and time.monotonic() < deadline:
        if ranks.deaths:
            deadline = min(deadline, time.monotonic() + GRACE_S)
        time.sleep(0.005)
    hangs = not (ranks.has_ended() or ranks.deaths)
    if hangs:
        ask_for_stacks(ranks.attempt_id)
        time.sleep(_STACKS_S)
    ranks.end("measured")
    return not hangs
