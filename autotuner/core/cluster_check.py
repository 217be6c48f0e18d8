"""Cluster check: a measurement of the devices and links of a cluster's nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from autotuner.core.amounts import read_minutes, written_minutes
from autotuner.core.cluster import LOCAL, SIMULATED, Cluster
from autotuner.core.errors import InvalidInput
from autotuner.core.link import LinkPoint
from autotuner.core.measurement import Measurement
from autotuner.core.run import Run
from autotuner.core.trial import EngineJob
from autotuner.core.value import Count, Flag, Positive, Typed, value


@value
class CheckRequest:
    """How a cluster is to be checked."""

    num_nodes: Count = 2
    """Nodes to measure on: two tell all that a profile needs; never more than the cluster has."""
    max_queued_s: Annotated[
        Positive, Flag("max-minutes-queued"), Typed(read_minutes, written_minutes, "in minutes")
    ] = 600.0
    """How long each of both jobs may wait for its nodes before the check gives up."""
    quick: bool = False
    """Whether to use tiny sizes, which try the way, not the devices."""
    links: bool = False
    """Whether to measure each link between all nodes, whatever ``num_nodes`` says, and run no trial; devices and
    collectives only where the cluster has no profile yet."""


@value
class CheckLine:
    """Something that happened, as a sentence without a full stop."""

    at: float
    """Epoch seconds."""
    text: str


@value
class CheckFindings:
    """What a check has found by now."""

    lines: tuple[CheckLine, ...] = ()
    """What happened, in order; how the check ended is the detail of its run."""
    engine: str = ""
    """What answered, with its version; empty before."""
    trial: Measurement | None = None
    """What the trial measured; None before."""
    num_points: int = 0
    """Collectives that were timed."""
    profile_at: float | None = None
    """When the profile was stored, epoch seconds; None before."""
    jobs: tuple[EngineJob, ...] = ()
    """What the engine was given, to be found again by whoever goes on with the check."""
    links: tuple[LinkPoint, ...] = ()
    """Links that were measured one by one."""

    def said(self, text: str, at: float) -> CheckFindings:
        """With one line more."""
        return replace(self, lines=(*self.lines, CheckLine(at=at, text=text)))


@value
class ClusterCheck:
    """A check of a cluster as it was asked for."""

    cluster: Cluster
    """The cluster as it was stored then."""
    request: CheckRequest

    @property
    def nodes(self) -> Cluster:
        """The nodes that it measures."""
        if self.request.links:
            return self.cluster
        return self.cluster.resized(num_nodes=min(self.request.num_nodes, self.cluster.num_nodes))


@value
class CheckRun(Run):
    """A check of a cluster; ``subject`` is the name of the cluster."""

    kind: Literal["check"] = "check"
    request: ClusterCheck
    progress: CheckFindings
    """What it has found by now."""

    @property
    def lines(self) -> tuple[CheckLine, ...]:
        """Return what happened, in order; the last line of a finished check says how it ended."""
        said = self.progress if self.finished_at is None else self.progress.said(self.detail, self.finished_at)
        return said.lines


def check_engine(cluster: Cluster) -> None:
    """A check measures nodes that an engine gives: this machine is none, and the cost model has none.

    Raises:
        InvalidInput: The cluster names no such engine.
    """
    if cluster.engine in _NOT_CHECKED:
        raise InvalidInput("engine", cluster.engine, _NOT_CHECKED[cluster.engine])


_NOT_CHECKED = {
    LOCAL: "is the machine of whoever runs the sweep, which `autotuner profile` measures; only engines are checked",
    SIMULATED: "only pretends; what has no nodes cannot be checked",
}
