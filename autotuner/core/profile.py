"""DeviceProfile: measurements of the devices and links of one machine or cluster."""

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
"""Kinds of layers in a profile: plain, with selective or full recomputation, with sharded parameters, split over tensor
ranks, and split with sequence parallelism."""

Wanted = Literal["devices", "devices_and_links", "links"]
"""Scope of a profile: devices with their collectives; the same with every pair of link ends; or these pairs alone."""


@value
class ProfileRequest:
    """A request to measure the devices and links of this machine, or of all nodes of a job, for example on Slurm."""

    device: Literal["cpu", "cuda"]
    num_ranks: Count
    quick: bool = False
    """Use small sizes and few repetitions. The result tests the procedure and does not describe the device."""
    wanted: Wanted = "devices"

    @property
    def wants_devices(self) -> bool:
        """True if devices or collectives are to be measured, and not only single links."""
        return self.wanted != "links"

    @property
    def wants_links(self) -> bool:
        """True if each link is to be measured separately."""
        return self.wanted != "devices"


@value
class GemmPoint:
    """A timed product of an (m, k) matrix and a (k, n) matrix."""

    precision: Precision
    m: int
    n: int
    k: int
    seconds: float

    @property
    def flop_per_s(self) -> float:
        """The rate of the product in FLOP per second."""
        return 2 * self.m * self.n * self.k / self.seconds


@value
class AttentionPoint:
    """A timed forward and backward pass of causal attention with one kernel."""

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
        """The FLOP of one of the matrix products in attention, over all pairs of tokens, including masked pairs."""
        return 2.0 * self.batch * self.num_heads * self.head_dim * self.seq_len**2


@value
class TrafficPoint:
    """A timed operation that reads and writes memory."""

    operation: Literal["copy", "triad"]
    num_bytes: int
    seconds: float

    @property
    def bytes_per_s(self) -> float:
        """The rate of the operation in bytes per second."""
        return self.num_bytes / self.seconds


@value
class CollectivePoint:
    """A timed collective. All other ranks run the same collective; ``num_bytes`` is the size of the whole tensor."""

    kind: CollectiveKind
    num_ranks: int
    num_bytes: int
    seconds: float
    num_nodes: int = 1
    """Number of nodes of the ranks. Each node has the same number of ranks."""

    @property
    def sent_bytes(self) -> float:
        """The bytes that the busiest rank sends if the collective runs in a ring."""
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
        """The number of steps if the collective runs in a ring; each step waits for the step before."""
        match self.kind:
            case "all_reduce":
                return 2 * (self.num_ranks - 1)
            case "send":
                return 1
            case "all_gather" | "reduce_scatter" | "all_to_all":
                return self.num_ranks - 1


@value
class PassPoint:
    """A timed forward and backward pass of one micro-batch through a decoder and its loss, on all ranks at once."""

    kind: PassKind
    num_ranks: int
    """Number of ranks that the layer is split over; 1 if it is not split."""
    num_layers: int
    hidden_size: int
    num_sequences: int
    """Number of sequences of the micro-batch."""
    seq_len: int
    """Tokens of each sequence."""
    forward_s: float
    backward_s: float

    @property
    def tokens(self) -> int:
        """The number of tokens of the micro-batch."""
        return self.num_sequences * self.seq_len


@value
class Measurements:
    """All measured points of one machine, taken on all of its ranks at once."""

    launch_s: float
    """Time of an operation on a tiny tensor, which is the time to launch it."""
    gemm: tuple[GemmPoint, ...]
    attention: tuple[AttentionPoint, ...]
    traffic: tuple[TrafficPoint, ...]
    collectives: tuple[CollectivePoint, ...]
    environment: dict[str, str]
    passes: tuple[PassPoint, ...] = ()
    """Times of passes through decoder layers. Only CPU cores have them, because they spend as much time on the host's
    work as on computation."""
    links: tuple[LinkPoint, ...] = ()
    """Links that were measured one at a time, while neither end communicated with others; empty if this was not
    requested."""


@value
class DeviceProfile:
    """The measurements of a machine or a cluster, and the constants that ``costmodel.profile_fit`` fitted to them."""

    name: str
    measured_at: float
    """Time of the measurement, in epoch seconds."""
    device: str
    host: str
    """Hashed name of the host."""
    num_ranks: int
    """Number of devices that were busy at once, on all nodes."""
    measurements: Measurements
    fp32_flop_per_s: float
    """Best rate of matrix products in fp32; 0 if none was measured."""
    bf16_flop_per_s: float
    memory_bandwidth_bytes_per_s: float
    launch_s: float
    gemm: tuple[MeasuredGemm, ...]
    attention: tuple[MeasuredAttention, ...]
    link_bandwidth_bytes_per_s: float | None = None
    """Bandwidth between two ranks of a machine; None, as the latency is, if there is only one rank."""
    link_latency_s: float | None = None
    core: CoreTimes | None = None
    """Extra times of a CPU core; None for a GPU."""
    collectives: tuple[MeasuredCollective, ...] = ()
    """Measured collectives by kind and number of ranks, for CPU cores only. Collectives of GPUs are computed from the
    constants of the links."""
    cluster: str = ""
    """Name of the stored cluster whose nodes were measured; empty: the one machine ``host``."""
    num_nodes: int = 1
    """Number of nodes that took part in the measurement at the same time."""
    inter_node_bandwidth_bytes_per_s: float | None = None
    """Share of its node's network bandwidth that one accelerator gets while all others send too; None, as the latency
    is, if only one node was measured."""
    inter_node_latency_s: float | None = None
    inter_node_collectives: tuple[MeasuredCollective, ...] = ()
    """Measured collectives among ranks of several nodes, in the form of ``collectives``."""
    links_measured_at: float | None = None
    """Time when the links were measured one at a time, in epoch seconds; None if they were not."""
    links_num_nodes: int = 1
    """Number of nodes whose links were measured. With a single node, the links are those between its accelerators."""

    @property
    def origin(self) -> str:
        """The number of nodes and the date of the measurement: ``2 nodes, 2026-11-22``."""
        nodes = f"{self.num_nodes} node{'' if self.num_nodes == 1 else 's'}"
        return f"{nodes}, {_day(self.measured_at)}"


def describes(profile: DeviceProfile, cluster: Cluster, *, host: str) -> bool:
    """Return True if a profile is complete, and was measured on this host and on all devices of the cluster.

    A profile of CPU cores from an earlier release may be incomplete. The result is False for a profile of a stored
    cluster.

    Args:
        profile: The profile.
        cluster: The cluster of this machine.
        host: Name of this machine.
    """
    is_whole = profile.core is not None or cluster.accelerator.kind != "cpu"
    return not profile.cluster and profile.host == host and profile.num_ranks == cluster.world_size and is_whole


def with_links(
    profile: DeviceProfile, points: tuple[LinkPoint, ...], *, measured_at: float, num_nodes: int = 1
) -> DeviceProfile:
    """Return the profile with measurements of single links, which replace earlier measurements of single links.

    Args:
        profile: The profile.
        points: Measurements of the links.
        measured_at: Time of the measurement in epoch seconds.
        num_nodes: Number of nodes that measured.
    """
    measurements = replace(profile.measurements, links=points)
    return replace(profile, measurements=measurements, links_measured_at=measured_at, links_num_nodes=num_nodes)


def keeping_links(new: DeviceProfile, known: DeviceProfile) -> DeviceProfile:
    """Return the new profile, with the single links of an older profile if the older links are better.

    The older links are better if the new profile measured no single links, or if the older profile measured more nodes.

    Args:
        new: The new profile.
        known: The older profile.
    """
    has_own = new.links_measured_at is not None and new.links_num_nodes >= known.links_num_nodes
    if has_own or known.links_measured_at is None:
        return new
    links, num_nodes = known.measurements.links, known.links_num_nodes
    return with_links(new, links, measured_at=known.links_measured_at, num_nodes=num_nodes)


def knows_links(profile: DeviceProfile, cluster: Cluster) -> bool:
    """Return True if a profile measured the links of all nodes of the cluster, so that the state of each link is known.

    If an engine (such as Slurm) gives the measurement two of sixteen nodes, it does not say which two. Such a profile
    says nothing about single links.
    """
    is_whole = num_ends(profile.measurements.links) == cluster.num_link_ends
    return is_whole and profile.links_measured_at is not None and profile.links_num_nodes == cluster.num_nodes


def profiled(cluster: Cluster, profile: DeviceProfile) -> Cluster:
    """Return the cluster with the constants and the degraded links that a profile measured.

    They replace the constants of the accelerator and the links, and the link states, in the cluster's description.
    """
    measured = replace(
        cluster,
        accelerator=_accelerator(cluster.accelerator, profile),
        intra_node_link=_link(cluster.intra_node_link, profile),
        inter_node_link=_inter_node_link(cluster.inter_node_link, profile),
    )
    return replace(measured, link_health=_link_health(measured, profile))


def measured_link_health(cluster: Cluster, profile: DeviceProfile) -> tuple[LinkHealth, ...]:
    """Return the degraded links that a profile of the cluster found; empty if it did not measure all nodes."""
    if profile.links_measured_at is None or not knows_links(profile, cluster):
        return ()
    stated = cluster.link_between_ends.bandwidth_bytes_per_s
    source = f"measured {_day(profile.links_measured_at)}"
    return link_health_of(profile.measurements.links, bandwidth_bytes_per_s=stated, source=source)


def _link_health(cluster: Cluster, profile: DeviceProfile) -> tuple[LinkHealth, ...]:
    """Return the states of links: assumed states of the links that were not measured, measured states of the others."""
    if not knows_links(profile, cluster):
        return cluster.link_health
    known = {point.ends for point in profile.measurements.links}
    assumed = tuple(health for health in cluster.link_health if health.ends is not None and health.ends not in known)
    return assumed + measured_link_health(cluster, profile)


def _day(epoch_s: float) -> str:
    return f"{datetime.fromtimestamp(epoch_s, UTC):%Y-%m-%d}"


def _accelerator(accelerator: Accelerator, profile: DeviceProfile) -> Accelerator:
    """Return the accelerator with the measured constants.

    The peak of a data sheet stays; a CPU core has the measured peak.
    """
    measured = replace(
        accelerator,
        kernel_launch_s=profile.launch_s,
        measured_gemm=profile.gemm,
        measured_attention=profile.attention,
        core=profile.core or accelerator.core,
    )
    if accelerator.kind != "cpu":
        return replace(measured, measured_bandwidth_bytes_per_s=profile.memory_bandwidth_bytes_per_s)
    return replace(
        measured,
        memory_bandwidth_bytes_per_s=profile.memory_bandwidth_bytes_per_s,  # nobody states that of a core
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
        efficiency=1.0,  # the measured rate is that of long messages
        measured=profile.collectives or link.measured,  # an older profile has none
        source=profile.origin,
    )


def _inter_node_link(link: Link, profile: DeviceProfile) -> Link:
    """Return the link between nodes with the values of a profile.

    Its congestion stays, because a measurement of two nodes cannot show it.
    """
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
    """The links inside nodes, or the links between nodes, of a cluster: as described, and as measured."""

    between: str
    """The two ends of the link, in words."""
    described: Link
    """Link as the stored cluster or the catalog describes it."""
    measured: Link | None
    """Link as a check of the cluster measured it; null without a check."""


@value
class ClusterLinks:
    """The links of a stored cluster, as described and as measured by checks."""

    items: tuple[LinkStanding, ...]
    measured_at: float | None
    """Time of the newest check that measured the links, in epoch seconds; null without one."""
    num_nodes: int
    """Number of nodes that were measured at the same time; 0 without a check."""
    one_by_one: tuple[LinkPoint, ...] = ()
    """Links that were last measured while neither end communicated with others: every pair of nodes, or of accelerators
    of a single node. With more than 16 ends, these are neighbours in a ring and a sample of other pairs."""
    one_by_one_at: float | None = None
    """Time of the measurement of single links, in epoch seconds; null if there was none."""
    one_by_one_nodes: int = 0
    """Number of nodes whose single links were measured. If the cluster has more nodes, it is not known which of them
    were measured."""
    norm: LinkNorm | None = None
    """Typical values of links that are not degraded, and their limits; null with fewer than three links."""
    health: tuple[LinkHealth, ...] = ()
    """Degraded links, measured or assumed, that predictions use."""

    @classmethod
    def of(cls, cluster: Cluster, profile: DeviceProfile | None) -> Self:
        """Return the links of a cluster, as described and as measured.

        Args:
            cluster: The stored cluster.
            profile: Profile that a check of the cluster measured; None: there was no check.
        """
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
