"""What the driver of a job on Ray has said in the job's log (``trials.process.ray_driver``)."""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import suppress
from typing import Any

from autotuner.core.trial import EngineJobPhase
from autotuner.launch.engines.engine import JobStatus


class JobLog:
    """A log that is read from its beginning again and again, and taken in once.

    Args:
        mark: How the driver's lines begin, behind a ``#``; the rest is what Ray and Python had to say, or what an
            older job of the same name has left.

    Attributes:
        status: What the driver said last of the job; None before it has said anything.
        has_begun: Whether any node was started.
        was_stopped: Whether the driver ended because Ray told it to, before any node had failed.
    """

    def __init__(self, mark: str) -> None:
        self._mark = f"#{mark} "
        self._taken = 0
        self._printed: defaultdict[int, bytearray] = defaultdict(bytearray)
        self.status: JobStatus | None = None
        self.has_begun = False
        self.was_stopped = False

    def take(self, log: str) -> None:
        """Take in what is new; a line that is still being written waits."""
        end = log.rfind("\n") + 1
        for line in log[self._taken : end].splitlines():
            _, found, rest = line.partition(self._mark)
            if found:
                with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):  # cut off, say
                    self._understand(json.loads(rest))
        self._taken = max(self._taken, end)

    def printed(self, node_rank: int, offset: int) -> bytes:
        """What a node has printed from that byte on."""
        return bytes(self._printed[node_rank][offset:])

    def _understand(self, said: dict[str, Any]) -> None:
        if "phase" in said:
            self.status = JobStatus(phase=EngineJobPhase(said["phase"]), detail=said["detail"])
            self.has_begun |= self.status.phase is EngineJobPhase.RUNNING
            self.was_stopped |= said.get("was_stopped") is True
        else:
            self._printed[int(said["node"])] += said["text"].encode("latin-1")
