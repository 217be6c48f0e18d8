"""Topology: the network of a cluster or the wiring of its nodes as a file describes them, and the cluster with both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from autotuner.catalog.hardware import load_link
from autotuner.core.cluster import Cluster
from autotuner.core.errors import InvalidInput
from autotuner.core.network import Groups, Network, Port, PortPath, Wiring

_MOST_NVLINKS = 18
"""Maximum number of NVLinks of one accelerator: NVLink 4 and 5, NVIDIA Hopper and Blackwell data sheets."""

_FIRST_OF_PCIE_5 = 60e9
"""Bytes per second that only PCIe 5 reaches: 16 lanes of PCIe 5 are faster, 16 lanes of PCIe 4 are slower."""

_PATHS: tuple[PortPath, ...] = ("pcie_switch", "host_bridge", "numa_node", "sockets")
"""Paths between a port and an accelerator, the nearest first."""


class FileKind(Enum):
    """The kinds of topology files; each value is the name of the kind in a sentence."""

    NVIDIA_SMI = "nvidia-smi topo -m"
    NCCL_XML = "a topology of NCCL (NCCL_TOPO_FILE)"
    SLURM_CONF = "Slurm's topology.conf"
    SLURM_YAML = "Slurm's topology.yaml"
    JSON = "JSON"


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The content of one topology file, or of several files that describe different parts of a cluster."""

    kind: FileKind
    """Kind of file, named after the program that writes it."""
    network: Network | None = None
    """Network between the nodes; None if the file does not describe it."""
    wiring: Wiring | None = None
    """Connections between the accelerators of a node; None if the file does not describe them."""
    num_accelerators: int | None = None
    """Number of accelerators of a node; None if the file does not give it."""
    nodes: tuple[str, ...] = ()
    """Names of the nodes. Nodes below the same switch follow each other. Empty if the file names none."""
    mesh_peers: int = 0
    """Number of other accelerators that NVLink connects each accelerator to without a switch. 0: a switch connects
    them, or the number is not known."""
    nvlink_domain: int | None = None
    """Number of accelerators that one NVLink domain joins across nodes; None if the file does not state it."""
    notes: tuple[str, ...] = ()
    """Assumptions, simplifications and omissions, as sentences without full stops."""


def merged(topologies: Iterable[Topology]) -> Topology:
    """Return the combined content of several topology files, each of which describes another part of the cluster.

    Raises:
        InvalidInput: Two of the files describe the same part (network or wiring).
    """
    found, *more = topologies
    for each in more:
        for part in ("network", "wiring"):
            if getattr(found, part) is not None and getattr(each, part) is not None:
                rule = (
                    f"describes a part that another file already describes ({found.kind.value}): give only one "
                    "file for each part"
                )
                raise InvalidInput(part, each.kind.value, rule)
        of_nodes = found if each.wiring is None else each
        found = replace(
            found,
            network=found.network or each.network,
            wiring=of_nodes.wiring,
            num_accelerators=of_nodes.num_accelerators,
            mesh_peers=of_nodes.mesh_peers,
            nodes=found.nodes or each.nodes,
            nvlink_domain=found.nvlink_domain or each.nvlink_domain,
            notes=(*found.notes, *each.notes),
        )
    return found


# ---------------------------------------------------------------- the cluster
def on_cluster(topology: Topology, cluster: Cluster) -> Cluster:
    """Return the cluster with the network and the wiring of a topology file, and with links that match them.

    Args:
        topology: Content of the file or files.
        cluster: Cluster that the files describe.

    Raises:
        InvalidInput: The file names fewer nodes than the cluster has, its nodes have another number of accelerators, or
            the cluster and the file both state an oversubscription.
    """
    changed = cluster
    if topology.network is not None:
        network = _oversubscribed(topology.network, cluster.oversubscription)
        changed = replace(_with_domain(topology, changed), network=network, oversubscription=1.0)
        if topology.nodes and len(topology.nodes) < cluster.num_nodes:
            rule = f"must be at most {len(topology.nodes)}, the number of nodes that the file names"
            raise InvalidInput("num_nodes", cluster.num_nodes, rule, len(topology.nodes))
    if topology.wiring is None:
        return changed
    if topology.num_accelerators not in (None, cluster.accelerators_per_node):
        rule = f"must be {topology.num_accelerators}, the accelerators of a node in the file"
        raise InvalidInput("accelerators_per_node", cluster.accelerators_per_node, rule, topology.num_accelerators)
    wired = replace(_with_intra_node_link(topology, topology.wiring, changed), wiring=topology.wiring)
    return _with_ports(wired, topology.wiring)


def _oversubscribed(network: Network, oversubscription: float) -> Network:
    """Return the network with the cluster's oversubscription at its lowest switches.

    If the network states an oversubscription too, ``InvalidInput`` is raised.
    """
    if oversubscription == 1.0 or not network.tiers:
        return network
    if any(tier.oversubscription > 1.0 for tier in network.tiers):
        raise InvalidInput(
            "oversubscription",
            oversubscription,
            "must be left out, because the tiers of the network state their oversubscription",
            1.0,
        )
    lowest, *above = network.tiers
    return replace(network, tiers=(replace(lowest, oversubscription=oversubscription), *above))


def _with_domain(topology: Topology, cluster: Cluster) -> Cluster:
    """Return the cluster with the NVLink domains of the preset or of the blocks.

    Without a preset's domain, a cluster whose NVLink domain is one node stays as it is.
    """
    if topology.nvlink_domain is not None:
        return replace(cluster, nvlink_domain=max(topology.nvlink_domain, cluster.accelerators_per_node))
    tiers = topology.network.tiers if topology.network else ()
    if cluster.nvlink_domain is None or not tiers or tiers[0].name != "block":
        return cluster
    return replace(cluster, nvlink_domain=tiers[0].nodes_per_switch * cluster.accelerators_per_node)


def _with_intra_node_link(topology: Topology, wiring: Wiring, cluster: Cluster) -> Cluster:
    """Return the cluster with the link that connects the accelerators of a node: its own, an NVLink mesh, or PCIe.

    PCIe has the bandwidth that the file states; otherwise that between accelerator and host.
    """
    if topology.mesh_peers:
        return replace(cluster, intra_node_link=replace(cluster.intra_node_link, mesh_peers=topology.mesh_peers))
    if wiring.nvlink_groups:
        return cluster
    rate = wiring.pcie_bandwidth_bytes_per_s or cluster.accelerator.host_bandwidth_bytes_per_s
    link = load_link("pcie5" if rate >= _FIRST_OF_PCIE_5 else "pcie4")
    return replace(cluster, intra_node_link=link.with_bandwidth(rate))


def _with_ports(cluster: Cluster, wiring: Wiring) -> Cluster:
    """Return the cluster with the ports of its nodes, each as fast as the file states."""
    if not wiring.ports:
        return cluster
    rates = [port.bandwidth_bytes_per_s for port in wiring.ports if port.bandwidth_bytes_per_s is not None]
    link = cluster.inter_node_link
    if rates and min(rates) != link.bandwidth_bytes_per_s:
        own = link.with_bandwidth(min(rates))
        cluster = replace(cluster, inter_node_link=replace(own, name=f"{8e-9 * min(rates):g} Gbit/s ports"))
    if len(wiring.ports) >= cluster.accelerators_per_node:
        return cluster
    network = cluster.network or Network(name="one switch", source=wiring.source)
    return replace(cluster, network=replace(network, ports_per_node=len(wiring.ports)))


# ---------------------------------------------------------------- shared by readers of nodes
def groups_of(pairs: Iterable[tuple[object, object]], accelerators: Iterable[int], *, least: int = 2) -> Groups:
    """Return the groups of accelerators that pairs connect, directly or through other objects such as switches.

    The groups and their members are in the order of ``accelerators``.

    Args:
        pairs: Pairs of connected objects: accelerators, by their numbers, and any other objects.
        accelerators: The numbers of all accelerators.
        least: Smallest size of a group; smaller groups are left out.
    """
    leaders: dict[object, object] = {}

    def leader(thing: object) -> object:
        while (found := leaders.get(thing, thing)) != thing:
            leaders[thing] = thing = leaders.get(found, found)
        return thing

    for one, other in pairs:
        leaders[leader(one)] = leader(other)
    groups: dict[object, list[int]] = {}
    for each in accelerators:
        groups.setdefault(leader(each), []).append(each)
    return tuple(tuple(group) for group in groups.values() if len(group) >= least)


def sockets_of(pairs: Iterable[tuple[object, object]], accelerators: Iterable[int]) -> Groups:
    """Return the groups of accelerators that share a CPU socket; empty if all of them share one socket.

    Args:
        pairs: Pairs of connected objects: accelerators, by their numbers, and the sockets that they belong to.
        accelerators: The numbers of all accelerators.
    """
    groups = groups_of(pairs, accelerators, least=1)
    return groups if len(groups) > 1 else ()


def nvlink_mesh(num_links: int, num_peers: int) -> tuple[int, tuple[str, ...]]:
    """Return the number of other accelerators that NVLink joins to each one without a switch, and a note about it.

    Without a switch, the links of an accelerator are divided among the others, so that their number is limited.

    Args:
        num_links: Number of NVLinks between two accelerators.
        num_peers: Number of other accelerators that each accelerator is linked to.

    Returns:
        ``num_peers`` and a tuple with one note (a sentence); 0 and an empty tuple if the links form no such mesh.
    """
    if num_peers < 2 or num_links * num_peers > _MOST_NVLINKS:
        return 0, ()
    note = (
        f"{num_links} of {num_links * num_peers} NVLinks of an accelerator lead to each other "
        "accelerator: no switch joins the accelerators"
    )
    return num_peers, (note,)


def nearest_ports(
    paths: Mapping[str, Mapping[int, PortPath]], bandwidths_bytes_per_s: Mapping[str, float | None] | None = None
) -> tuple[Port, ...]:
    """Return the network ports that are a nearest port of at least one accelerator; an accelerator may have several.

    The job's network does not use other ports, such as ports to storage. The result is in the order of the accelerators
    that the ports are near to.

    Args:
        paths: For the name of each port, the path from the port to each accelerator.
        bandwidths_bytes_per_s: For the name of each port, its bandwidth in bytes per second; None: no port states one.
    """
    accelerators = next(iter(paths.values()), {})
    nearest = {each: min(_PATHS.index(path[each]) for path in paths.values()) for each in accelerators}
    rates = bandwidths_bytes_per_s or {}
    ports = []
    for name, path in paths.items():
        near = tuple(each for each in accelerators if _PATHS.index(path[each]) == nearest[each])
        if near:
            ports.append(Port(name=name, nearest=near, path=path[near[0]], bandwidth_bytes_per_s=rates.get(name)))
    return tuple(sorted(ports, key=lambda port: (port.nearest[0], _PATHS.index(port.path))))
