"""Networks by name, and what files say of a network or of nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import Field

from autotuner.catalog.networks import NetworkPreset
from autotuner.catalog.topology.read import MAX_CHARACTERS, read_topology
from autotuner.catalog.topology.topology import Topology, merged, on_cluster
from autotuner.core.cluster import Cluster
from autotuner.core.network import Network, Wiring
from autotuner.requests import GivenCluster
from autotuner.search.text.topologies import topology_said
from autotuner.service.build import App

_MOST_FILES = 4

_NODES_SHOWN = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkList:
    """Networks that a cluster can name, with the source of each.

    Attributes:
        items: `network` is what it is for any number of nodes; a torus has its lengths by that number.
    """

    items: tuple[NetworkPreset, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyRequest:
    """Files that describe a network or a node, as text.

    Attributes:
        files: What `nvidia-smi topo -m` prints, a NCCL_TOPO_FILE, Slurm's topology.conf or topology.yaml, or JSON; each
            of another part.
        cluster: What they describe; its name, or all of it; null: they are read alone.
    """

    files: Annotated[
        tuple[Annotated[str, Field(max_length=MAX_CHARACTERS)], ...], Field(min_length=1, max_length=_MOST_FILES)
    ]
    cluster: GivenCluster | None = None

    def read(self, app: App) -> tuple[Topology, ...]:
        """Return the reading of each file; a long one takes seconds, so it is read in a process of its own.

        Raises:
            InvalidInput: One is none that is known, or not whole; with the line.
        """
        return tuple(app.asides.ask(read_topology, file) for file in self.files)

    def resolved(self, app: App) -> Cluster | None:
        """The cluster that was given, without what the files say of it."""
        return app.cluster(self.cluster) if isinstance(self.cluster, str) else self.cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyReading:
    """What was read, and what it means.

    Attributes:
        read: The kinds of the files, in words.
        network: What joins nodes; null where no file says it.
        wiring: What joins the accelerators of a node; null where no file says it.
        num_accelerators: Of a node; null where no file says it.
        num_nodes: Nodes that the files name; 0 where they name none.
        nodes: The first of these, in the order in which those below one switch follow each other.
        said: All of it in sentences without full stops; of a given cluster, what its groups have of the links, too.
        notes: What was assumed, evened out or left out.
        cluster: The given cluster with all of it; null where none was given.
    """

    read: tuple[str, ...]
    network: Network | None
    wiring: Wiring | None
    num_accelerators: int | None
    num_nodes: int
    nodes: tuple[str, ...]
    said: tuple[str, ...]
    notes: tuple[str, ...]
    cluster: Cluster | None

    @classmethod
    def of(cls, files: tuple[Topology, ...], cluster: Cluster | None) -> Self:
        """What files say together, of a cluster where one was given.

        Raises:
            InvalidInput: Two of them say the same part, or the cluster has other nodes.
        """
        topology = merged(files)
        changed = None if cluster is None else on_cluster(topology, cluster)
        return cls(
            read=tuple(each.kind.value for each in files),
            network=topology.network,
            wiring=topology.wiring,
            num_accelerators=topology.num_accelerators,
            num_nodes=len(topology.nodes),
            nodes=topology.nodes[:_NODES_SHOWN],
            said=topology_said(topology, changed),
            notes=topology.notes,
            cluster=changed,
        )
