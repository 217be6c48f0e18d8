"""What the nodes of a job printed, sorted into the files of an attempt as ranks of this machine leave them."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotuner.launch.ranks import Death
from autotuner.launch.reports import TrialFiles

__all__ = ["PREFIX", "JobOutput", "NodeEnd"]

PREFIX = b"#autotuner "
"""How lines begin that a node's process tells (``trials.process.telling``); others are whatever the node prints."""

_KEPT_LINES = 200
"""Of what no reader understands: an error of the engine's own, the traceback of a node without torch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEnd:
    """How the processes of a node ended, in their keeper's words.

    Attributes:
        exit_code: Of torchrun or of the trainer's command; below zero is the signal that ended it.
        deaths: Ranks that died of themselves.
    """

    exit_code: int
    deaths: tuple[Death, ...]
    timed_out: bool
    oom_killed: bool


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
        match document.get("type"):
            case "node_started":
                pass
            case "printed":
                self._printed(str(document.get("text")), float(document.get("at", 0.0)))
            case "told":
                _append(self._files.trainer_reports / Path(str(document.get("file"))).name, str(document.get("line")))
            case "log":
                self._log(node_rank, document)
            case "node":
                self.ends[node_rank] = _node_end(document)
            case _:
                _append(self._files.reports, line.removeprefix(PREFIX).decode(errors="replace"))

    def _printed(self, text: str, at: float) -> None:
        self._lines.append(text)
        if self._heard is not None:
            self._heard(text, at)

    def _log(self, node_rank: int, document: Mapping[str, Any]) -> None:
        rank = node_rank * self._ranks_per_node + int(document["local_rank"])
        folder = self._files.rank_logs / str(rank)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "stderr.log").write_text(str(document.get("text")))


def _told(line: bytes) -> dict[str, Any] | None:
    """The document of a line that a node's process tells; None of any other."""
    if not line.startswith(PREFIX):
        return None
    with suppress(ValueError, RecursionError):
        document = json.loads(line.removeprefix(PREFIX))
        if isinstance(document, dict):
            return document
    return None


def _node_end(document: Mapping[str, Any]) -> NodeEnd:
    deaths: Sequence[Sequence[int]] = document.get("deaths", ())
    return NodeEnd(
        exit_code=int(document["exit_code"]),
        deaths=tuple(Death(rank=rank, exit_code=code) for rank, code in deaths),
        timed_out=bool(document.get("timed_out")),
        oom_killed=bool(document.get("oom_killed")),
    )


def _append(path: Path, line: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(line + "\n")
