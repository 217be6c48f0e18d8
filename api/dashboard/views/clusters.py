"""A cluster as pages show it: its network, and its links as they were described and measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Self

from markupsafe import Markup

from api.dashboard.charts.drawing import for_both
from api.dashboard.charts.network import Limits, network_picture, node_wiring_picture
from api.schemas.clusters import LinkList
from autotuner.core.cluster import Cluster
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.link import MOST_ENDS_OF_ALL_PAIRS, LinkEnds, LinkHealth, LinkPoint, health_said, links_compared
from autotuner.core.units import format_rate, format_seconds
from autotuner.search.explain.communication import routes
from autotuner.search.text.topologies import described_said

# The links of a cluster one by one, as its page shows them: a matrix of ends, and what ails which link in words.


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCell:
    """A link from one side."""

    text: str = ""
    """One-way delay above the diagonal, bandwidth of the slower direction below it."""
    look: str = ""
    """``measured``, ``predicted`` of what is assumed, or nothing where nothing is known."""
    is_ailing: bool = False
    """Whether the link is not healthy in that respect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkMatrix:
    """What the template shows."""

    ends: str
    """What links join: nodes or accelerators."""
    rows: tuple[tuple[LinkCell | None, ...], ...]
    """A cell for each pair of ends, none on the diagonal; no rows where there are too many ends to be read."""
    compared: str
    """Which links were measured and what they typically reach; empty where none was."""
    ailing: tuple[tuple[str, str], ...]
    """What is not healthy, a line for each link, and how the line looks."""


def link_matrix(cluster: Cluster, links: LinkList) -> LinkMatrix | None:
    """The matrix of a cluster as it is predicted for; None where nothing is known of single links."""
    if not links.one_by_one and not links.health:
        return None
    between_nodes = links.one_by_one_nodes > 1 if links.one_by_one else cluster.num_nodes > 1
    return LinkMatrix(
        ends="nodes" if between_nodes else "accelerators",
        rows=_rows(cluster, links, between_nodes=between_nodes),
        compared=links_compared(links.one_by_one, between_nodes=between_nodes),
        ailing=tuple(
            (health_said(health, between_nodes=cluster.num_nodes > 1), "measured" if health.source else "predicted")
            for health in links.health
        ),
    )


def _rows(cluster: Cluster, links: LinkList, *, between_nodes: bool) -> tuple[tuple[LinkCell | None, ...], ...]:
    measured = {point.ends: point for point in links.one_by_one}
    of_whole = between_nodes == (cluster.num_nodes > 1)
    known = {health.ends: health for health in links.health if health.ends and of_whole}
    num_ends = max((high + 1 for _, high in {*measured, *known}), default=0)
    if num_ends > MOST_ENDS_OF_ALL_PAIRS:
        return ()
    ends = range(num_ends)
    return tuple(
        tuple(None if row == column else _cell(row, column, measured, known) for column in ends) for row in ends
    )


def _cell(
    row: int, column: int, measured: Mapping[LinkEnds, LinkPoint], known: Mapping[LinkEnds, LinkHealth]
) -> LinkCell:
    ends = (min(row, column), max(row, column))
    point, health = measured.get(ends), known.get(ends)
    is_delay = row < column
    if point is not None:
        text = format_seconds(point.delay_s) if is_delay else format_rate(point.bandwidth_bytes_per_s, "B/s")
        return LinkCell(text=text, look="measured", is_ailing=health is not None and _ails(health, is_delay=is_delay))
    if health is None or not _ails(health, is_delay=is_delay):
        return LinkCell()
    return LinkCell(text=_assumed(health, is_delay=is_delay), look="predicted", is_ailing=True)


def _ails(health: LinkHealth, *, is_delay: bool) -> bool:
    slow = health.delay_s > 0 if is_delay else health.bandwidth_bytes_per_s is not None
    return slow or health.is_dead


def _assumed(health: LinkHealth, *, is_delay: bool) -> str:
    if health.is_dead:
        return "dead"
    return f"+{format_seconds(health.delay_s)}" if is_delay else format_rate(health.bandwidth_bytes_per_s or 0.0, "B/s")


# A cluster's topology as pages show it: pictures of the network and of a node, and both in words.

_HALF = 560
"""Pixels of each picture on a desk, where both stand side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyShown:
    """What joins a cluster's nodes and accelerators."""

    name: str
    """Of the network; empty where the cluster describes none."""
    source: str
    """Where the network was read."""
    network: Markup
    """Its picture; empty of a single node."""
    node: Markup
    """The picture of a node; empty where it describes none."""
    said: tuple[str, ...]
    """What is in the pictures, in sentences without full stops."""
    limits: tuple[str, ...] = ()
    """Of a layout, a sentence for each axis; empty without one."""

    @classmethod
    def of(cls, cluster: Cluster) -> Self | None:
        """That of a cluster; None of one that describes neither network nor wiring."""
        return cls._of(cluster, {}, ())

    @classmethod
    def under(cls, layout: Layout, job: Job) -> Self | None:
        """The same with the links that limit a layout."""
        found = routes(layout, job)
        axes: dict[str, list[str]] = {}
        for route in found:
            axes.setdefault(route.limiting_link, []).append(route.axis)
        return cls._of(job.cluster, axes, tuple(route.sentence for route in found))

    @classmethod
    def _of(cls, cluster: Cluster, limits: Limits, sentences: tuple[str, ...]) -> Self | None:
        network, wiring = cluster.network, cluster.wiring
        if network is None and wiring is None:
            return None
        has_network = network is not None and cluster.num_nodes > 1
        return cls(
            name=network.name if network else "",
            source=network.source if network else "",
            network=for_both(partial(_network, cluster, limits), wide=_HALF) if has_network else Markup(),
            node=for_both(partial(_node, cluster, limits), wide=_HALF) if wiring else Markup(),
            said=described_said(cluster),
            limits=sentences,
        )


def _network(cluster: Cluster, limits: Limits, width: int) -> Markup:
    return network_picture(cluster, limits, width=width)


def _node(cluster: Cluster, limits: Limits, width: int) -> Markup:
    return node_wiring_picture(cluster, limits, width=width)
