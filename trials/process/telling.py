"""What a node tells of its job on standard output: ``#autotuner {json}``, a line each, in the order things happened.

Types of line, by ``type``: those of the reporter's files as they are (``started``, ``step``, ``measurement``,
``timeline``, ``breakdown``, ``failure``, and what modules that measure report); ``node_started`` with the node and its
host; ``printed``, a line of a trainer with the moment it came; ``told``, a line that a rank of a trainer reported;
``log``, the last lines of what a rank wrote to standard error; and ``node`` last, which says how the node's processes
ended. One process writes them all, so that lines never mix, however long.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

PREFIX = "#autotuner "

_TAIL_BYTES = 1 << 14
"""Of a rank's log: its last words, its stack, and torch's C++ backtrace between them."""


class Teller:
    """Reads what the ranks of one node write, and tells it.

    Attributes:
        reports: What ranks of ours append to.
        told: Folder of what ranks of a trainer append to.
        rank_logs: Folder where torchrun puts what ranks print.
        deaths: The ranks that torchrun found dead.
    """

    def __init__(self, folder: Path, node_rank: int, descriptor: int = 1) -> None:
        self._node_rank = node_rank
        self._descriptor = descriptor
        self._offsets: dict[Path, int] = {}
        self._telling = threading.Lock()
        self.reports = folder / "reports.jsonl"
        self.told = folder / "told"
        self.rank_logs = folder / "ranks"
        self.deaths = folder / "deaths.json"
        self._agent_lines: list[str] = []

    def make_folders(self) -> None:
        """Those that others write into."""
        self.told.mkdir()
        self.rank_logs.mkdir()

    def started(self) -> None:
        """The node's part has begun."""
        self._tell({"type": "node_started", "node": self._node_rank, "host": socket.gethostname(), "at": time.time()})

    def runs_on(self, environment: Mapping[str, str]) -> None:
        """Where a trainer runs here, which it may not tell itself."""
        line = json.dumps({"environment": dict(environment)})
        self._tell({"type": "told", "file": f"node-{self._node_rank}.jsonl", "line": line})

    def listen(self, output: IO[bytes] | None) -> None:
        """Tell every line that a trainer, or torchrun itself, prints, until nobody can write any more."""
        for line in output or ():
            text = line.decode(errors="replace").rstrip("\r\n")
            self._tell({"type": "printed", "node": self._node_rank, "at": time.time(), "text": text})

    def forward(self) -> None:
        """Tell what was written since the last call; a line still being written waits."""
        for line in self._new_lines(self.reports):
            self._tell_raw(line)
        for path in sorted(self.told.glob("rank-*.jsonl")):
            for line in self._new_lines(path):
                self._tell({"type": "told", "file": path.name, "line": line})

    def ended(self, *, exit_code: int, timed_out: bool, oom_killed: bool, told_to_end: bool, is_trainer: bool) -> None:
        """The last lines: what is left to forward, the ranks' logs, and how it ended."""
        self.forward()
        if exit_code != 0 and not is_trainer:
            self._tell_logs()
        self._tell(
            {
                "type": "node",
                "node": self._node_rank,
                "exit_code": exit_code,
                "deaths": json.loads(self.deaths.read_text()) if self.deaths.exists() else [],
                "timed_out": timed_out,
                "oom_killed": oom_killed,
                "told_to_end": told_to_end,
            }
        )

    def _tell_logs(self) -> None:
        for path in sorted(self.rank_logs.rglob("stderr.log")):
            with path.open("rb") as log:
                log.seek(max(0, path.stat().st_size - _TAIL_BYTES))
                text = log.read().decode(errors="replace")
            self._tell({"type": "log", "local_rank": int(path.parent.name), "node": self._node_rank, "text": text})

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

    def _tell(self, document: dict[str, Any]) -> None:
        self._tell_raw(json.dumps(document, separators=(",", ":")))

    def _tell_raw(self, text: str) -> None:
        rest = f"{PREFIX}{text}\n".encode()
        with self._telling:
            try:
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
            except OSError:
                return  # nobody listens any more; whoever ends the job will say so
