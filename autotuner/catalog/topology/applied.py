"""A cluster as files describe its network and its nodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from autotuner.catalog.load import load_link
from autotuner.catalog.topology.topology import Topology
from autotuner.core.cluster import Cluster
from autotuner.core.errors import InvalidInput
from autotuner.core.link import Link
from autotuner.core.network import Network, Wiring

__all__ = ["merged", "on_cluster"]

_FIRST_OF_PCIE_5 = 60e9
"""Bytes per second that 16 lanes of PCIe 5 pass and those of PCIe 4 do not."""


def merged(topologies: Iterable[Topology]) -> Topology:
    """What several files say together, each of another part.

    Raises:
        InvalidInput: Two of them say the same part.
    """
    found, *more = topologies
    for each in more:
        for part in ("network", "wiring"):
            if getattr(found, part) is not None and getattr(each, part) is not None:
                rule = f"{found.kind.in_words} says it already: only one file may"
                raise InvalidInput(part, each.kind.in_words, rule)
        speaks = found if each.wiring is None else each
        found = replace(
            found,
            network=found.network or each.network,
            wiring=speaks.wiring,
            num_accelerators=speaks.num_accelerators,
            mesh_peers=speaks.mesh_peers,
            nodes=found.nodes or each.nodes,
            nvlink_domain=found.nvlink_domain or each.nvlink_domain,
            notes=(*found.notes, *each.notes),
        )
    return found


def on_cluster(topology: Topology, cluster: Cluster) -> Cluster:
    """The cluster with the network and the wiring that were read, and with links as these say them.

    Raises:
        InvalidInput: What was read is of nodes with more or fewer accelerators, or of fewer nodes.
    """
    changed = cluster
    if topology.network is not None:
        network = _thinned(topology.network, cluster.oversubscription)
        changed = replace(_with_domain(topology, changed), network=network, oversubscription=1.0)
        if topology.nodes and len(topology.nodes) < cluster.num_nodes:
            rule = f"must be at most the {len(topology.nodes)} nodes that the file names"
            raise InvalidInput("num_nodes", cluster.num_nodes, rule, len(topology.nodes))
    if topology.wiring is None:
        return changed
    if topology.num_accelerators not in (None, cluster.accelerators_per_node):
        rule = f"the file describes nodes of {topology.num_accelerators} accelerators"
        raise InvalidInput("accelerators_per_node", cluster.accelerators_per_node, rule, topology.num_accelerators)
    return _with_ports(replace(_with_wiring(topology, changed), wiring=topology.wiring), topology.wiring)


def _thinned(network: Network, oversubscription: float) -> Network:
    """The network whose lowest switches pass up as little as the cluster says, where no tier says how much."""
    if oversubscription == 1.0 or not network.tiers:
        return network
    if any(tier.oversubscription > 1.0 for tier in network.tiers):
        raise InvalidInput("oversubscription", oversubscription, "must be left out: the network's tiers say it", 1.0)
    lowest, *above = network.tiers
    return replace(network, tiers=(replace(lowest, oversubscription=oversubscription), *above))


def _with_domain(topology: Topology, cluster: Cluster) -> Cluster:
    """The cluster whose NVLink domains are as large as the preset or the blocks say, if it has domains of nodes."""
    if topology.nvlink_domain is not None:
        return replace(cluster, nvlink_domain=max(topology.nvlink_domain, cluster.accelerators_per_node))
    tiers = topology.network.tiers if topology.network else ()
    if cluster.nvlink_domain is None or not tiers or tiers[0].name != "block":
        return cluster
    return replace(cluster, nvlink_domain=tiers[0].nodes_per_switch * cluster.accelerators_per_node)


def _with_wiring(topology: Topology, cluster: Cluster) -> Cluster:
    """The cluster whose link within a node is the one that accelerators have: a mesh of NVLinks, or PCIe."""
    link = cluster.intra_node_link
    if topology.mesh_peers:
        return replace(cluster, intra_node_link=replace(link, mesh_peers=topology.mesh_peers))
    if topology.wiring is None or topology.wiring.nvlink_groups:
        return cluster
    return replace(cluster, intra_node_link=_pcie(topology.wiring, cluster))


def _pcie(wiring: Wiring, cluster: Cluster) -> Link:
    """PCIe between accelerators, as fast as the file says, else as between accelerator and host."""
    rate = wiring.pcie_bandwidth_bytes_per_s or cluster.accelerator.host_bandwidth_bytes_per_s
    return load_link("pcie5" if rate >= _FIRST_OF_PCIE_5 else "pcie4").with_bandwidth(rate)


def _with_ports(cluster: Cluster, wiring: Wiring) -> Cluster:
    """The cluster whose accelerators share the ports of their node, each as fast as the file says."""
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
