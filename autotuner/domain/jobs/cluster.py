"""Accelerators, links and the cluster they make; which link a group of ranks crosses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from autotuner.domain import check
from autotuner.domain.jobs.core_times import CoreTimes
from autotuner.domain.jobs.link_health import LinkClass, LinkHealth, latest
from autotuner.domain.jobs.network import Network
from autotuner.domain.jobs.tariff import Tariff
from autotuner.domain.jobs.wiring import PathKind, Wiring
from autotuner.domain.layouts.choice import AttentionKernel, Fp8Recipe, Precision
from autotuner.errors import InvalidInput

__all__ = [
    "LOCAL",
    "SIMULATED",
    "Accelerator",
    "Cluster",
    "CollectiveKind",
    "Link",
    "MeasuredAttention",
    "MeasuredCollective",
    "MeasuredGemm",
]

LOCAL = "local"
"""The engine that needs no registration: trials run on the machine that runs the sweep."""

SIMULATED = "simulated"
"""The engine of that name needs none either: nothing runs on it."""

CollectiveKind = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredGemm:
    """What this very device reached in matrix products of one precision (``profile``).

    Attributes:
        peak_share: What large products reach of the stated peak.
    """

    precision: Precision
    peak_share: float

    def __post_init__(self) -> None:
        check.positive(self, "peak_share")
        check.fraction(self, "peak_share")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredAttention:
    """What this very device reached in one attention kernel and precision.

    Attributes:
        forward_share: What two products reach of the stated peak, as if all pairs of tokens met, causal or not.
        backward_share: What the five products of a backward pass reach, which computes the scores again.
    """

    kernel: AttentionKernel
    precision: Precision
    forward_share: float
    backward_share: float

    def __post_init__(self) -> None:
        check.positive(self, "forward_share", "backward_share")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCollective:
    """What one kind of collective among so many ranks of this very machine takes: a start, and a time per byte.

    Attributes:
        s_per_byte: Per byte of the whole tensor.
    """

    kind: CollectiveKind
    num_ranks: int
    start_s: float
    s_per_byte: float

    def __post_init__(self) -> None:
        check.non_negative(self, "start_s", "s_per_byte")


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One device that a rank runs on; for ``cpu`` it is one core.

    Attributes:
        name: What answers call it; constants of the catalog are found by it.
        kind: Who made it, by what PyTorch calls its devices: NVIDIA, AMD, or a core.
        memory_bytes: What a rank may allocate.
        memory_bandwidth_bytes_per_s: Of its own memory, as the maker states it.
        bf16_flop_per_s: Dense peak of matrix multiplication; 0 where the format is missing.
        fp8_flop_per_s: Dense peak of matrix multiplication; 0 where the format is missing.
        fp4_flop_per_s: Dense peak of nvfp4; 0 where the format is missing.
        power_w: At most, as the maker states it; 0 where it is not known.
        peak_source: Where the peaks come from: a data sheet with its date, or a measurement.
        fp32_flop_per_s: Dense peak of matrix multiplication.
        sustained_share: Share of its short-benchmark rate that it keeps through a training step, when power and heat
            limit the clock.
        fp8_sustained_share: The share that it keeps where products are in fp8; None: no less.
        fp4_sustained_share: The share that it keeps where products are in nvfp4; None: no less.
        kernel_launch_s: Time between two dependent kernels that do nothing; on a CPU, what dispatching one takes.
        attention_kernels: Implementations that run on it.
        fp8_recipes: Ways to scale fp8 values that it multiplies, where it multiplies fp8 at all.
        host_bandwidth_bytes_per_s: Between its memory and the host's, one direction, as the maker states it.
        measured_gemm: What a profile of this device says, in the place of the catalog's; empty without one.
        measured_attention: What a profile says of attention on this device; empty without one.
        peak_is_measured: The peaks are this very machine's GEMM rates, so a trial here need not measure its own.
        core: What a core spends beside the work itself; None for a device that a host launches kernels for.
        idle_power_w: Of a device that holds a job and waits; None: a share of what it draws at most.
    """

    name: str
    kind: Literal["cuda", "rocm", "cpu"]
    memory_bytes: int
    memory_bandwidth_bytes_per_s: float
    fp32_flop_per_s: float
    bf16_flop_per_s: float
    fp8_flop_per_s: float
    peak_source: str
    power_w: float
    sustained_share: float = 0.9
    kernel_launch_s: float = 5e-6
    attention_kernels: tuple[AttentionKernel, ...] = (AttentionKernel.MATH,)
    peak_is_measured: bool = False
    host_bandwidth_bytes_per_s: float = 31.5e9
    measured_gemm: tuple[MeasuredGemm, ...] = ()
    measured_attention: tuple[MeasuredAttention, ...] = ()
    fp4_flop_per_s: float = 0.0
    fp8_sustained_share: float | None = None
    fp4_sustained_share: float | None = None
    fp8_recipes: tuple[Fp8Recipe, ...] = (Fp8Recipe.TENSORWISE, Fp8Recipe.ROWWISE, Fp8Recipe.DELAYED)
    core: CoreTimes | None = None
    idle_power_w: float | None = None

    def __post_init__(self) -> None:
        check.one_of("kind", self.kind, ("cuda", "rocm", "cpu"))
        check.positive(self, "memory_bytes", "memory_bandwidth_bytes_per_s", "fp32_flop_per_s")
        check.positive(self, "host_bandwidth_bytes_per_s")
        check.non_negative(self, "bf16_flop_per_s", "fp8_flop_per_s", "fp4_flop_per_s", "power_w", "kernel_launch_s")
        for name in ("sustained_share", "fp8_sustained_share", "fp4_sustained_share"):
            if getattr(self, name) is not None:
                check.positive(self, name)
                check.fraction(self, name)
        if self.idle_power_w is not None and not 0 <= self.idle_power_w <= (self.power_w or self.idle_power_w):
            rule = f"must lie in 0..{self.power_w:g}, what the device draws at most"
            raise InvalidInput("idle_power_w", self.idle_power_w, rule, self.power_w)
        if not self.attention_kernels:
            raise InvalidInput("attention_kernels", (), "must name at least one kernel", "math")

    def peak_flop_per_s(self, precision: Precision) -> float:
        """Dense peak in that format; 0.0 where the hardware has none."""
        match precision:
            case Precision.FP32:
                return self.fp32_flop_per_s
            case Precision.BF16:
                return self.bf16_flop_per_s
            case Precision.FP8:
                return self.fp8_flop_per_s
            case Precision.FP8_EMULATED:
                return self.bf16_flop_per_s
            case Precision.NVFP4:
                return self.fp4_flop_per_s if self.kind == "cuda" else 0.0  # AMD's units scale 4 bits as mxfp4

    @property
    def applies_block_scales(self) -> bool:
        """Whether its tensor cores multiply by the scales of blocks of values (Blackwell, CDNA 4).

        Those also add up in fp32 and read 8-bit factors along either dimension, which earlier ones do not.
        """
        return Fp8Recipe.MXFP8 in self.fp8_recipes

    def sustained_share_in(self, precision: Precision) -> float:
        """Share of its short-benchmark rate that products in that format keep through a training step."""
        match precision:
            case Precision.FP8:
                own = self.fp8_sustained_share
            case Precision.NVFP4:
                own = self.fp4_sustained_share
            case _:
                own = None
        return self.sustained_share if own is None else own

    @property
    def reference_precision(self) -> Precision:
        """Format whose peak MFU is a share of, whatever the precision of a layout, so that MFU ranks like tokens/s.

        A GPU's is bf16, or fp32 where it has no bf16. A core's is fp32: the one format that every core multiplies at
        full speed, while some emulate bf16 slowly and others have units for it.
        """
        return Precision.FP32 if self.kind == "cpu" or not self.bf16_flop_per_s else Precision.BF16

    @property
    def reference_flop_per_s(self) -> float:
        """Dense peak that MFU is a share of."""
        return self.peak_flop_per_s(self.reference_precision)

    @property
    def precisions(self) -> tuple[Precision, ...]:
        """Formats that the hardware multiplies in."""
        return tuple(p for p in Precision if self.peak_flop_per_s(p) > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What one accelerator can send, one direction, while all others send too.

    Attributes:
        name: What answers call it.
        bandwidth_bytes_per_s: What the maker states.
        latency_s: One step of a collective over it.
        start_s: Before a collective's first step.
        ramp_s: How long a long message takes to fill the link's pipeline (``costmodel.collectives``).
        efficiency: Share of the bandwidth that long messages reach; 0.74 to 0.95 where it was published.
        multicast_efficiency: Share of it where the switches copy and add (NVLink SHARP); 0 where they cannot.
        congestion: Exponent by which times grow with the number of nodes; 0 for a network that does not slow down.
        mesh_peers: Where no switch joins a node, the others that each get an equal part of the bandwidth: 3 in a node
            of 4. A group of two uses one such part. 0 behind a switch.
        measured: Collectives as a profile of this machine timed them, in the place of all that; empty without one.
        source: Where and when a profile measured it; empty: its maker and the catalog say all that.
    """

    name: str
    bandwidth_bytes_per_s: float
    latency_s: float
    start_s: float = 0.0
    ramp_s: float = 0.0
    efficiency: float = 0.8
    multicast_efficiency: float = 0.0
    congestion: float = 0.0
    mesh_peers: int = 0
    measured: tuple[MeasuredCollective, ...] = ()
    source: str = ""

    def __post_init__(self) -> None:
        check.positive(self, "bandwidth_bytes_per_s", "efficiency")
        check.fraction(self, "efficiency", "multicast_efficiency")
        check.non_negative(self, "latency_s", "start_s", "ramp_s", "congestion", "mesh_peers")

    def with_bandwidth(self, bandwidth_bytes_per_s: float) -> Self:
        """The link with another bandwidth; what was timed on it takes as much longer per byte, and starts as fast."""
        slower = self.bandwidth_bytes_per_s / bandwidth_bytes_per_s
        timed = tuple(replace(line, s_per_byte=slower * line.s_per_byte) for line in self.measured)
        return replace(self, bandwidth_bytes_per_s=bandwidth_bytes_per_s, measured=timed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Equal nodes of equal accelerators.

    Attributes:
        name: What answers call it.
        accelerator: What every rank runs on.
        num_nodes: Nodes of the job.
        accelerators_per_node: Accelerators of each node; every one gets a rank.
        price_per_accelerator_hour: In US dollars; 0 where it is not known.
        intra_node_link: Between the accelerators of a node, or of an NVLink domain of several nodes.
        inter_node_link: What one accelerator gets of its node's network, before oversubscription.
        nvlink_domain: Accelerators that one NVLink domain joins (72 in a rack of GB200), whole nodes or less than one
            more; None: those of a node.
        oversubscription: Factor by which the network's core is thinner than its edge; 1.0 is non-blocking.
        engine: Name of the engine that trials on it are given to, as the service's operator registered it; ``local``:
            this machine.
        queue: Of that engine, one of those that its operator lets clusters name; empty: the first of them.
        link_health: Links that differ today from what the links above say; of several of one link the last counts.
        network: What joins the nodes, which then says the oversubscription; None: one switch.
        tariff: What hours, energy and emissions cost.
        wiring: What joins the accelerators of a node where the link within it does not join all of them; None: it does.
    """

    name: str
    accelerator: Accelerator
    num_nodes: int
    accelerators_per_node: int
    intra_node_link: Link
    inter_node_link: Link
    oversubscription: float = 1.0
    price_per_accelerator_hour: float = 0.0
    nvlink_domain: int | None = None
    engine: str = LOCAL
    queue: str = ""
    link_health: tuple[LinkHealth, ...] = ()
    network: Network | None = None
    tariff: Tariff = field(default_factory=Tariff)
    wiring: Wiring | None = None

    def __post_init__(self) -> None:
        check.positive(self, "num_nodes", "accelerators_per_node")
        for health in self.link_health:
            _require_link(health, self.num_link_ends)
        if self.nvlink_domain is not None and self.nvlink_domain < self.accelerators_per_node:
            rule = f"an NVLink domain joins at least the {self.accelerators_per_node} accelerators of a node"
            raise InvalidInput("nvlink_domain", self.nvlink_domain, rule, self.accelerators_per_node)
        check.non_negative(self, "price_per_accelerator_hour")
        if self.tariff.is_spot and not self.tariff.spot_price_per_accelerator_hour:
            rule = "needs a spot_price_per_accelerator_hour above 0 beside it"
            raise InvalidInput("tariff.is_spot", True, rule, False)
        if not self.oversubscription >= 1.0:  # also refuses what is no number
            raise InvalidInput("oversubscription", self.oversubscription, "must be 1.0 or more", 1.0)
        if self.network is not None:
            self.network.require_nodes(self.num_nodes)
            if self.oversubscription != 1.0:
                rule = "must be left out where the network's tiers say it"
                raise InvalidInput("oversubscription", self.oversubscription, rule, 1.0)
        if self.wiring is not None:
            self.wiring.require_accelerators(self.accelerators_per_node)

    @property
    def world_size(self) -> int:
        """Accelerators of all nodes; every rank gets one."""
        return self.num_nodes * self.accelerators_per_node

    @property
    def num_link_ends(self) -> int:
        """What links join: nodes, or the accelerators of a single one."""
        return self.num_nodes if self.num_nodes > 1 else self.accelerators_per_node

    @property
    def ranks_per_link_end(self) -> int:
        """Ranks at one end of a link: those of a node, or one."""
        return self.accelerators_per_node if self.num_nodes > 1 else 1

    @property
    def link_class(self) -> LinkClass:
        """Which class the links between ends are of."""
        return "inter_node" if self.num_nodes > 1 else "intra_node"

    @property
    def link_between_ends(self) -> Link:
        """What joins two ends, as long as nothing ails it."""
        return self.inter_node_link if self.num_nodes > 1 else self.intra_node_link

    def link_end(self, rank: int) -> int:
        """The node, or the accelerator of a single one, that a rank of the job lies on."""
        return rank // self.ranks_per_link_end

    def health_between(self, one: int, other: int) -> LinkHealth | None:
        """What ails the link between two ends; None where nothing does, or they are the same."""
        if one == other:
            return None
        ends = (min(one, other), max(one, other))
        known = {health.ends or health.link_class: health for health in latest(self.link_health)}
        return known.get(ends) or known.get(self.link_class)

    def with_link_health(self, links: Iterable[LinkHealth]) -> Self:
        """The cluster while more is known of its links, which counts before what was known."""
        return replace(self, link_health=(*self.link_health, *links))

    def resized(self, *, num_nodes: int | None = None, accelerators_per_node: int | None = None) -> Self:
        """The cluster with another size, and with the health of those links that it still has.

        Where the size makes nodes of what were accelerators, or the reverse, links between two ends are others.
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
        """Neighbouring ranks of the job that NVLink joins: a node's, or those of several nodes of one domain.

        A job that outgrows a domain gets equal parts of several: the most nodes of a domain that divide the job's, 16
        of 18 for 32 nodes of 4. So do NVIDIA's launchers ask Slurm for segments (``segment`` in
        scripts/performance/executors.py of NeMo 2.4 and in Megatron-Bridge). Where only parts below half of a domain
        divide them, whole domains are filled one after the other.
        """
        per_node, nodes = self.accelerators_per_node, self.num_nodes
        joined = min(nodes, (self.nvlink_domain or per_node) // per_node)
        segment = next(n for n in range(joined, 0, -1) if nodes % n == 0)
        return per_node * (segment if 2 * segment >= joined else joined)

    def link_for(self, group_size: int, stride: int) -> Link:
        """The slowest link inside a group of ``group_size`` ranks that lie ``stride`` apart."""
        if self.crosses_nodes(group_size, stride):
            return self.inter_node_link
        if self.wiring is None or group_size * stride > self.accelerators_per_node:
            return self.intra_node_link
        return self.wired_link(self.wiring.limiting_path(range(0, group_size * stride, stride)))

    def wired_link(self, path: PathKind) -> Link:
        """What two accelerators of a node that reach each other so have, as the wiring says it."""
        wiring, link = self.wiring, self.intra_node_link
        if wiring is None or path is PathKind.NVLINK or (not wiring.nvlink_groups and path is not PathKind.SOCKETS):
            return link
        pcie = wiring.pcie_bandwidth_bytes_per_s or self.accelerator.host_bandwidth_bytes_per_s
        rate = wiring.socket_bandwidth_bytes_per_s if path is PathKind.SOCKETS else pcie
        return Link(name=path.in_words, bandwidth_bytes_per_s=rate, latency_s=link.latency_s, source=wiring.source)

    def crosses_nodes(self, group_size: Any, stride: Any) -> Any:
        """Whether NVLink does not join such a group everywhere: a bool, or a bool column for columns of groups.

        It lies on more than one node, or on more than one NVLink domain. Groups that do not divide a domain straddle
        the border of two somewhere in the job.
        """
        span, domain = group_size * stride, self.accelerators_per_domain
        return (span > domain) | ((group_size > 1) & (domain % span != 0) & (self.world_size > domain))


def _require_link(health: LinkHealth, num_ends: int) -> None:
    if health.ends is not None and health.ends[1] >= num_ends:
        rule = f"the cluster's links join {num_ends} ends, numbered from 0"
        raise InvalidInput("link_health.ends", list(health.ends), rule, str([max(0, num_ends - 2), num_ends - 1]))
