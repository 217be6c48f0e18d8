"""The folder of a job, which the service and its nodes share."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from autotuner.core.codec import dumps
from autotuner.core.trial_spec import NodeTask
from autotuner.launch.engines.engine import EngineUnavailable
from autotuner.launch.engines.output import PREFIX

_TAIL_BYTES = 1 << 16
"""Where the last line of a node is looked for; it names the ranks that died, and no more."""

_SHOWN_BYTES = 600
"""Of what the batch script or a node wrote to standard error."""


class JobFolder:
    """The files of one job: script, task, how many it was submitted as, and what its nodes print.

    Args:
        shared: Folder of all jobs.
        name: Of the job.
    """

    def __init__(self, shared: Path, name: str) -> None:
        self.path = shared / name

    @property
    def script(self) -> Path:
        """What sbatch is given."""
        return self.path / "job.sh"

    @property
    def exists(self) -> bool:
        """Whether a job of this name was ever about to be submitted, and is not forgotten."""
        with self._work():
            return self.path.is_dir()

    def create(self, task: NodeTask, script: str) -> None:
        """Write what the nodes will read; done again it changes nothing."""
        with self._work():
            self.path.mkdir(parents=True, exist_ok=True)
            (self.path / "task.json").write_text(dumps(task))
            self.script.write_text(script)

    def number(self) -> int | None:
        """The number of the job that started under this name, else of the one that was submitted last."""
        return self._number("claim") or self._number("submitted")

    def submitted_as(self, number: int) -> None:
        """Remember what Slurm calls the job."""
        with self._work():
            new = self.path / "submitted.new"
            new.write_text(str(number))
            new.replace(self.path / "submitted")

    def cancelled(self) -> None:
        """Remember that its end was asked for."""
        with self._work():
            if self.path.is_dir():
                (self.path / "cancelled").touch()

    @property
    def is_cancelled(self) -> bool:
        """Whether this side asked for its end."""
        with self._work():
            return (self.path / "cancelled").exists()

    @property
    def was_restarted(self) -> bool:
        """Whether Slurm started the job a second time, which then left at once."""
        with self._work():
            return (self.path / "restarted").exists()

    def read(self, node_rank: int, offset: int) -> bytes:
        """What the node printed from that byte on; opened anew each time, since only then NFS asks its server."""
        with self._work():
            path = self._output(node_rank)
            if not path.exists():
                return b""
            with path.open("rb") as file:
                file.seek(offset)
                return file.read()

    def node_ends(self) -> list[Mapping[str, Any] | None]:
        """Return each node's last line, None for a node that runs; an empty list if nothing is known of the job."""
        with self._work():
            try:
                num_nodes = int(json.loads((self.path / "task.json").read_text())["num_nodes"])
            except (FileNotFoundError, ValueError, KeyError):
                return []
            return [self._end(node_rank) for node_rank in range(num_nodes)]

    def complaint(self) -> str:
        """The last that a node, or else the batch script, wrote to standard error."""
        with self._work():
            for path in (*sorted(self.path.glob("node-*.err")), self.path / "batch.log"):
                if path.exists() and (text := path.read_bytes()[-_SHOWN_BYTES:].decode(errors="replace").strip()):
                    return " ".join(text.split())
        return ""

    def remove(self) -> None:
        """All of it; nothing happens where nothing is."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _output(self, node_rank: int) -> Path:
        return self.path / f"node-{node_rank}.out"

    def _end(self, node_rank: int) -> Mapping[str, Any] | None:
        path = self._output(node_rank)
        if not path.exists():
            return None
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            ends = map(_read_end, reversed(file.read().splitlines(keepends=True)))
            return next((end for end in ends if end is not None), None)

    def _number(self, file: str) -> int | None:
        with self._work():
            path = self.path / file
            text = path.read_text().strip() if path.exists() else ""
            return int(text) if text.isdigit() else None

    @contextmanager
    def _work(self) -> Iterator[None]:
        """A shared folder that cannot be read or written is an engine that cannot be had."""
        try:
            yield
        except OSError as error:
            raise EngineUnavailable(f"the shared folder {self.path.parent}: {error}") from error


def _read_end(line: bytes) -> Mapping[str, Any] | None:
    """Return the line's document if a node says in it how it ended."""
    if not line.startswith(PREFIX) or not line.endswith(b"\n"):
        return None
    try:
        document = json.loads(line.removeprefix(PREFIX))
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) and document.get("type") == "node" else None
