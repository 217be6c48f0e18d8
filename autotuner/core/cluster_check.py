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
    """A request to check a stored cluster: to measure its nodes and links, and to run a trial on it."""

    num_nodes: Count = 2
    """Number of nodes to measure on, at most the nodes of the cluster. Two nodes give all values of a profile."""
    max_queued_s: Annotated[
        Positive, Flag("max-minutes-queued"), Typed(read_minutes, written_minutes, "in minutes")
    ] = 600.0
    """Longest time that each of the two jobs may wait for its nodes before the check gives up."""
    quick: bool = False
    """Use tiny sizes, which test the procedure and not the devices."""
    links: bool = False
    """Measure each link between all nodes, whatever ``num_nodes`` says, and run no trial. Devices and collectives are
    measured only if the cluster has no profile yet."""


@value
class CheckLine:
    """One event of a cluster check: its time, and a sentence without a full stop."""

    at: float
    """Time of the event, in epoch seconds."""
    text: str


@value
class CheckFindings:
    """The results of a cluster check so far: its events, and the measured links, collectives and trial."""

    lines: tuple[CheckLine, ...] = ()
    """Events in order. The ``detail`` of the run says how the check ended."""
    engine: str = ""
    """Name and version of the engine that answered; empty before it has answered."""
    trial: Measurement | None = None
    """Measurement of the check's trial; None before the trial has run."""
    num_points: int = 0
    """Number of collectives that were timed."""
    profile_at: float | None = None
    """Time when the profile was stored, in epoch seconds; None before."""
    jobs: tuple[EngineJob, ...] = ()
    """Jobs that were submitted to the engine, so that a worker that resumes the check finds them."""
    links: tuple[LinkPoint, ...] = ()
    """Links that were measured one at a time."""

    def said(self, text: str, at: float) -> CheckFindings:
        """Return the findings with one more event: its text, and its time in epoch seconds."""
        return replace(self, lines=(*self.lines, CheckLine(at=at, text=text)))


@value
class ClusterCheck:
    """The request of a check run: the cluster as it was stored when the check was requested, and the options."""

    cluster: Cluster
    """The cluster as it was stored when the check was requested."""
    request: CheckRequest

    @property
    def nodes(self) -> Cluster:
        """The cluster reduced to the nodes that the check measures."""
        if self.request.links:
            return self.cluster
        return self.cluster.resized(num_nodes=min(self.request.num_nodes, self.cluster.num_nodes))


@value
class CheckRun(Run):
    """The durable run (background work that survives restarts) that checks a cluster.

    ``subject`` is the name of the cluster.
    """

    kind: Literal["check"] = "check"
    request: ClusterCheck
    progress: CheckFindings
    """Findings of the check so far."""

    @property
    def lines(self) -> tuple[CheckLine, ...]:
        """Return the events of the check in order. The last event of a finished check says how the check ended."""
        said = self.progress if self.finished_at is None else self.progress.said(self.detail, self.finished_at)
        return said.lines


def check_engine(cluster: Cluster) -> None:
    """Check that the cluster's engine (which starts its trials) has nodes that can be checked.

    Raises:
        InvalidInput: The engine is ``local`` or ``simulated``.
    """
    if cluster.engine in _NOT_CHECKED:
        raise InvalidInput("engine", cluster.engine, _NOT_CHECKED[cluster.engine])


_NOT_CHECKED = {
    LOCAL: ("only clusters on an engine, such as slurm, can be checked; measure this machine with `autotuner profile`"),
    SIMULATED: ("only clusters on an engine, such as slurm, can be checked; a simulated cluster has no real nodes"),
}
