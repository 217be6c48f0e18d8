"""TopologyReading: the network or node that several files describe together, and a cluster with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import Field

from autotuner.catalog.topology.read import MAX_CHARACTERS
from autotuner.catalog.topology.topology import Topology, merged, on_cluster
from autotuner.core.cluster import Cluster
from autotuner.core.documents import Named
from autotuner.core.network import Network, Wiring
from autotuner.core.value import value

_MOST_FILES = 4

_NODES_SHOWN = 64


@value
class TopologyRequest:
    """A request to read files that describe the network of a cluster or the wiring of its nodes."""

    files: Annotated[
        tuple[Annotated[str, Field(max_length=MAX_CHARACTERS)], ...], Field(min_length=1, max_length=_MOST_FILES)
    ]
    """Texts of files, each of which describes another part: the output of `nvidia-smi topo -m`, a NCCL_TOPO_FILE,
    Slurm's topology.conf or topology.yaml, or JSON."""
    cluster: Named[Cluster] | None = None
    """Cluster that the files describe, as a name or an object; null: the files are only read."""


@value
class TopologyReading:
    """The network and the wiring that topology files describe, and the given cluster with both."""

    read: tuple[str, ...]
    """Kinds of the files that were read, in words."""
    network: Network | None
    """Network between the nodes; null if no file describes it."""
    wiring: Wiring | None
    """Wiring of the accelerators of a node; null if no file describes it."""
    num_accelerators: int | None
    """Number of accelerators of a node; null if no file states it."""
    num_nodes: int
    """Number of nodes that the files name; 0 if they name none."""
    nodes: tuple[str, ...]
    """Names of the first nodes. Nodes below the same switch follow each other."""
    notes: tuple[str, ...]
    """Notes about values that were assumed, averaged or left out."""
    cluster: Cluster | None
    """Given cluster with the network and the wiring of the files; null if no cluster was given."""

    @classmethod
    def of(cls, files: Sequence[Topology], cluster: Cluster | None) -> Self:
        """Return the combined content of several topology files, and the given cluster with this content.

        Args:
            files: Contents of the files.
            cluster: Cluster that the files describe; None: the files are only read.

        Raises:
            InvalidInput: Two files describe the same part (network or wiring), or the cluster's nodes do not match the
                files.
        """
        found = merged(files)
        return cls(
            read=tuple(each.kind.value for each in files),
            network=found.network,
            wiring=found.wiring,
            num_accelerators=found.num_accelerators,
            num_nodes=len(found.nodes),
            nodes=found.nodes[:_NODES_SHOWN],
            notes=found.notes,
            cluster=None if cluster is None else on_cluster(found, cluster),
        )
