"""Checks of clusters and of their links, and networks by name or from files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import Field

from autotuner.catalog.topology.read import MAX_CHARACTERS, read_topology
from autotuner.catalog.topology.topology import merged, on_cluster
from autotuner.core.cluster import Cluster
from autotuner.core.cluster_check import CheckFindings, CheckLine, CheckRequest, ClusterCheck
from autotuner.core.documents import Named, extended
from autotuner.core.link import Link, LinkHealth, LinkNorm, LinkPoint
from autotuner.core.measurement import Measurement
from autotuner.core.named import resolved
from autotuner.core.network import Network, Wiring
from autotuner.core.profile import profiled
from autotuner.core.run import Run, RunState, Stop
from autotuner.core.trial import EngineJob
from autotuner.search.text.topologies import topology_said
from autotuner.service.build import App
from autotuner.store.options import Page

# Checks of clusters, and what these found of their links.


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckView:
    """A check of a cluster."""

    id: str
    cluster: str
    """Its name."""
    engine: str
    queue: str
    state: RunState
    request: CheckRequest
    """How it is checked."""
    created_at: float
    started_at: float | None
    finished_at: float | None
    cancel_requested: bool
    """Its end was asked for."""
    lines: tuple[CheckLine, ...]
    """What happened, in order; the last of a failed check says why it failed."""
    answer: str
    """What the engine answered, with its version; empty before."""
    jobs: tuple[EngineJob, ...]
    """What the engine was given."""
    measured: Measurement | None
    """What the trial measured; null before."""
    num_points: int
    """Collectives that were timed."""
    profile_at: float | None
    """When what was measured was stored for predictions, epoch seconds; null before."""
    links: tuple[LinkPoint, ...] = ()
    """Links that were measured one by one; of more than 16 nodes neighbours in a ring and a sample."""
    created_by: str = ""
    """Name of the caller who asked for it; empty where nobody was asked who they are."""

    @classmethod
    def of(cls, run: Run) -> Self:
        """What a caller may know of the check."""
        check: ClusterCheck = run.request
        found: CheckFindings = run.progress
        if run.finished_at is not None:
            found = found.said(run.detail, run.finished_at)
        return extended(
            cls,
            run,
            found,
            cluster=check.cluster.name,
            engine=check.cluster.engine,
            queue=check.cluster.queue,
            request=check.request,
            cancel_requested=run.wanted is Stop.CANCEL,
            answer=found.engine,
            measured=found.trial,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPage:
    """Checks of a cluster, newest first."""

    items: tuple[CheckView, ...]
    total: int
    """How many there are in all."""
    limit: int
    offset: int

    @classmethod
    def of(cls, app: App, name: str, page: Page) -> Self:
        """Those of a stored cluster."""
        app.store.get_cluster(name)
        checks, total = app.store.runs.list("check", subject=name, page=page)
        return cls(items=tuple(map(CheckView.of, checks)), total=total, limit=page.limit, offset=page.offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkStanding:
    """A link of a cluster."""

    between: str
    """Its ends, in words."""
    described: Link
    """As whoever stored the cluster described it, or the catalog."""
    measured: Link | None
    """As a check of the cluster measured it; null without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkList:
    """The links of a stored cluster, described and measured."""

    items: tuple[LinkStanding, ...]
    measured_at: float | None
    """When the newest check measured them, epoch seconds; null without one."""
    num_nodes: int
    """Nodes that measured at once; 0 without a check."""
    one_by_one: tuple[LinkPoint, ...] = ()
    """Every pair of nodes, of a single node every pair of accelerators, as they were last measured while neither talked
    to anybody else; of more than 16 neighbours in a ring and a sample."""
    one_by_one_at: float | None = None
    """When that was, epoch seconds; null where nobody did."""
    one_by_one_nodes: int = 0
    """Nodes that were so measured; where these are fewer than the cluster has, nobody knows which."""
    norm: LinkNorm | None = None
    """What the healthy among those reach, and what would not be healthy; null of fewer than three."""
    health: tuple[LinkHealth, ...] = ()
    """Links that are not healthy by what was measured or is assumed: what predictions go by."""

    @classmethod
    def of(cls, app: App, name: str) -> Self:
        """Those of the stored cluster of that name."""
        cluster, profile = app.store.get_cluster(name), app.cluster_profile(name)
        found = cluster if profile is None else profiled(cluster, profile)
        pairs = (
            ("ranks of a node", cluster.intra_node_link, found.intra_node_link),
            ("nodes", cluster.inter_node_link, found.inter_node_link),
        )
        return cls(
            items=tuple(
                LinkStanding(between=between, described=old, measured=new if new.source else None)
                for between, old, new in pairs
            ),
            measured_at=profile.measured_at if profile else None,
            num_nodes=profile.num_nodes if profile else 0,
            one_by_one=profile.measurements.links if profile else (),
            one_by_one_at=profile.links_measured_at if profile else None,
            one_by_one_nodes=profile.links_num_nodes if profile and profile.links_measured_at else 0,
            norm=LinkNorm.of(profile.measurements.links) if profile else None,
            health=found.link_health,
        )


# Networks by name, and what files say of a network or of nodes.

_MOST_FILES = 4

_NODES_SHOWN = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyRequest:
    """Files that describe a network or a node, as text."""

    files: Annotated[
        tuple[Annotated[str, Field(max_length=MAX_CHARACTERS)], ...], Field(min_length=1, max_length=_MOST_FILES)
    ]
    """What `nvidia-smi topo -m` prints, a NCCL_TOPO_FILE, Slurm's topology.conf or topology.yaml, or JSON; each of
    another part."""
    cluster: Named[Cluster] | None = None
    """What they describe; its name, or all of it; null: they are read alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyReading:
    """What was read, and what it means."""

    read: tuple[str, ...]
    """The kinds of the files, in words."""
    network: Network | None
    """What joins nodes; null where no file says it."""
    wiring: Wiring | None
    """What joins the accelerators of a node; null where no file says it."""
    num_accelerators: int | None
    """Of a node; null where no file says it."""
    num_nodes: int
    """Nodes that the files name; 0 where they name none."""
    nodes: tuple[str, ...]
    """The first of these, in the order in which those below one switch follow each other."""
    said: tuple[str, ...]
    """All of it in sentences without full stops; of a given cluster, what its groups have of the links, too."""
    notes: tuple[str, ...]
    """What was assumed, evened out or left out."""
    cluster: Cluster | None
    """The given cluster with all of it; null where none was given."""

    @classmethod
    def of(cls, app: App, request: TopologyRequest) -> Self:
        """What files say together, of a cluster where one was given.

        A long file takes seconds, so each is read in a process of its own.

        Raises:
            InvalidInput: A file is none that is known, or not whole, with the line; two of them say the same part, or
                the cluster has other nodes.
        """
        files = [app.asides.ask(read_topology, file) for file in request.files]
        given = app.resolve(request).cluster
        cluster = None if given is None else resolved(given)
        topology = merged(files)
        changed = None if cluster is None else on_cluster(topology, cluster)
        return extended(
            cls,
            topology,
            read=tuple(each.kind.value for each in files),
            num_nodes=len(topology.nodes),
            nodes=topology.nodes[:_NODES_SHOWN],
            said=topology_said(topology, changed),
            cluster=changed,
        )
