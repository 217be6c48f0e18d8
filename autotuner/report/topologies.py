"""Networks and wirings in sentences: what is connected to what, and which part of it a group of accelerators uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, groupby
from operator import mul

from autotuner.core.cluster import Cluster
from autotuner.core.network import Groups, Network, Wiring
from autotuner.core.units import format_rate, format_seconds
from autotuner.report.words import ranges

_MOST_PORTS = 4
"""Maximum number of ports that are named with the accelerators near them."""

_IN_WORDS = {
    "pcie_switch": "PCIe switches alone",
    "host_bridge": "a PCIe host bridge",
    "numa_node": "several PCIe host bridges",
    "sockets": "the link between sockets",
}


def described_said(cluster: Cluster) -> tuple[str, ...]:
    """Describe a cluster's network and nodes, and the bandwidth of its ranks, in statements without full stops."""
    return (*network_said(cluster.network), *wiring_said(cluster.wiring), *cluster_said(cluster))


def network_said(network: Network | None) -> Iterator[str]:
    """Describe the network that joins the nodes, in statements without full stops; empty if there is no description."""
    if network is None:
        return
    if network.torus:
        lengths = " x ".join(map(str, network.torus))
        yield f"a torus of {lengths} nodes, each joined to {_neighbours(network.torus)} others"
    elif not network.tiers:
        yield "one switch joins all nodes"
    for place, tier in enumerate(network.tiers):
        share = "all" if tier.oversubscription == 1 else f"1/{tier.oversubscription:g}"
        late = f", with {format_seconds(tier.latency_s)} more latency than the tier below" if tier.latency_s else ""
        above = (
            f", which passes {share} of their data to the next tier"
            if place < len(network.tiers) - 1 or tier.oversubscription > 1
            else ""
        )
        yield f"{tier.name}: {tier.nodes_per_switch:,} nodes below a switch{above}{late}"
    if network.num_rails > 1:
        yield f"{network.num_rails} rails: a lowest switch joins one port of each of its nodes, all ports of one rail"
    if network.ports_per_node is not None:
        yield f"the accelerators of a node share {network.ports_per_node} ports"
    if network.adds:
        yield "its switches add data that passes through them (SHARP)"
    if not network.adapts_routes and network.tiers:
        yield "each flow keeps its path (no adaptive routing), so some flows share a link by chance"


def wiring_said(wiring: Wiring | None) -> Iterator[str]:
    """Describe the links between the accelerators of a node, in statements without full stops.

    There are no statements if ``wiring`` is None.
    """
    if wiring is None:
        return
    if wiring.nvlink_groups:
        yield f"NVLink joins accelerators {_groups(wiring.nvlink_groups)}"
    else:
        yield "no NVLink: accelerators reach each other over PCIe"
    if wiring.switches:
        yield f"below one PCIe switch lie {_groups(wiring.switches)}"
    if wiring.sockets:
        yield f"sockets or NUMA nodes have {_groups(wiring.sockets)}"
    for port in wiring.ports[:_MOST_PORTS]:
        rate = f", {format_rate(port.bandwidth_bytes_per_s, 'B/s')}" if port.bandwidth_bytes_per_s else ""
        yield f"port {port.name} is nearest to {numbers(port.nearest)} over {_IN_WORDS[port.path]}{rate}"
    if len(wiring.ports) > _MOST_PORTS:
        yield f"{len(wiring.ports)} ports in all"


def cluster_said(cluster: Cluster) -> Iterator[str]:
    """Describe the bandwidth that groups of neighbouring ranks have within and between nodes, without full stops."""
    yield from _inside(cluster)
    yield from _between(cluster)


def _inside(cluster: Cluster) -> Iterator[str]:
    size = cluster.accelerators_per_node
    halves = [2**power for power in range(1, size.bit_length()) if 2**power <= size]
    for (name, rate, source), sizes in groupby(halves, key=lambda ranks: _link(cluster, ranks)):
        same = list(sizes)
        which = f"{same[0]}" if len(same) == 1 else f"{same[0]} to {same[-1]}"
        shared = " shared by all transfers at the same time" if source and name.endswith("between sockets") else ""
        yield f"groups of {which} neighbours in a node are limited by {name}, {rate}{shared}"


def _link(cluster: Cluster, ranks: int) -> tuple[str, str, str]:
    link = cluster.link_for(ranks, 1)
    return link.name, format_rate(link.bandwidth_bytes_per_s, "B/s"), link.source


def _between(cluster: Cluster) -> Iterator[str]:
    network, port = cluster.network, cluster.inter_node_link.bandwidth_bytes_per_s
    if network is None or cluster.num_nodes == 1:
        return
    if network.ports_per_node:
        port *= min(1.0, network.ports_per_node / cluster.accelerators_per_node)
    yield f"a rank sends {format_rate(port, 'B/s')} to another node while all ranks send"
    thinned = accumulate((tier.oversubscription for tier in network.tiers), mul)
    for tier, thinner in zip(network.tiers, thinned, strict=True):
        if tier.nodes_per_switch < cluster.num_nodes and thinner > 1:
            rate = format_rate(port / thinner, "B/s")
            yield f"{rate} of that leave the {tier.nodes_per_switch:,} nodes below a switch of the tier {tier.name}"


def _neighbours(lengths: Sequence[int]) -> int:
    """Return the number of neighbours of a node in a torus.

    In a dimension of two nodes, both directions reach the same one.
    """
    return sum(2 if length > 2 else 1 for length in lengths)


def _groups(groups: Groups) -> str:
    return "; ".join(map(numbers, groups))


def numbers(accelerators: Iterable[int]) -> str:
    """Return numbers in rising order, with consecutive ones as a range: ``0-3, 6``."""
    return ranges(sorted(accelerators)).replace("–", "-") or "none in particular"
