"""Reads the reports of ranks and nodes: parses their lines, and collects the values of one attempt."""

from __future__ import annotations

import json
import signal
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

from autotuner.core.codec import from_plain
from autotuner.core.measurement import Breakdown, LinkEvent, Measurement, StepReport
from autotuner.core.node_line import (
    KINDS,
    PREFIX,
    Death,
    NodeEnd,
    NodeLine,
    Printed,
    RankFailure,
    RankLog,
    Untagged,
)
from autotuner.core.profile import CollectivePoint, Measurements
from autotuner.core.timeline import StepTimeline
from autotuner.launch.contract import AttemptEnd

_FIELDS = {kind: frozenset(one.name for one in fields(kind)) for kind in KINDS.values()}

_LONGEST_BYTES = 1 << 26
"""Maximum size of a line. A timeline of many ranks takes megabytes, but output without line ends must not fill
memory."""

_KEPT_LINES = 400
_KEPT_CHARACTERS = 2000
"""Maximum number of characters kept of each line of output that describes a failure."""


class LineReader:
    """A parser for one stream of report lines. It does not trust its input, and ignores lines that hold no valid value.

    Args:
        prefix: Prefix of the lines that hold a value. Other lines become ``Untagged``. Empty: all lines hold values.
        node: Number of the node that writes the stream. A line cannot claim to come from another node.
    """

    def __init__(self, prefix: bytes = b"", node: int = 0) -> None:
        self._prefix = prefix
        self._node = node
        self._rest = b""

    def read(self, chunk: bytes) -> list[NodeLine]:
        """Return the values in the lines that are complete now. An incomplete line is read in a later call."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > _LONGEST_BYTES:
            self._rest = b""
        return [value for line in lines if (value := self._value(line)) is not None]

    def _value(self, line: bytes) -> NodeLine | None:
        if not line.startswith(self._prefix):
            return Untagged(text=line.decode(errors="replace"))
        with suppress(ValueError, RecursionError):  # a torn, older or foreign line
            document = json.loads(line.removeprefix(self._prefix))
            tag = document.get("type") if isinstance(document, dict) else None
            if isinstance(tag, str) and tag in KINDS:
                kind, said = KINDS[tag], document | {"node": self._node}
                return from_plain(kind, {name: value for name, value in said.items() if name in _FIELDS[kind]})
        return None


class NodeOutputs:
    """The output of all nodes of a job that has arrived so far, parsed into reports.

    Attributes:
        ends: How the processes of each node ended, by the number of the node. Nodes that still run are missing.
    """

    def __init__(self, num_nodes: int, ranks_per_node: int) -> None:
        self._readers = [LineReader(PREFIX, node) for node in range(num_nodes)]
        self._ranks_per_node = ranks_per_node
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._rank_logs: dict[int, str] = {}
        self.ends: dict[int, NodeEnd] = {}

    def read(self, node: int, chunk: bytes) -> list[NodeLine]:
        """Return the values in a node's next bytes, and keep the values that say how the node ended."""
        values = self._readers[node].read(chunk)
        for value in values:
            match value:
                case Printed(text=text) | Untagged(text=text):
                    self._lines.append(text[:_KEPT_CHARACTERS])
                case RankLog(local_rank=local_rank, text=text) if 0 <= local_rank < self._ranks_per_node:
                    self._rank_logs[node * self._ranks_per_node + local_rank] = text
                case NodeEnd():
                    self.ends[node] = value
        return values

    @property
    def has_ended(self) -> bool:
        """Return True once every node has reported how it ended."""
        return len(self.ends) == len(self._readers)

    @property
    def silent(self) -> list[int]:
        """Return the numbers of the nodes that have not reported how they ended."""
        return [node for node in range(len(self._readers)) if node not in self.ends]

    @property
    def told_to_end(self) -> list[int]:
        """Return the numbers of the nodes that got SIGTERM, which means that somebody asked them to end.

        It is empty if another node, which had not got SIGTERM, failed.
        """
        ends = sorted(self.ends.items())
        has_failed = any(end.exit_code != 0 and not end.told_to_end for _, end in ends)
        return [] if has_failed else [node for node, end in ends if end.told_to_end]

    def attempt_end(self, *, timed_out: bool, detail: str = "") -> AttemptEnd:
        """Return how the ranks of all nodes ended: the exit code, the dead ranks and their last output.

        Args:
            timed_out: True if the ranks ran longer than allowed.
            detail: The engine's description of the job, which is added to the log of the result.
        """
        ends = [end for _, end in sorted(self.ends.items())]
        bad = next((end.exit_code for end in ends if end.exit_code), None)
        return AttemptEnd(
            exit_code=bad if bad is not None else (0 if self.has_ended else None),
            deaths=[death for end in ends for death in deaths_of(end)],
            rank_logs=self._rank_logs,
            log="\n".join(filter(None, (*self._lines, detail))),
            timed_out=timed_out or any(end.timed_out for end in ends),
            oom_killed=any(end.oom_killed for end in ends),
        )


def deaths_of(end: NodeEnd) -> list[Death]:
    """Return the ranks of a node that died by themselves.

    Ranks that torchrun ended after the first death are left out.
    """
    pairs = (pair for pair in end.deaths if len(pair) == 2)
    return [Death(rank=rank, exit_code=code) for rank, code in pairs if code != -signal.SIGTERM]


class RankReports:
    """Everything that the ranks have reported so far, in a trial of the built-in transformer decoder or in a benchmark.

    Attributes:
        measurement: The measurement, with all link events. The timeline and the breakdown are added to it later.
        failures: Failures that ranks reported before they died, in the order in which they were written.
        collectives: Collectives that the benchmarks of nodes have timed.
        benchmarks: All benchmark results, once they are complete.
    """

    def __init__(self) -> None:
        self._link_events: list[LinkEvent] = []
        self.measurement: Measurement | None = None
        self.failures: list[RankFailure] = []
        self.collectives: list[CollectivePoint] = []
        self.benchmarks: Measurements | None = None

    def take(self, lines: Sequence[NodeLine]) -> list[StepReport | LinkEvent]:
        """Take in new lines of the ranks, and return the reports of steps and of slow or dead links among them."""
        for line in lines:
            match line:
                case LinkEvent():
                    self._link_events.append(line)
                    self._add(link_events=tuple(self._link_events))
                case Measurement():
                    self.measurement = replace(line, link_events=tuple(self._link_events))
                case StepTimeline():
                    self._add(timeline=line)
                case Breakdown():
                    self._add(breakdown=line)
                case RankFailure():
                    self.failures.append(line)
                case CollectivePoint():
                    self.collectives.append(line)
                case Measurements():
                    self.benchmarks = line
        return [line for line in lines if isinstance(line, StepReport | LinkEvent)]

    def _add(self, **found: Any) -> None:
        """Add fields to the measurement.

        Do nothing without a measurement: on a full disk, its line may be torn, and later lines are then useless.
        """
        if self.measurement is not None:
            self.measurement = replace(self.measurement, **found)
