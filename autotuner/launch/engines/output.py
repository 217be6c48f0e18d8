"""What the nodes of a job printed, sorted into the files of an attempt as ranks of this machine leave them."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from autotuner.core.codec import from_plain
from autotuner.core.errors import InvalidInput
from autotuner.launch.ranks import Death
from autotuner.launch.reports import TrialFiles

PREFIX = b"#autotuner "
"""How lines begin that a node's process tells (``trials.process.node``); others are whatever the node prints."""

T = TypeVar("T")

_LONGEST_NAME = 100

_KEPT_LINES = 200
"""Of what no reader understands: an error of the engine's own, the traceback of a node without torch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEnd:
    """How the processes of a node ended, in their keeper's words."""

    exit_code: int
    """Of torchrun or of the trainer's command; below zero is the signal that ended it."""
    deaths: tuple[Death, ...]
    """Ranks that died of themselves."""
    timed_out: bool
    oom_killed: bool
    told_to_end: bool
    """The node got SIGTERM, which engines send for whoever ends a job."""


class JobOutput:
    """Reads the output of every node of a job from its first byte.

    Args:
        files: Of the attempt, in an empty folder of this machine; they are written as they would have been by ranks.
        num_nodes: Nodes of the job.
        ranks_per_node: Ranks on each.
        read: What a node has printed from a byte on.
        heard: Told each line that a trainer printed, and the node's clock then.

    Attributes:
        ends: How each node's processes ended, by node; those that still run are missing.
        has_begun: Whether a node has said anything at all.
    """

    def __init__(
        self,
        files: TrialFiles,
        *,
        num_nodes: int,
        ranks_per_node: int,
        read: Callable[[int, int], bytes],
        heard: Callable[[str, float], None] | None = None,
    ) -> None:
        self._files = files
        self._ranks_per_node = ranks_per_node
        self._read = read
        self._heard = heard
        self._offsets = dict.fromkeys(range(num_nodes), 0)
        self._open_lines = dict.fromkeys(range(num_nodes), b"")
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self.ends: dict[int, NodeEnd] = {}
        self.has_begun = False

    @property
    def has_ended(self) -> bool:
        """Whether every node has said how it ended."""
        return len(self.ends) == len(self._offsets)

    @property
    def silent(self) -> list[int]:
        """The nodes that have not said how they ended."""
        return [node_rank for node_rank in self._offsets if node_rank not in self.ends]

    @property
    def text(self) -> str:
        """The last lines that a person would have seen on the nodes."""
        return "\n".join(self._lines)

    def pump(self) -> None:
        """Take what is new."""
        for node_rank, offset in self._offsets.items():
            new = self._read(node_rank, offset)
            self._offsets[node_rank] = offset + len(new)
            *lines, self._open_lines[node_rank] = (self._open_lines[node_rank] + new).split(b"\n")
            for line in lines:
                self._sort(node_rank, line)

    def _sort(self, node_rank: int, line: bytes) -> None:
        self.has_begun = True
        document = _told(line)
        if document is None:
            self._lines.append(line.decode(errors="replace"))
            return
        with suppress(InvalidInput):  # of another release, or no line of ours: what follows may still count
            self._take(node_rank, document, line)

    def _take(self, node_rank: int, document: dict[str, Any], line: bytes) -> None:
        match document.get("type"):
            case "node_started":
                pass
            case "printed":
                self._printed(_read(_Printed, document))
            case "told":
                told = _read(_Told, document)
                _append(self._files.trainer_reports / _file_name(told.file), told.line)
            case "log":
                self._log(node_rank, _read(_Log, document))
            case "node":
                self.ends[node_rank] = _node_end(_read(_End, document))
            case str():
                _append(self._files.reports, line.removeprefix(PREFIX).decode(errors="replace"))

    def _printed(self, printed: _Printed) -> None:
        self._lines.append(printed.text)
        if self._heard is not None:
            self._heard(printed.text, printed.at)

    def _log(self, node_rank: int, log: _Log) -> None:
        if not 0 <= log.local_rank < self._ranks_per_node:
            return
        folder = self._files.rank_logs / str(node_rank * self._ranks_per_node + log.local_rank)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "stderr.log").write_text(log.text, errors="replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Printed:
    """A line of a command, by the node's clock."""

    text: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """A line that a rank of a trainer reported into its file."""

    file: str
    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Log:
    """The last that a rank wrote to standard error."""

    local_rank: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """How a node's processes ended; of each death rank and exit code."""

    exit_code: int
    deaths: tuple[tuple[int, ...], ...] = ()
    timed_out: bool = False
    oom_killed: bool = False
    told_to_end: bool = False


def _read(kind: type[T], document: Mapping[str, Any]) -> T:
    """The line as its dataclass; what a newer release adds is passed over."""
    known = {one.name for one in fields(kind)}  # type: ignore[arg-type]  # each is a dataclass
    return from_plain(kind, {name: value for name, value in document.items() if name in known})


def _told(line: bytes) -> dict[str, Any] | None:
    """The document of a line that a node's process tells; None of any other."""
    if not line.startswith(PREFIX):
        return None
    with suppress(ValueError, RecursionError):
        document = json.loads(line.removeprefix(PREFIX))
        if isinstance(document, dict):
            return document
    return None


def _node_end(end: _End) -> NodeEnd:
    return NodeEnd(
        exit_code=end.exit_code,
        deaths=tuple(Death(rank=death[0], exit_code=death[1]) for death in end.deaths if len(death) == 2),
        timed_out=end.timed_out,
        oom_killed=end.oom_killed,
        told_to_end=end.told_to_end,
    )


def _file_name(said: str) -> str:
    """A name that any file system takes, in the folder that it is for."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", Path(said).name)[-_LONGEST_NAME:]
    return name if name.strip(".") else "unnamed"


def _append(path: Path, line: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", errors="replace") as file:
        file.write(line + "\n")
