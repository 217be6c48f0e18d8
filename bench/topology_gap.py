"""Closed forms of routing beside a simulation of every flow: ``python -m bench.topology_gap``.

The cost model counts what crosses the links of a tier by a few divisions per layout. Here the same traffic is laid over
all links, rank by rank, and filled max-min fair. Prints by size, network and placement the largest difference over
groups of many sizes and strides, and the seconds that each way takes. 100,000 ranks are 12,500 nodes, so that borders
of switches lie anywhere between groups; an all-to-all is followed for groups of at most 128, whose flows fit in memory.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from autotuner.catalog.hardware import load_cluster
from autotuner.core.choices import RankPlacement
from autotuner.core.cluster import Cluster
from autotuner.core.columns import LayoutColumns
from autotuner.core.layout import Layout
from autotuner.core.network import Network, Tier
from autotuner.core.placement import Spread
from autotuner.costmodel.communication.group import Group
from autotuner.costmodel.communication.layout_groups import group_of
from bench.flows.filling import fair_rates
from bench.flows.streams import Streams
from bench.flows.traffic import AxisTraffic
from bench.flows.wires import Wires

_SIZES = {1_024: (8, 4, 4), 8_192: (16, 8, 8), 100_000: (20, 25, 25)}
"""Accelerators, and the torus that their nodes would make."""

_TIERS = (
    Tier(name="leaf", nodes_per_switch=32, oversubscription=2.0),
    Tier(name="spine", nodes_per_switch=512, oversubscription=2.0),
)
_MOST_IN_ALL_TO_ALL = 128
_NO_TIME = 1e-20
"""Seconds per byte of a group inside a node, which takes no time here, and of the 1e30 bytes/s that stand for that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTimes:
    """Seconds per byte of an axis whose groups are all at work at once; None where it was not followed."""

    ring: float
    send: float
    all_to_all: float | None


def group_between_nodes(spread: Spread, cluster: Cluster, *, pxn: bool = True, placement: RankPlacement) -> Group:
    """The cost model's group, with links inside nodes that take no time."""
    x = LayoutColumns.from_layouts([Layout(rank_placement=placement, pxn=pxn)])
    group = group_of(np.array([spread.num_ranks]), np.array([spread.stride]), cluster, x)
    return replace(group, intra_node_link=replace(group.intra_node_link, bandwidth_bytes_per_s=1e30))


def closed_times(spread: Spread, cluster: Cluster, placement: RankPlacement) -> GroupTimes:
    """What the cost model's closed forms say."""
    group = group_between_nodes(spread, cluster, placement=placement)
    return GroupTimes(
        ring=float(group.ring_s_per_byte[0]) * spread.num_ranks / (spread.num_ranks - 1),
        send=float(group.send_s_per_byte[0]),
        all_to_all=float(group.all_to_all_s_per_byte()[0]),
    )


def followed_times(spread: Spread, wires: Wires, placement: RankPlacement) -> GroupTimes:
    """What the slowest flow takes where every one is followed."""
    traffic = AxisTraffic(wires=wires, spread=spread, placement=placement)
    is_small = spread.num_ranks <= _MOST_IN_ALL_TO_ALL or wires.cluster.world_size <= min(_SIZES)
    return GroupTimes(
        ring=slowest_s_per_byte(traffic.rings(), wires),
        send=slowest_s_per_byte(traffic.sends(), wires),
        all_to_all=slowest_s_per_byte(traffic.all_to_alls(), wires) if is_small else None,
    )


def slowest_s_per_byte(streams: Streams, wires: Wires) -> float:
    """Of max-min fair shares."""
    return 1 / float(fair_rates(streams, wires.capacities()).min())


def main() -> None:
    """Print a line per size, network and placement."""
    for num_accelerators, torus in _SIZES.items():
        cluster = replace(load_cluster("h100:1024"), num_nodes=num_accelerators // 8)
        networks = (
            Network(name="tiers", tiers=_TIERS),
            Network(name="rails", tiers=_TIERS, num_rails=8),
            Network(name="torus", torus=torus),
        )
        for network in networks:
            for placement in RankPlacement:
                _report(replace(cluster, network=network), placement)


def _report(cluster: Cluster, placement: RankPlacement) -> None:
    assert cluster.network is not None
    wires, spreads = Wires(cluster), _spreads(cluster)
    start = time.process_time()
    followed = [followed_times(spread, wires, placement) for spread in spreads]
    between = time.process_time()
    closed = [closed_times(spread, cluster, placement) for spread in spreads]
    end = time.process_time()
    head = f"{cluster.world_size:7,} ranks  {cluster.network.name:6} {placement.label:7} {len(spreads):3} groups"
    gaps = "  ".join(f"{f.name} {_worst(spreads, closed, followed, f.name)}" for f in fields(GroupTimes))
    sys.stdout.write(f"{head}  {gaps}  {between - start:7.2f} s followed, {end - between:5.2f} s closed\n")
    sys.stdout.flush()


def _spreads(cluster: Cluster) -> list[Spread]:
    """Groups of 2, 4, 5, 8, ... ranks at strides of 1, 4, 8, ...: those that fill the job."""
    world = cluster.world_size
    sizes = [size for size in (2, 4, 5, 8, 16, 25, 32, 64, 125, 128, 1_024, 12_500) if world % size == 0]
    strides = (1, 4, 8, 16, 20, 32, 64, 100, 128, 256, 1_000)
    return [Spread(size, stride) for size in sizes for stride in strides if world % (size * stride) == 0]


def _worst(spreads: Sequence[Spread], closed: Sequence[GroupTimes], followed: Sequence[GroupTimes], name: str) -> str:
    """The largest difference of a time as a share of what was followed, and whose it is."""
    gaps = []
    for spread, one, other in zip(spreads, closed, followed, strict=True):
        expected, found = getattr(other, name), getattr(one, name)
        if expected is not None:
            gaps.append(((found - expected) / max(expected, _NO_TIME) if found > _NO_TIME else 0.0, spread))
    gap, spread = max(gaps, key=lambda pair: abs(pair[0]))
    return f"{gap:+8.2%} ({spread.num_ranks} x {spread.stride})" if abs(gap) > 1e-9 else "   same"


if __name__ == "__main__":
    main()
