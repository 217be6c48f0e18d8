"""Lines that the ranks and nodes of an attempt report, with one value per line.

Ranks append lines to a file. A node prints the lines of all its ranks in the order of time, with a tag in front.
``autotuner.launch.lines`` reads both.
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
"""Tag at the start of each line that a node's process reports. Lines without the tag are other output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFailure:
    """The error of one rank of a trial. Other ranks often fail because of it, and report their own errors."""

    rank: int
    kind: FailureKind
    message: str
    traceback: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """A rank whose process ended with an exit code other than 0. A negative code is the signal that ended it."""

    rank: int
    exit_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStarted:
    """The start of a job's processes on one node, with the node's time ``at`` in epoch seconds."""

    node: int
    host: str
    at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """A line of text that a trainer or torchrun printed."""

    text: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerLine:
    """A line of JSON from a rank of a trainer, or from the node itself about the environment of the trainer."""

    line: str
    node: int = 0
    at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLog:
    """The last lines that a rank wrote to standard error."""

    local_rank: int
    """Number of the rank within its node."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTime:
    """The CPU seconds of a node since it booted, and the CPU seconds of the job's processes since they started."""

    node: int
    busy_s: float
    total_s: float
    own_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEnd:
    """The end of a job's processes on one node. It is the last line that the node reports."""

    node: int
    exit_code: int
    """Exit code of torchrun or of the trainer's command; a negative number is the signal that ended the process."""
    deaths: tuple[tuple[int, ...], ...] = ()
    """Rank and exit code of each rank that torchrun found dead, in torchrun's order."""
    timed_out: bool = False
    """True if the task exceeded its time limit."""
    oom_killed: bool = False
    """True if the kernel's out-of-memory killer was active on the node during the task."""
    told_to_end: bool = False
    """True if the node received SIGTERM, which engines send when a user or an operator ends a job."""
    at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Untagged:
    """A line of output in no known form, such as an engine's error or a Python traceback of a node without torch."""

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
    "trainer": TrainerLine,
    "log": RankLog,
    "cpu": CpuTime,
    "node": NodeEnd,
}
"""Classes of lines by their ``type``. The type ``started`` is missing because no launcher needs it."""

TAGS: Mapping[type[NodeLine], str] = {kind: tag for tag, kind in KINDS.items()}


def node_line(value: NodeLine) -> bytes:
    """Return the line of text by which a node's process reports a value: a tag, JSON, and a line end."""
    document = {"type": TAGS[type(value)], **to_plain(value)}
    return PREFIX + json.dumps(document, allow_nan=False, separators=(",", ":")).encode() + b"\n"
