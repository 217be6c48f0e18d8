"""``python -m autotuner.trials.process.node``: the program that an engine runs once on each node of a job.

It starts the node's ranks under torchrun, or the command of a trainer. It enforces the time limit even if nobody reads
its output, and ends everything that it started on SIGTERM. It reports on standard output, one line per event
(``autotuner.core.node_line``). The node only needs Python, torch and this package: no shared folder, no database, no
connection to the service.

Exit codes: 0, all ranks of this node ended well; 1, they did not, and the last line says why; 2, the task cannot be
read.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import IO

from autotuner.core import codec
from autotuner.core.errors import InvalidInput
from autotuner.core.node_line import (
    PREFIX,
    CpuTime,
    NodeEnd,
    NodeLine,
    NodeStarted,
    Printed,
    RankLog,
    TrainerLine,
    node_line,
)
from autotuner.core.trial_spec import NodeTask
from autotuner.host import supervisor
from autotuner.host.cpu_time import machine_cpu_s, process_cpu_s
from autotuner.host.machine_facts import hardware_facts, settings_of_libraries, system_facts

_TAIL_BYTES = 1 << 14
"""Number of bytes at the end of a rank's log that are read: its last lines, its stack, and torch's C++ backtrace
between them."""


_CHUNK_BYTES = 1 << 16


class Teller:
    """Collects the reports and the output of the ranks of one node, and writes them to the output of the job.

    Only this process writes to the output of the job, so that lines never mix.

    Attributes:
        reports: File to which ranks append their reports if the trial trains the built-in transformer decoder.
        trainer_reports: Folder with the files to which ranks append their reports if a registered trainer runs.
        rank_logs: Folder into which torchrun writes the output of each rank.
        deaths: File in which torchrun lists the ranks that died.
    """

    def __init__(self, folder: Path, node_rank: int, descriptor: int = 1) -> None:
        self._node_rank = node_rank
        self._descriptor = descriptor
        self._offsets: dict[Path, int] = {}
        self._telling = threading.Lock()
        self.reports = folder / "reports.jsonl"
        self.trainer_reports = folder / "trainer"
        self.rank_logs = folder / "ranks"
        self.deaths = folder / "deaths.json"
        self._agent_lines: list[str] = []

    def make_folders(self) -> None:
        """Create the folders into which torchrun and the ranks write their output and reports."""
        self.trainer_reports.mkdir()
        self.rank_logs.mkdir()

    def tell(self, value: NodeLine) -> None:
        """Write one value, such as a step report, as a line to the output of the job. The line may have any length."""
        self._write(node_line(value))

    def started(self) -> None:
        """Write the line that says that this node has started."""
        self.tell(NodeStarted(node=self._node_rank, host=socket.gethostname(), at=time.time()))

    def runs_on(self, environment: Mapping[str, str]) -> None:
        """Write the software and hardware facts of the node on which a registered trainer runs.

        A registered trainer is a training program of the operator. It need not report these facts itself.
        """
        self._tell_of_trainer(json.dumps({"environment": dict(environment)}))

    def listen(self, output: IO[bytes]) -> None:
        """Copy every line that a trainer or torchrun prints to the output of the job.

        It returns when all writers have closed ``output``. A carriage return, as in a progress bar, ends a line, too. A
        very long line is written in pieces.
        """
        rest = b""
        while chunk := os.read(output.fileno(), _CHUNK_BYTES):
            *lines, rest = (rest + chunk).replace(b"\r", b"\n").split(b"\n")
            if len(rest) > _CHUNK_BYTES:
                lines, rest = [*lines, rest], b""
            self._print(lines)
        self._print([rest])

    def _print(self, lines: Sequence[bytes]) -> None:
        for line in filter(bytes.strip, lines):
            self.tell(Printed(text=line.decode(errors="replace"), at=time.time()))

    def forward(self) -> None:
        """Copy the lines that ranks have appended to their files since the last call.

        Incomplete lines are copied later.
        """
        for line in self._new_lines(self.reports):
            self._write(PREFIX + line.encode() + b"\n")
        for path in sorted(self.trainer_reports.glob("rank-*.jsonl")):
            for line in self._new_lines(path):
                self._tell_of_trainer(line)

    def ended(self, *, exit_code: int, timed_out: bool, oom_killed: bool, told_to_end: bool, is_trainer: bool) -> None:
        """Write the last lines: the remaining reports, the logs of ranks after a failure, and how the node ended.

        Args:
            exit_code: The exit code of the node's processes.
            timed_out: True if the processes ran longer than allowed.
            oom_killed: True if the kernel killed a process because the node's memory was full.
            told_to_end: True if the node got SIGTERM.
            is_trainer: True if a registered trainer ran; False if the built-in decoder ran.
        """
        self.forward()
        if exit_code != 0 and not is_trainer:
            self._tell_logs()
        found_dead = json.loads(self.deaths.read_text()) if self.deaths.exists() else []
        self.tell(
            NodeEnd(
                node=self._node_rank,
                exit_code=exit_code,
                deaths=tuple(map(tuple, found_dead)),
                timed_out=timed_out,
                oom_killed=oom_killed,
                told_to_end=told_to_end,
                at=time.time(),
            )
        )

    def _tell_logs(self) -> None:
        for path in sorted(self.rank_logs.rglob("stderr.log")):
            with path.open("rb") as log:
                log.seek(max(0, path.stat().st_size - _TAIL_BYTES))
                text = log.read().decode(errors="replace")
            self.tell(RankLog(local_rank=int(path.parent.name), text=text))

    def _new_lines(self, path: Path) -> list[str]:
        if not path.exists():
            return []
        lines = []
        with path.open("rb") as file:
            file.seek(self._offsets.get(path, 0))
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._offsets[path] = self._offsets.get(path, 0) + len(line)
                lines.append(line.decode(errors="replace").rstrip("\n"))
        return lines

    def _tell_of_trainer(self, line: str) -> None:
        self.tell(TrainerLine(line=line, node=self._node_rank, at=time.time()))

    def _write(self, rest: bytes) -> None:
        with self._telling:
            try:
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
            except OSError:
                return  # the output is closed; the process that ends the job reports it


TASK = "AUTOTUNER_TASK"
"""Environment variable with the task, if it is not in a file."""

_ATTEMPT_ID = "AUTOTUNER_ATTEMPT_ID"
_REPORT_DIR = "AUTOTUNER_REPORT_DIR"
_SPEC = "AUTOTUNER_SPEC"

_NEEDED_BY_ANY = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH")
"""Variables that every trainer gets, beside those that its operator named."""

_POLL_S = 0.1

_LOOK_S, _LOOKS = 0.2, 50
"""Seconds between the first looks at the load of the node, and their number. Later looks come after every fiftieth of
the time that has passed, because each look reads all of ``/proc`` and writes a line."""

_STACKS_S = 0.5
"""Seconds that ranks get to write their stacks when the time limit is reached."""

_GRACE_S = 3.0
"""Seconds that processes get to exit after SIGTERM; the supervisor needs as long again to kill the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlace:
    """The number of this node in its job, and the address at which the ranks of all nodes meet."""

    node_rank: int
    master_address: str
    master_port: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Run this node's ranks of a job to their end, and return the exit code.

    Args:
        arguments: The command-line arguments after the program's name; None: the arguments of this process.
    """
    parser = argparse.ArgumentParser(
        prog="python -m autotuner.trials.process.node", description="Run one node of a job."
    )
    parser.add_argument("--node-rank", type=int, required=True, help="number of this node, from 0")
    parser.add_argument("--master-address", required=True, help="name or address of node 0")
    parser.add_argument("--master-port", type=int, required=True, help="a free port of node 0")
    parser.add_argument("--task", type=Path, help=f"a NodeTask as JSON; by default the variable {TASK}")
    parser.add_argument("--folder", help="an empty folder for its files; by default a temporary one, gone afterwards")
    given = parser.parse_args(arguments)
    try:
        text = os.environ[TASK] if given.task is None else given.task.read_text()
        task = codec.loads(NodeTask, text)
    except (OSError, KeyError, InvalidInput) as error:
        parser.error(f"cannot read the task: {error}")  # exits with code 2
    place = NodePlace(node_rank=given.node_rank, master_address=given.master_address, master_port=given.master_port)
    own = partial(tempfile.TemporaryDirectory, prefix=f"{task.job_name}-", ignore_cleanup_errors=True)
    with own() if given.folder is None else nullcontext(given.folder) as folder:
        return _Node(task, place, Path(folder)).run()


class _Node:
    """The processes of one node, from their start to their end."""

    def __init__(self, task: NodeTask, place: NodePlace, folder: Path) -> None:
        self._task = task
        self._place = place
        self._folder = folder
        self._teller = Teller(folder, place.node_rank)
        self._told_to_end = threading.Event()

    def run(self) -> int:
        """Run the node's part of the job and return the exit code."""
        signal.signal(signal.SIGTERM, self._asked_to_end)
        self._teller.started()
        oom_kills = supervisor.kernel_oom_kills()
        deadline = time.monotonic() + self._task.time_limit_s
        self._write_files()
        process = self._start()
        assert process.stdout is not None  # a pipe was asked for
        listener = threading.Thread(target=self._teller.listen, args=(process.stdout,), daemon=True)
        listener.start()
        timed_out = self._follow(process, deadline)
        if timed_out:
            self._ask_for_stacks(process.pid)
        self._end(process)
        listener.join(_GRACE_S)  # a pipe ends with the last process that can write to it
        exit_code = process.returncode
        self._teller.ended(
            exit_code=exit_code,
            timed_out=timed_out,
            oom_killed=supervisor.kernel_oom_kills() > oom_kills,
            told_to_end=self._told_to_end.is_set(),
            is_trainer=bool(self._task.command),
        )
        return 0 if exit_code == 0 and not timed_out else 1

    def _asked_to_end(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._told_to_end.set()

    def _write_files(self) -> None:
        spec = self._task.request if self._task.spec is None else codec.dumps(self._task.spec)
        (self._folder / "spec.json").write_text(spec)
        self._teller.make_folders()
        for name, text in self._task.files.items():
            (self._folder / Path(name).name).write_text(text)

    def _start(self) -> subprocess.Popen[bytes]:
        command = self._trainer() if self._task.command else self._torchrun()
        directory = self._task.working_directory or None
        variables = self._variables(os.environ)
        if self._task.command:
            self._teller.runs_on(system_facts() | hardware_facts() | settings_of_libraries(variables))
        return subprocess.Popen(
            [sys.executable, "-I", "-S", supervisor.__file__, str(os.getpid()), str(self._limit_bytes()), *command],
            cwd=directory,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def _limit_bytes(self) -> int:
        """Return the memory limit in bytes of each process of a trainer, or 0 for none.

        Our own ranks limit themselves.
        """
        spec = self._task.spec
        if spec is None or not self._task.command or spec.device != "cpu":
            return 0
        return spec.settings.memory_budget_bytes or 0

    def _variables(self, own: Mapping[str, str]) -> dict[str, str]:
        """Return all environment variables of the ranks' processes."""
        if not self._task.command:
            kept = dict(own)
        else:
            kept = {name: own[name] for name in (*_NEEDED_BY_ANY, *self._task.passed) if name in own}
        kept.pop(TASK, None)  # it is as long as a trial's spec, and no rank reads it
        return {
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            **kept,
            **self._task.variables,
            _ATTEMPT_ID: self._task.job_name,
            _REPORT_DIR: str(self._teller.trainer_reports),
            _SPEC: (self._folder / "spec.json").read_text(),
        }

    def _torchrun(self) -> list[str]:
        task, place, teller = self._task, self._place, self._teller
        return [
            *(sys.executable, "-m", "autotuner.trials.process.torchrun_agent", "0", str(teller.deaths)),
            *("--nnodes", str(task.num_nodes), "--node-rank", str(place.node_rank)),
            *("--nproc-per-node", str(task.ranks_per_node), "--max-restarts", "0"),
            *("--master-addr", place.master_address, "--master-port", str(place.master_port)),
            *("--redirects", "3", "--log-dir", str(teller.rank_logs)),
            *("-m", task.module, "--spec", str(self._folder / "spec.json"), "--reports", str(teller.reports)),
        ]

    def _trainer(self) -> list[str]:
        known = {
            "folder": self._folder,
            "python": sys.executable,
            "num_nodes": self._task.num_nodes,
            "node_rank": self._place.node_rank,
            "ranks_per_node": self._task.ranks_per_node,
            "master_address": self._place.master_address,
            "master_port": self._place.master_port,
        }
        return [_filled(argument, known) for argument in self._task.command]

    def _follow(self, process: subprocess.Popen[bytes], deadline: float) -> bool:
        """Report what the ranks write until all have ended or must end; return True if the time limit was reached."""
        began_at = look_at = time.monotonic()
        while process.poll() is None and not self._told_to_end.is_set():
            self._teller.forward()
            now = time.monotonic()
            if self._task.command and now >= look_at:
                self._teller.tell(cpu_time(self._place.node_rank))
                look_at = now + max(_LOOK_S, (now - began_at) / _LOOKS)
            if now >= deadline:
                return True
            self._told_to_end.wait(_POLL_S)
        return False

    def _ask_for_stacks(self, pid: int) -> None:
        """Ask every one of our ranks to write its Python stack to its log, which shows where it hangs."""
        if self._task.command:
            return
        for rank in supervisor.descendants(pid):
            if _module_of(rank) == self._task.module:
                supervisor.send(rank, signal.SIGUSR1)
        time.sleep(_STACKS_S)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """End the remaining processes: the supervisor ends all processes below it."""
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(2 * _GRACE_S)
        except subprocess.TimeoutExpired:
            for pid in supervisor.descendants(process.pid):
                supervisor.send(pid, signal.SIGKILL)
            process.kill()
            process.wait()


def cpu_time(node_rank: int) -> CpuTime:
    """Return the CPU seconds that this machine has used since boot, and those of this process and its descendants.

    Args:
        node_rank: Number of this node in the job, which is part of the result.
    """
    busy_s, total_s = machine_cpu_s()
    own = (os.getpid(), *supervisor.descendants(os.getpid()))
    return CpuTime(node=node_rank, busy_s=busy_s, total_s=total_s, own_s=sum(map(process_cpu_s, own)))


def _filled(argument: str, known: Mapping[str, object]) -> str:
    for name, value in known.items():
        argument = argument.replace(f"{{{name}}}", str(value))
    return argument


def _module_of(pid: int) -> str:
    """Return the module that a process runs with ``python -m``; empty if it runs none or has ended."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    return words[words.index("-m") + 1] if "-m" in words[:-1] else ""


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.exit(code)
