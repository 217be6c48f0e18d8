"""Emulates degraded links of a trial, as a cluster's link health and a fault trace describe them, between steps."""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor

from autotuner.core.cluster import Cluster
from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth
from autotuner.core.placement import Place, rank_at
from autotuner.core.trial_spec import TrialSpec
from autotuner.training.pipelines.pipeline import ResilientPipeline
from autotuner.training.pipelines.transport import LinkCondition, LinkConditions
from autotuner.trials.distributed.mesh import Grid

# The present faults of the links between the ranks of a trial, as far as software has to emulate them.


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """The links of a cluster, with the faults that a trial emulates to measure training under slow links."""

    cluster: Cluster
    """Cluster with only the faults that must be emulated; links that were measured to be slow are slow by
    themselves."""

    @classmethod
    def of(cls, cluster: Cluster) -> Self:
        """Return the links of a cluster with the faults that its description assumes, without measured faults."""
        assumed = tuple(health for health in cluster.link_health if not health.source)
        return cls(cluster=replace(cluster, link_health=assumed))

    def befallen_by(self, faults: Sequence[LinkHealth]) -> Links:
        """Return the links with additional faults. If a link already has a fault, the new fault replaces it."""
        return Links(cluster=self.cluster.with_link_health(faults))

    @property
    def are_healthy(self) -> bool:
        """True if no link is degraded, so that there is nothing to emulate."""
        return all(health.is_healthy for health in self.cluster.link_health)

    def between(self, one: int, other: int) -> LinkHealth | None:
        """Return the fault of the link between two ranks of the job; None if the link is not degraded."""
        found = self.cluster.health_between(self.cluster.link_end(one), self.cluster.link_end(other))
        return None if found is None or found.is_healthy else found

    def in_ring(self, ranks: Sequence[int]) -> LinkHealth | None:
        """Return the worst fault among the links between neighbours in a ring of ranks; None if no link is degraded.

        A dead link is worst; otherwise the result has the longest delay and the lowest bandwidth of all links.
        """
        return _worst(self.between(one, other) for one, other in zip(ranks, [*ranks[1:], ranks[0]], strict=True))

    def among(self, ranks: Sequence[int]) -> LinkHealth | None:
        """Return the worst fault among the links between any two of the ranks; None if no link is degraded.

        A dead link is worst; otherwise the result has the longest delay and the lowest bandwidth of all links.
        """
        return _worst(self.between(one, other) for one, other in combinations(ranks, 2))


def pipeline_conditions(links: Links, layout: Layout, place: Place) -> LinkConditions:
    """Return the emulated conditions (delay, bandwidth, dead or not) of the links between the stages of a pipeline.

    Args:
        links: The links of the cluster, with their faults.
        layout: The layout of the trial.
        place: The place of a rank in the layout; its pipeline is meant.
    """
    ranks = [rank_at(layout, place._replace(stage=stage)) for stage in range(layout.pipeline_parallel_degree)]
    hops = [(stage, (stage + 1) % len(ranks)) for stage in range(len(ranks))]
    met = {(min(hop), max(hop)): links.between(ranks[hop[0]], ranks[hop[1]]) for hop in hops if hop[0] != hop[1]}
    return LinkConditions(of_pairs={pair: _condition(health) for pair, health in met.items() if health is not None})


def _condition(health: LinkHealth) -> LinkCondition:
    return LinkCondition(
        delay_s=health.delay_s,
        jitter_s=health.jitter_s,
        bandwidth_bytes_per_s=health.bandwidth_bytes_per_s,
        is_dead=health.is_dead,
    )


def _worst(found: Iterable[LinkHealth | None]) -> LinkHealth | None:
    """Return the worst state: a dead link, else the longest delay, with the lowest bandwidth of all."""
    known = [health for health in found if health is not None]
    if not known:
        return None
    rates = [health.bandwidth_bytes_per_s for health in known if health.bandwidth_bytes_per_s is not None]
    worst = max(known, key=lambda health: (health.is_dead, health.delay_s))
    return replace(worst, bandwidth_bytes_per_s=min(rates, default=None))


# LateCollectives: holds collectives back whose ring reaches over a slow link, as long as that link would.
#
# Each step of a ring passes on what the step before brought, so a link that is late is late in every step: an
# all-reduce of n ranks waits 2 (n - 1) times, a gather, a scatter or an exchange n - 1 times, and what its bytes take
# longer over a thinner link comes on top. The cost model counts the same (``costmodel.communication``). The rank that
# calls waits before the collective begins, as if the operation lay in a stream of its own: nothing is hidden behind
# it.
#
# All collectives of PyTorch, the functional ones and those of DDP's reducer too, end in an operator of ``c10d``,
# which is wrapped here; sends between stages have a transport of their own, and are none of them.

_ROUNDS = {
    "allreduce_": 2,
    "allreduce_coalesced_": 2,
    "allgather_": 1,
    "allgather_into_tensor_coalesced_": 1,
    "_allgather_base_": 1,
    "reduce_scatter_": 1,
    "reduce_scatter_tensor_coalesced_": 1,
    "_reduce_scatter_base_": 1,
    "alltoall_": 1,
    "alltoall_base_": 1,
    "broadcast_": 1,
    "reduce_": 1,
}
"""Number of times that data goes around the ring, by operator."""

_BETWEEN_ALL = frozenset({"alltoall_", "alltoall_base_"})
"""Operators in which each rank sends to every other rank, and not only to its neighbour."""

_ABOVE_DEVICES = torch._C.DispatchKey.BackendSelect
"""The dispatch key just above those of the devices. Every call has it, and no collective has a kernel for it."""


class GroupCut(ConnectionError):
    """Raised when a collective would have to send data over a dead link."""

    def __init__(self, health: LinkHealth, ranks: Sequence[int]) -> None:
        super().__init__(f"link {health} is dead, and a collective of ranks {list(ranks)} cannot avoid it")


@dataclass(frozen=True, slots=True)
class _Group:
    """Ranks that communicate, with the worst link of their ring and the worst link between any two of them."""

    ranks: tuple[int, ...]
    ring: LinkHealth | None
    pairs: LinkHealth | None


class LateCollectives:
    """Delays the collectives of some process groups as slow links would delay them.

    Args:
        groups: The groups of this rank whose collectives are delayed. Collectives of other groups are not delayed.
        device: The device on which the ranks compute.
        seed: Seed of the random part of the delays. All ranks must use the same seed, so that the ranks of a group get
            equal delays.
        wait: Function that makes the calling rank wait for a number of seconds.
    """

    def __init__(
        self,
        groups: Iterable[dist.ProcessGroup],
        device: torch.device,
        *,
        seed: int,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._ranks = {str(group.group_name): tuple(dist.get_process_group_ranks(group)) for group in groups}
        self._device = device
        self._wait = wait
        self._chance = {name: random.Random(f"{seed} {ranks}") for name, ranks in self._ranks.items()}
        self._late: Mapping[str, _Group] = {}
        self._library: torch.library.Library | None = None

    def meet(self, links: Links) -> None:
        """Delay all later collectives as these slow links would delay them. Call it whenever the faults change."""
        met = {name: _Group(ranks, links.in_ring(ranks), links.among(ranks)) for name, ranks in self._ranks.items()}
        self._late = {name: group for name, group in met.items() if group.pairs is not None}
        if self._late and self._library is None:
            self._library = _wrapped(self._hold)

    def _hold(self, operator: str, group_name: str, num_bytes: int) -> None:
        """Wait for as long as the group's worst link delays this collective.

        Raises:
            GroupCut: The link is dead.
        """
        if (group := self._late.get(group_name)) is None:
            return
        if (health := group.pairs if operator in _BETWEEN_ALL else group.ring) is None:
            return
        if health.is_dead:
            raise GroupCut(health, group.ranks)
        delay_s = max(0.0, self._chance[group_name].gauss(health.delay_s, health.jitter_s))
        seconds = ring_hold_s(_ROUNDS[operator], len(group.ranks), num_bytes, delay_s, health.bandwidth_bytes_per_s)
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()
        self._wait(seconds)


def ring_hold_s(
    num_rounds: int, num_ranks: int, num_bytes: int, delay_s: float, bandwidth_bytes_per_s: float | None
) -> float:
    """Return the seconds that a slow link adds to a ring collective. Each step of a ring waits for the step before.

    Args:
        num_rounds: Number of times that data goes around the ring: 2 for an all-reduce, otherwise 1.
        num_ranks: Number of ranks in the ring.
        num_bytes: Bytes of the whole tensor. Each step sends the part of one rank.
        delay_s: One-way delay of each message.
        bandwidth_bytes_per_s: Bandwidth of the slow link; None: the link has the same bandwidth as all other links.
    """
    steps = num_rounds * (num_ranks - 1)
    thin_s = num_bytes / num_ranks / bandwidth_bytes_per_s if bandwidth_bytes_per_s else 0.0
    return steps * (delay_s + thin_s)


def _wrapped(hold: Callable[[str, str, int], None]) -> torch.library.Library:
    """Delay every collective by ``hold``, until this process ends.

    The wrapper lies above the kernels of the devices and calls them. Therefore the kernel runs without Python's lock,
    as it does without a wrapper. With this lock, the rank would wait forever: the kernel waits for the lock of gloo's
    queue, while a thread of gloo holds it and waits for Python's lock to release objects of an earlier backward pass.
    """
    library = torch.library.Library("c10d", "IMPL")  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        # this replaces those of an earlier trial in this process
        warnings.filterwarnings("ignore", "(?s).*Overriding a previously registered kernel", UserWarning)
        for name in _ROUNDS:
            library.impl(  # type: ignore[no-untyped-call]
                name, _held(name, hold), _ABOVE_DEVICES.name, with_keyset=True, allow_override=True
            )
    return library


def _held(name: str, hold: Callable[[str, str, int], None]) -> Callable[..., Any]:
    operator = getattr(torch.ops.c10d, name).default
    above_devices = torch._C.DispatchKeySet(_ABOVE_DEVICES)

    def late(keyset: Any, *arguments: Any) -> Any:
        hold(name, _group_name(arguments), max(map(_num_bytes, arguments[:2])))
        return operator.redispatch(keyset - above_devices, *arguments)

    return late


def _group_name(arguments: Iterable[Any]) -> str:
    """Return the name of the process group among the arguments: the first object that is not a tensor."""
    group = next(one for one in arguments if isinstance(one, torch.ScriptObject))
    return dist.ProcessGroup.unbox(group).group_name


def _num_bytes(argument: Any) -> int:
    """Return the bytes of a tensor, or of all tensors in nested lists."""
    return sum(tensor.nbytes for tensor in _tensors([argument]))


def _tensors(arguments: Iterable[Any]) -> Iterator[Tensor]:
    """Yield the tensors among the arguments, including those in lists."""
    for argument in arguments:
        if isinstance(argument, Tensor):
            yield argument
        elif isinstance(argument, (list, tuple)):
            yield from _tensors(argument)


# LinkFaults: makes a rank's links behave as a cluster's link health and a fault trace say, between steps.


class LinkFaults:
    """Emulates slow and dead links of a rank, for its pipeline and its tensor, data, context and expert groups.

    Collectives over the whole pipeline, such as the sum of the loss, are not delayed, because trainers need their
    results only in the next step.
    """

    def __init__(self, links: Links, grid: Grid, pipeline: ResilientPipeline | None, device: torch.device) -> None:
        self._links = links
        self._layout, self._place = grid.layout, place_on(grid)
        self._pipeline = pipeline
        self._collectives = LateCollectives(_groups(grid), device, seed=0)
        self.meet(())

    @classmethod
    def of(
        cls, spec: TrialSpec, grid: Grid, pipeline: ResilientPipeline | None, device: torch.device
    ) -> LinkFaults | None:
        """Return the object that emulates the link faults of a trial; None if the trial emulates no faults."""
        if not spec.has_slow_links:
            return None
        assert spec.cluster is not None, "only a cluster has slow links"
        return cls(Links.of(spec.cluster), grid, pipeline, device)

    def meet(self, faults: Sequence[LinkHealth]) -> None:
        """Emulate these faults from the next step on, in addition to the faults that always apply."""
        links = self._links.befallen_by(faults)
        self._collectives.meet(links)
        if self._pipeline is not None:
            self._pipeline.conditions = pipeline_conditions(links, self._layout, self._place)


def place_on(grid: Grid) -> Place:
    """Return the position of this rank in the layout: its pipeline stage, replica, data shard and tensor rank."""
    return Place(*(grid.position(name) for name in ("pp", "dp_replicate", "shard", "tp")))


def _groups(grid: Grid) -> Iterator[dist.ProcessGroup]:
    """Yield the tensor, data, context and expert groups of this rank that have more than one rank."""
    layout = grid.layout
    for name in ("dp_replicate", "shard", "tp"):
        yield from _several(grid.axis(name).get_group())
    if layout.context_parallel_degree > 1:
        yield from _several(grid.context.get_group())
    if layout.data_parallel_shard_degree == 1:
        yield from _several(grid.replicas.get_group())
    yield from _expert_groups(grid, layout)


def _expert_groups(grid: Grid, layout: Layout) -> Iterator[dist.ProcessGroup]:
    if layout.expert_parallel_degree > 1:
        for name in ("expert_shard", "expert"):
            yield from _several(grid.experts(name).get_group())


def _several(group: dist.ProcessGroup) -> Iterator[dist.ProcessGroup]:
    if group.size() > 1:
        yield group
