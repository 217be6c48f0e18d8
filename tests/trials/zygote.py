"""Runs trials on forked ranks: one process imports torch once, and each trial costs milliseconds to start.

``python -m tests.trials.zygote`` reads one JSON line per request from its standard input and answers each with one.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotuner.domain import wire
from autotuner.domain.trial import Measurement, StepReport, TrialSpec

DEADLINE_S = 90.0
"""A trial of this suite takes seconds; one that hangs is ended here, and its test fails with its exit codes."""
GRACE_S = 5.0
"""Long enough for the other ranks to notice and report what they saw."""


Task = Callable[[TrialSpec, Path, int, int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a trial left behind; an exit code below zero is the signal that ended the rank."""

    exit_codes: tuple[int, ...]
    lines: tuple[dict[str, Any], ...]
    logs: tuple[str, ...]

    @property
    def steps(self) -> tuple[StepReport, ...]:
        return tuple(wire.from_dict(StepReport, line) for line in self._of("step"))

    @property
    def failures(self) -> tuple[dict[str, Any], ...]:
        return self._of("failure")

    @property
    def measurement(self) -> Measurement:
        found = self._of("measurement")
        assert len(found) == 1, (self.exit_codes, self.failures, self.logs)
        return wire.from_dict(Measurement, found[0])

    def _of(self, kind: str) -> tuple[dict[str, Any], ...]:
        return tuple({k: v for k, v in line.items() if k != "type"} for line in self.lines if line["type"] == kind)


class Zygote:
    """The process with torch in it, seen from a test."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.trials.zygote"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def run(self, spec: TrialSpec, folder: Path, *, world_size: int | None = None, task: str = "trial") -> Run:
        """Run a task on as many ranks as the layout has, or as said, and wait for them all."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "spec.json").write_text(wire.dumps(spec))
        ranks = spec.layout.world_size if world_size is None else world_size
        request = {"folder": str(folder), "world_size": ranks, "task": task}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        exit_codes = json.loads(self._process.stdout.readline())
        return Run(exit_codes=tuple(exit_codes), lines=read_lines(folder / "reports.jsonl"), logs=_logs(folder, ranks))

    def close(self) -> None:
        """End it; it has no children between requests."""
        self._process.communicate("", timeout=10)


def read_lines(reports: Path) -> tuple[dict[str, Any], ...]:
    """The reports of a trial, oldest first."""
    return tuple(map(json.loads, reports.read_text().splitlines())) if reports.exists() else ()


def _logs(folder: Path, world_size: int) -> tuple[str, ...]:
    return tuple((folder / f"rank{rank}.log").read_text() for rank in range(world_size))


def _serve(tasks: dict[str, Task]) -> None:
    for request in map(json.loads, sys.stdin):
        folder = Path(request["folder"])
        children = [
            _fork(tasks[request["task"]], folder, rank, request["world_size"]) for rank in range(request["world_size"])
        ]
        sys.stdout.write(json.dumps(_wait(children)) + "\n")
        sys.stdout.flush()


def _fork(task: Task, folder: Path, rank: int, world_size: int) -> int:
    if child := os.fork():
        return child
    code = 70
    try:
        log = os.open(folder / f"rank{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        spec = wire.loads(TrialSpec, (folder / "spec.json").read_text())
        code = task(spec, folder, rank, world_size)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(children: list[int]) -> list[int]:
    """Exit codes by rank. As under torchrun, the first rank that fails takes the others with it, after a moment."""
    codes: dict[int, int] = {}
    running = {os.pidfd_open(child): child for child in children}
    poll = select.poll()
    for handle in running:
        poll.register(handle, select.POLLIN)
    deadline = time.monotonic() + DEADLINE_S
    while running:
        ended = poll.poll(max(0.0, deadline - time.monotonic()) * 1e3)
        for handle, _ in ended:
            poll.unregister(handle)
            os.close(handle)
            child = running.pop(handle)
            codes[child] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if codes[child]:
                deadline = min(deadline, time.monotonic() + GRACE_S)
        if not ended:
            for child in running.values():
                os.kill(child, signal.SIGKILL)
            deadline = time.monotonic() + GRACE_S
    return [codes[child] for child in children]


if __name__ == "__main__":
    import torch  # the process that runs the tests never needs it from here

    torch.set_num_threads(1)  # before any operation: a forked rank must not inherit a thread pool
    from tests.trials.tasks import TASKS

    _serve(TASKS)
