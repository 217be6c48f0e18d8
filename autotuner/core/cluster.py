"""Cluster: nodes, their devices and links, and the price of their time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace
from typing import Any, Literal, Self

from autotuner.core.accelerator import Accelerator
from autotuner.core.errors import InvalidInput
from autotuner.core.link import Link, LinkClass, LinkHealth, latest
from autotuner.core.network import Network, PathKind, Wiring
from autotuner.core.value import Count, FromOne, NonNegative, value


@value
class Tariff:
    """The prices of accelerator-hours and energy of a cluster, the CO2 of each kWh, and the power of its other parts.

    Other parts than accelerators are hosts, network and the building with its cooling.
    """

    spot_price_per_accelerator_hour: NonNegative = 0.0
    """Price in US dollars of an accelerator-hour that the provider may interrupt; 0 if there is none."""
    is_spot: bool = False
    """True if the job runs on spot hours; otherwise it runs on reserved ones, at the cluster's price."""
    interrupted_share: float = 0.05
    """Share of spot hours that is lost to interruptions and to the work repeated after them."""
    energy_price_per_kwh: NonNegative = 0.0
    """Price in US dollars of energy that the owner of the machines pays in addition to the hours; 0 if the price of an
    hour includes it."""
    co2_kg_per_kwh: NonNegative = 0.0
    """Emissions of the energy mix, in kg of CO2 equivalents per kWh; 0 if they are not known."""
    host_power_w: NonNegative = 0.0
    """Power that the host, memory and fans of a node draw during training, divided by the node's accelerators."""
    network_j_per_byte: NonNegative = 0.0
    """Energy that network ports and switches use for each byte that leaves a node."""
    power_usage_effectiveness: FromOne = 1.0
    """Energy of the building divided by the energy of its machines."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.interrupted_share < 1.0:
            nearest = 0.99 if self.interrupted_share >= 1 else 0.0
            raise InvalidInput("interrupted_share", self.interrupted_share, "must be 0 or more and below 1", nearest)


LOCAL = "local"
"""Name of the engine that needs no registration: trials run on the machine that runs the sweep."""


SIMULATED = "simulated"
"""Name of the engine that needs no registration and runs nothing: the cost model computes the figures of trials."""


@value
class Cluster:
    """Nodes with equal accelerators, all alike, together with their links and prices.

    Raises:
        InvalidInput: Sizes, links, network and wiring contradict each other.

    Example:
        >>> from autotuner.catalog.hardware import load_cluster
        >>> cluster = load_cluster("h100:64")
        >>> cluster.num_nodes, cluster.accelerators_per_node, cluster.world_size
        (8, 8, 64)
    """

    name: str
    """Name of the cluster in answers."""
    accelerator: Accelerator
    """Accelerator that every rank runs on."""
    num_nodes: Count
    """Number of nodes of the job."""
    accelerators_per_node: Count
    """Number of accelerators of each node. Each of them gets a rank."""
    intra_node_link: Link
    """Link between the accelerators of a node, or of an NVLink domain of several nodes."""
    inter_node_link: Link
    """Link between nodes: the share of its node's network bandwidth that one accelerator gets, before
    oversubscription."""
    oversubscription: FromOne = 1.0
    """Bandwidth at the edge of the network divided by the bandwidth of its core; 1.0 is non-blocking."""
    price_per_accelerator_hour: NonNegative = 0.0
    """Price of an accelerator-hour in US dollars; 0 if it is not known."""
    nvlink_domain: int | None = None
    """Number of accelerators in one NVLink domain (72 in a rack of GB200): whole nodes, or a part of one node. None:
    the accelerators of one node."""
    engine: str = LOCAL
    """Name of the engine that runs trials on this cluster, as the service's operator registered it; ``local``: this
    machine."""
    queue: str = ""
    """Queue of the engine. It must be one that the operator allows; empty: the first of them."""
    link_health: tuple[LinkHealth, ...] = ()
    """Links that are in another state now than described above. If a link occurs several times, the last entry
    counts."""
    network: Network | None = None
    """Topology of the network between nodes, which then determines the oversubscription; None: one switch."""
    tariff: Tariff = field(default_factory=Tariff)
    """Prices and emissions of hours and energy."""
    wiring: Wiring | None = None
    """Wiring inside a node whose link does not join all accelerators; None: the link joins all of them."""

    def __post_init__(self) -> None:
        for health in self.link_health:
            _require_link(health, self.num_link_ends)
        if self.nvlink_domain is not None and self.nvlink_domain < self.accelerators_per_node:
            rule = (
                f"must be at least {self.accelerators_per_node}, because an NVLink domain contains all "
                "accelerators of a node"
            )
            raise InvalidInput("nvlink_domain", self.nvlink_domain, rule, self.accelerators_per_node)
        if self.tariff.is_spot and not self.tariff.spot_price_per_accelerator_hour:
            rule = "needs a tariff.spot_price_per_accelerator_hour above 0, the price of spot capacity"
            raise InvalidInput("tariff.is_spot", True, rule, False)
        if self.network is not None:
            self.network.require_nodes(self.num_nodes)
            if self.oversubscription != 1.0:
                rule = "must be left out, because the tiers of the network state their oversubscription"
                raise InvalidInput("oversubscription", self.oversubscription, rule, 1.0)
        if self.wiring is not None:
            self.wiring.require_accelerators(self.accelerators_per_node)

    @property
    def source(self) -> Literal["measured", "simulated"]:
        """The word that tells where results of trials on this cluster come from: ``measured``, or ``simulated``.

        Results are simulated if the engine of the cluster is ``simulated``, which runs nothing.
        """
        return "simulated" if self.engine == SIMULATED else "measured"

    @property
    def world_size(self) -> int:
        """The number of accelerators of all nodes. Each of them gets a rank."""
        return self.num_nodes * self.accelerators_per_node

    @property
    def num_link_ends(self) -> int:
        """The number of ends that links can have, that is, of nodes or, in a cluster of one node, of accelerators."""
        return self.num_nodes if self.num_nodes > 1 else self.accelerators_per_node

    @property
    def ranks_per_link_end(self) -> int:
        """The number of ranks at each end of a link: all ranks of a node or, in a cluster of one node, 1."""
        return self.accelerators_per_node if self.num_nodes > 1 else 1

    @property
    def link_class(self) -> LinkClass:
        """The class of the cluster's links: ``inter_node`` or, in a cluster of one node, ``intra_node``."""
        return "inter_node" if self.num_nodes > 1 else "intra_node"

    @property
    def link_between_ends(self) -> Link:
        """The nominal (not degraded) link between two nodes or, in a cluster of one node, two accelerators."""
        return self.inter_node_link if self.num_nodes > 1 else self.intra_node_link

    def link_end(self, rank: int) -> int:
        """Return the link end where a rank runs: its node or, in a cluster of one node, its accelerator."""
        return rank // self.ranks_per_link_end

    def health_between(self, one: int, other: int) -> LinkHealth | None:
        """Return the known state of the link between two ends; None if the link is not degraded or the ends are equal.

        The ends are numbers of nodes or, in a cluster of one node, of accelerators. A state of the single link comes
        before a state of all links of its class.
        """
        if one == other:
            return None
        ends = (min(one, other), max(one, other))
        known = {health.ends or health.link_class: health for health in latest(self.link_health)}
        return known.get(ends) or known.get(self.link_class)

    def with_link_health(self, links: Iterable[LinkHealth]) -> Self:
        """Return the cluster with these link states added. A new state replaces the earlier state of the same link."""
        return replace(self, link_health=(*self.link_health, *links))

    def resized(self, *, num_nodes: int | None = None, accelerators_per_node: int | None = None) -> Self:
        """Return the cluster with another size. Known states (faults) of links stay if the links still exist.

        The ends of links are nodes or, in a cluster of one node, accelerators. If the change turns one kind of end into
        the other, the states of single links are dropped, and only the states of whole link classes (``intra_node``,
        ``inter_node``) stay.

        Args:
            num_nodes: New number of nodes; None: as before.
            accelerators_per_node: New number of accelerators of each node; None: as before.
        """
        size = num_nodes or self.num_nodes, accelerators_per_node or self.accelerators_per_node
        bare = replace(
            self,
            num_nodes=size[0],
            accelerators_per_node=size[1],
            link_health=(),
            network=None if self.network is None else self.network.resized(size[0]),
            wiring=None if self.wiring is None else self.wiring.of_first(size[1]),
        )
        stays = (bare.num_nodes > 1) == (self.num_nodes > 1)
        kept = [
            health
            for health in self.link_health
            if health.ends is None or (stays and health.ends[1] < bare.num_link_ends)
        ]
        return replace(bare, link_health=tuple(kept))

    @property
    def accelerators_per_domain(self) -> int:
        """The number of neighbouring ranks that NVLink joins: the ranks of one node, or of several nodes in one domain.

        A job that is larger than one NVLink domain takes equally many nodes from each of several domains: the largest
        number that fits into a domain and divides the number of nodes of the job. A job of 32 nodes with 4 accelerators
        each takes 16 of the 18 nodes of each domain. NVIDIA's launchers ask Slurm for such segments (``segment`` in
        scripts/performance/executors.py of NeMo 2.4 and in Megatron-Bridge). If the number is smaller than half of a
        domain, the job fills whole domains one after the other.
        """
        per_node, nodes = self.accelerators_per_node, self.num_nodes
        joined = min(nodes, (self.nvlink_domain or per_node) // per_node)
        segment = next(n for n in range(joined, 0, -1) if nodes % n == 0)
        return per_node * (segment if 2 * segment >= joined else joined)

    def link_for(self, group_size: int, stride: int) -> Link:
        """Return the slowest link inside a group of ranks whose numbers are ``stride`` apart.

        Args:
            group_size: Number of ranks of the group.
            stride: Difference between the numbers of neighbouring ranks of the group.

        Example:
            >>> from autotuner.catalog.hardware import load_cluster
            >>> cluster = load_cluster("h100:64")
            >>> cluster.link_for(8, stride=1).name, cluster.link_for(8, stride=8).name
            ('nvlink4', 'ndr400')
        """
        if self.crosses_nodes(group_size, stride):
            return self.inter_node_link
        if self.wiring is None or group_size * stride > self.accelerators_per_node:
            return self.intra_node_link
        return self.wired_link(self.wiring.limiting_path(range(0, group_size * stride, stride)))

    def wired_link(self, path: PathKind) -> Link:
        """Return the link between two accelerators of one node that are joined by this kind of connection.

        Args:
            path: Kind of the connection, such as NVLink or PCIe.
        """
        wiring, link = self.wiring, self.intra_node_link
        if wiring is None or path is PathKind.NVLINK or (not wiring.nvlink_groups and path is not PathKind.SOCKETS):
            return link
        pcie = wiring.pcie_bandwidth_bytes_per_s or self.accelerator.host_bandwidth_bytes_per_s
        rate = wiring.socket_bandwidth_bytes_per_s if path is PathKind.SOCKETS else pcie
        return Link(name=path.in_words, bandwidth_bytes_per_s=rate, latency_s=link.latency_s, source=wiring.source)

    def crosses_nodes(self, group_size: Any, stride: Any) -> Any:
        """Return True if NVLink does not join all ranks of a group; for columns of groups, a column of booleans.

        Such a group lies on more than one node or NVLink domain. If the size of a domain is not a multiple of the size
        of the groups, at least one group of the job lies on two domains.

        Args:
            group_size: Number of ranks of the group, or a column of numbers.
            stride: Difference between the numbers of neighbouring ranks of the group, or a column of differences.
        """
        span, domain = group_size * stride, self.accelerators_per_domain
        return (span > domain) | ((group_size > 1) & (domain % span != 0) & (self.world_size > domain))


def _require_link(health: LinkHealth, num_ends: int) -> None:
    if health.ends is not None and health.ends[1] >= num_ends:
        rule = (
            f"must be the numbers of two nodes, or on one node of two accelerators; the cluster has {num_ends} of "
            "them, numbered from 0"
        )
        raise InvalidInput("link_health.ends", list(health.ends), rule, str([max(0, num_ends - 2), num_ends - 1]))
