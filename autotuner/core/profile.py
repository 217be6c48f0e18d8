"""DeviceProfile: what was measured of the devices and links of one machine."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal, Self

from autotuner.core.accelerator import Accelerator, CoreTimes, MeasuredAttention, MeasuredGemm
from autotuner.core.choices import AttentionKernel, Precision
from autotuner.core.cluster import Cluster
from autotuner.core.link import (
    CollectiveKind,
    Link,
    LinkHealth,
    LinkNorm,
    LinkPoint,
    MeasuredCollective,
    link_health_of,
    num_ends,
)
from autotuner.core.value import Count, value

PassKind = Literal["plain", "recompute_selective", "recompute_full", "sharded", "tensor", "sequence"]
"""How layers are kept or split: as they are, recomputed, parameters sharded, split over tensor ranks, and that with
sequence parallelism."""

Wanted = Literal["devices", "devices_and_links", "links"]
"""What a profile measures: devices with their collectives, every pair of link ends as well, or these pairs alone."""


@value
class ProfileRequest:
    """What is to be measured, on how many devices at once: of this machine, or of all nodes of an engine's job."""

    device: Literal["cpu", "cuda"]
    num_ranks: Count
    quick: bool = False
    """Small sizes and few repetitions, to try the way and not the device."""
    wanted: Wanted = "devices"

    @property
    def wants_devices(self) -> bool:
        """Whether more is measured than links one by one."""
        return self.wanted != "links"

    @property
    def wants_links(self) -> bool:
        """Whether links are measured one by one."""
        return self.wanted != "devices"


@value
class GemmPoint:
    """A product of an (m, k) and a (k, n) matrix."""

    precision: Precision
    m: int
    n: int
    k: int
    seconds: float

    @property
    def flop_per_s(self) -> float:
        """The rate."""
        return 2 * self.m * self.n * self.k / self.seconds


@value
class AttentionPoint:
    """Causal attention by one kernel, forward and backward."""

    kernel: AttentionKernel
    precision: Precision
    batch: int
    num_heads: int
    head_dim: int
    seq_len: int
    forward_s: float
    backward_s: float

    @property
    def product_flop(self) -> float:
        """Operations of one of its matrix products, over all pairs of tokens."""
        return 2.0 * self.batch * self.num_heads * self.head_dim * self.seq_len**2


@value
class TrafficPoint:
    """Memory read and written by one operation."""

    operation: Literal["copy", "triad"]
    num_bytes: int
    seconds: float

    @property
    def bytes_per_s(self) -> float:
        """The rate."""
        return self.num_bytes / self.seconds


@value
class CollectivePoint:
    """A collective among ranks, while all others of their nodes do the same; ``num_bytes`` are of the whole tensor."""

    kind: CollectiveKind
    num_ranks: int
    num_bytes: int
    seconds: float
    num_nodes: int = 1
    """Nodes that the ranks lie on, with as many of them on each."""

    @property
    def sent_bytes(self) -> float:
        """What the busiest rank sends, in a ring."""
        share = self.num_bytes * (self.num_ranks - 1) / self.num_ranks
        match self.kind:
            case "all_reduce":
                return 2 * share
            case "send":
                return float(self.num_bytes)
            case "all_gather" | "reduce_scatter" | "all_to_all":
                return share

    @property
    def num_steps(self) -> int:
        """Steps of a ring, each of which waits for the one before."""
        match self.kind:
            case "all_reduce":
                return 2 * (self.num_ranks - 1)
            case "send":
                return 1
            case "all_gather" | "reduce_scatter" | "all_to_all":
                return self.num_ranks - 1


@value
class PassPoint:
    """A micro-batch forward through a decoder of equal layers, loss included, and backward, on all ranks at once."""

    kind: PassKind
    num_ranks: int
    """Ranks that a layer is split over; 1 where it is not."""
    num_layers: int
    hidden_size: int
    num_sequences: int
    """Sequences of the micro-batch."""
    seq_len: int
    """Tokens of each."""
    forward_s: float
    backward_s: float

    @property
    def tokens(self) -> int:
        """Tokens of the micro-batch."""
        return self.num_sequences * self.seq_len


@value
class Measurements:
    """All points of one machine, as they were measured on all of its ranks at once."""

    launch_s: float
    """Time of an operation that does nearly nothing."""
    gemm: tuple[GemmPoint, ...]
    attention: tuple[AttentionPoint, ...]
    traffic: tuple[TrafficPoint, ...]
    collectives: tuple[CollectivePoint, ...]
    environment: dict[str, str]
    passes: tuple[PassPoint, ...] = ()
    """On cores alone, whose time goes to the host as much as to the work."""
    links: tuple[LinkPoint, ...] = ()
    """One by one, while nothing else used either end; empty where that was not asked for."""


@value
class DeviceProfile:
    """What was measured, and the constants fitted to it (``profile_fit``)."""

    name: str
    measured_at: float
    """Epoch seconds."""
    device: str
    host: str
    """Its name, hashed."""
    num_ranks: int
    """Devices that were busy at once, on all nodes."""
    measurements: Measurements
    fp32_flop_per_s: float
    """Best product of the device in that precision, as is the next; 0 where none was measured."""
    bf16_flop_per_s: float
    memory_bandwidth_bytes_per_s: float
    launch_s: float
    gemm: tuple[MeasuredGemm, ...]
    attention: tuple[MeasuredAttention, ...]
    link_bandwidth_bytes_per_s: float | None = None
    """Between two ranks of a machine; None, as is the latency, where there is one."""
    link_latency_s: float | None = None
    core: CoreTimes | None = None
    """What a core spends beside the work itself; None of a GPU."""
    collectives: tuple[MeasuredCollective, ...] = ()
    """By kind and number of ranks, of cores; what a GPU's take, its link's constants say."""
    cluster: str = ""
    """Name of the stored cluster of whose nodes an engine gave some; empty: of the one machine ``host``."""
    num_nodes: int = 1
    """Nodes that measured at once."""
    inter_node_bandwidth_bytes_per_s: float | None = None
    """What one accelerator gets of its node's network while all others send too; None, as is the latency, where one
    node was measured."""
    inter_node_latency_s: float | None = None
    inter_node_collectives: tuple[MeasuredCollective, ...] = ()
    """As ``collectives``, among ranks of several nodes."""
    links_measured_at: float | None = None
    """When its links were measured one by one, epoch seconds; None where they were not."""
    links_num_nodes: int = 1
    """Nodes that measured them; of a single one they are those between its accelerators."""

    @property
    def origin(self) -> str:
        """Where and when it was taken: ``2 nodes, 2026-11-22``."""
        nodes = f"{self.num_nodes} node{'' if self.num_nodes == 1 else 's'}"
        return f"{nodes}, {_day(self.measured_at)}"


def describes(profile: DeviceProfile, cluster: Cluster, *, host: str) -> bool:
    """Whether a profile is of these very devices, all of them, and has all that one of its kind has today."""
    is_whole = profile.core is not None or cluster.accelerator.kind != "cpu"
    return not profile.cluster and profile.host == host and profile.num_ranks == cluster.world_size and is_whole


def with_links(
    profile: DeviceProfile, points: tuple[LinkPoint, ...], *, measured_at: float, num_nodes: int = 1
) -> DeviceProfile:
    """The profile with links that so many nodes measured one by one, in the place of those that it had."""
    measurements = replace(profile.measurements, links=points)
    return replace(profile, measurements=measurements, links_measured_at=measured_at, links_num_nodes=num_nodes)


def keeping_links(new: DeviceProfile, known: DeviceProfile) -> DeviceProfile:
    """The new profile, with the links of an older one where that measured those of more nodes, or the new one none."""
    has_own = new.links_measured_at is not None and new.links_num_nodes >= known.links_num_nodes
    if has_own or known.links_measured_at is None:
        return new
    links, num_nodes = known.measurements.links, known.links_num_nodes
    return with_links(new, links, measured_at=known.links_measured_at, num_nodes=num_nodes)


def knows_links(profile: DeviceProfile, cluster: Cluster) -> bool:
    """Whether its links, measured one by one, are those of the cluster, and of all of its ends.

    An engine that gives two nodes of sixteen does not say which, so that two cannot tell of a link of the sixteen.
    """
    is_whole = num_ends(profile.measurements.links) == cluster.num_link_ends
    return is_whole and profile.links_measured_at is not None and profile.links_num_nodes == cluster.num_nodes


def profiled(cluster: Cluster, profile: DeviceProfile) -> Cluster:
    """The cluster with the profile's constants in the place of the catalog's, and what ails its links."""
    measured = replace(
        cluster,
        accelerator=_accelerator(cluster.accelerator, profile),
        intra_node_link=_link(cluster.intra_node_link, profile),
        inter_node_link=_inter_node_link(cluster.inter_node_link, profile),
    )
    return replace(measured, link_health=_link_health(measured, profile))


def measured_link_health(cluster: Cluster, profile: DeviceProfile) -> tuple[LinkHealth, ...]:
    """What ails the links of a cluster by a profile of it; none where the profile does not know all of them."""
    if profile.links_measured_at is None or not knows_links(profile, cluster):
        return ()
    stated = cluster.link_between_ends.bandwidth_bytes_per_s
    source = f"measured {_day(profile.links_measured_at)}"
    return link_health_of(profile.measurements.links, bandwidth_bytes_per_s=stated, source=source)


def _link_health(cluster: Cluster, profile: DeviceProfile) -> tuple[LinkHealth, ...]:
    """What is assumed of links, but for those that were measured: of these, what was."""
    if not knows_links(profile, cluster):
        return cluster.link_health
    known = {point.ends for point in profile.measurements.links}
    assumed = tuple(health for health in cluster.link_health if health.ends is not None and health.ends not in known)
    return assumed + measured_link_health(cluster, profile)


def _day(epoch_s: float) -> str:
    return f"{datetime.fromtimestamp(epoch_s, UTC):%Y-%m-%d}"


def _accelerator(accelerator: Accelerator, profile: DeviceProfile) -> Accelerator:
    """A data sheet's peaks stay, for they are what an MFU is a share of; a core has none but the measured one."""
    measured = replace(
        accelerator,
        memory_bandwidth_bytes_per_s=profile.memory_bandwidth_bytes_per_s,
        kernel_launch_s=profile.launch_s,
        measured_gemm=profile.gemm,
        measured_attention=profile.attention,
        core=profile.core or accelerator.core,
    )
    if accelerator.kind != "cpu":
        return measured
    return replace(
        measured,
        fp32_flop_per_s=profile.fp32_flop_per_s,
        bf16_flop_per_s=profile.bf16_flop_per_s,
        peak_source=f"profile {profile.name}: measured GEMM rate of {profile.num_ranks} busy cores",
        peak_is_measured=True,
    )


def _link(link: Link, profile: DeviceProfile) -> Link:
    if profile.link_bandwidth_bytes_per_s is None or profile.link_latency_s is None:
        return link
    return Link(
        name=f"profile {profile.name}",
        bandwidth_bytes_per_s=profile.link_bandwidth_bytes_per_s,
        latency_s=profile.link_latency_s,
        efficiency=1.0,  # what was measured is what long messages get
        measured=profile.collectives or link.measured,  # an older profile has none
        source=profile.origin,
    )


def _inter_node_link(link: Link, profile: DeviceProfile) -> Link:
    """How a network slows down with the number of nodes stays as it was: two nodes do not tell it."""
    if profile.inter_node_bandwidth_bytes_per_s is None or profile.inter_node_latency_s is None:
        return link
    return Link(
        name=f"profile {profile.name} between nodes",
        bandwidth_bytes_per_s=profile.inter_node_bandwidth_bytes_per_s,
        latency_s=profile.inter_node_latency_s,
        efficiency=1.0,
        congestion=link.congestion,
        measured=profile.inter_node_collectives,
        source=profile.origin,
    )


@value
class LinkStanding:
    """A link of a cluster."""

    between: str
    """Its ends, in words."""
    described: Link
    """As whoever stored the cluster described it, or the catalog."""
    measured: Link | None
    """As a check of the cluster measured it; null without one."""


@value
class ClusterLinks:
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
    def of(cls, cluster: Cluster, profile: DeviceProfile | None) -> Self:
        """Return the links of a cluster as it was described, and as a profile of it says."""
        if profile is None:
            return cls(items=_standings(cluster, cluster), measured_at=None, num_nodes=0, health=cluster.link_health)
        found, points = profiled(cluster, profile), profile.measurements.links
        return cls(
            items=_standings(cluster, found),
            measured_at=profile.measured_at,
            num_nodes=profile.num_nodes,
            one_by_one=points,
            one_by_one_at=profile.links_measured_at,
            one_by_one_nodes=profile.links_num_nodes if profile.links_measured_at else 0,
            norm=LinkNorm.of(points),
            health=found.link_health,
        )


def _standings(described: Cluster, found: Cluster) -> tuple[LinkStanding, ...]:
    pairs = (
        ("ranks of a node", described.intra_node_link, found.intra_node_link),
        ("nodes", described.inter_node_link, found.inter_node_link),
    )
    return tuple(
        LinkStanding(between=between, described=old, measured=new if new.source else None)
        for between, old, new in pairs
    )
