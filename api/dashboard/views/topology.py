"""A cluster's topology as pages show it: pictures of the network and of a node, and both in words."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Self

from markupsafe import Markup

from api.dashboard.charts.network import Limits, network_picture
from api.dashboard.charts.node_wiring import node_wiring_picture
from api.dashboard.charts.svg import for_both
from autotuner.core.cluster import Cluster
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.search.explain.routes import routes
from autotuner.search.text.topologies import described_said

_HALF = 560
"""Pixels of each picture on a desk, where both stand side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyShown:
    """What joins a cluster's nodes and accelerators.

    Attributes:
        name: Of the network; empty where the cluster describes none.
        source: Where the network was read.
        network: Its picture; empty of a single node.
        node: The picture of a node; empty where it describes none.
        said: What is in the pictures, in sentences without full stops.
        limits: Of a layout, a sentence for each axis; empty without one.
    """

    name: str
    source: str
    network: Markup
    node: Markup
    said: tuple[str, ...]
    limits: tuple[str, ...] = ()

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
