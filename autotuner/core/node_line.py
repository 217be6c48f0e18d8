"""Lines that the ranks and nodes of an attempt report, a value a line.

Ranks of ours append lines to a file; a node prints them with a tag in front, of all its ranks, in the order things
happened. ``autotuner.launch.lines`` reads both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from autotuner.core.codec import to_plain
from autotuner.core.measurement import Breakdown, LinkEvent, Measurement, StepReport
from autotuner.core.profile import CollectivePoint, Measurements
from autotuner.core.timeline import StepTimeline
from autotuner.core.trial import FailureKind

PREFIX = b"#autotuner "
"""Begins the lines that a node's process reports; others are whatever else was printed there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFailure:
    """The last words of a rank of ours; its peers often fail as a consequence, and report that too."""

    rank: int
    kind: FailureKind
    message: str
    traceback: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """A rank that ended by itself with something other than 0; below zero is the signal that ended it."""

    rank: int
    exit_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStarted:
    """A node began its part of the job; ``at`` is its clock's seconds since the epoch, here and below."""

    node: int
    host: str
    at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """A line that a trainer, or torchrun itself, printed."""

    text: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerLine:
    """A line of JSON that a rank of a trainer reported, or the node itself about where the trainer runs."""

    line: str
    node: int = 0
    at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLog:
    """The last that a rank wrote to standard error."""

    local_rank: int
    """Within its node."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTime:
    """CPU seconds of a node since boot, and of a job's processes there since their start."""

    node: int
    busy_s: float
    total_s: float
    own_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEnd:
    """The end of a node's processes: its last line."""

    node: int
    exit_code: int
    """Of torchrun or of the trainer's command; below zero is the signal that ended it."""
    deaths: tuple[tuple[int, ...], ...] = ()
    """Rank and exit code of the ranks that torchrun found dead, in its order."""
    timed_out: bool = False
    """The task ran past its time limit."""
    oom_killed: bool = False
    """The kernel's out-of-memory killer struck on the node meanwhile."""
    told_to_end: bool = False
    """The node got SIGTERM, which engines send for whoever ends a job."""
    at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Untagged:
    """Any other line: an error of the engine's own, the traceback of a node without torch."""

    text: str


NodeLine = (
    StepReport
    | LinkEvent
    | Measurement
    | StepTimeline
    | Breakdown
    | RankFailure
    | Death
    | CollectivePoint
    | Measurements
    | NodeStarted
    | Printed
    | TrainerLine
    | RankLog
    | CpuTime
    | NodeEnd
    | Untagged
)

KINDS: Mapping[str, type[NodeLine]] = {
    "step": StepReport,
    "link_event": LinkEvent,
    "measurement": Measurement,
    "timeline": StepTimeline,
    "breakdown": Breakdown,
    "failure": RankFailure,
    "collective": CollectivePoint,
    "profile": Measurements,
    "node_started": NodeStarted,
    "printed": Printed,
    "told": TrainerLine,
    "log": RankLog,
    "cpu": CpuTime,
    "node": NodeEnd,
}
"""What a line is, by its ``type``; ``started``, which no launcher needs, is missing."""

TAGS: Mapping[type[NodeLine], str] = {kind: tag for tag, kind in KINDS.items()}


def node_line(value: NodeLine) -> bytes:
    """The line by which a node's process reports it."""
    document = {"type": TAGS[type(value)], **to_plain(value)}
    return PREFIX + json.dumps(document, allow_nan=False, separators=(",", ":")).encode() + b"\n"
