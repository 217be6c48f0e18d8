"""Network: the switches between a cluster's nodes, tier by tier, or the torus that they make without any."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

from autotuner.core import check
from autotuner.errors import InvalidInput

__all__ = ["Network", "Tier", "torus_lengths"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """Switches of one height, all alike.

    Attributes:
        name: What answers call it: ``leaf``, ``spine``.
        nodes_per_switch: Nodes below one of them, those below the tiers under it counted in.
        oversubscription: What these nodes can send in all over what the switch passes up; 1.0 is non-blocking. Of the
            highest tier nothing goes up.
        latency_s: What a message takes longer that turns around here than one that turns around below, one way.
    """

    name: str
    nodes_per_switch: int
    oversubscription: float = 1.0
    latency_s: float = 0.0

    def __post_init__(self) -> None:
        check.positive(self, "nodes_per_switch")
        check.non_negative(self, "latency_s")
        if not self.oversubscription >= 1.0:  # also refuses what is no number
            raise InvalidInput("oversubscription", self.oversubscription, "must be 1.0 or more", 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """What joins the nodes of a cluster.

    Nodes are numbered so that those below one switch follow each other.

    Attributes:
        name: What answers call it.
        tiers: From the switches that nodes are plugged into upwards; whatever is above the last is non-blocking, and
            joins all. Empty: one switch, or a torus.
        num_rails: Ports of a node that each have lowest switches of their own, which join the same port of other nodes;
            accelerator i of a node of g uses rail i * num_rails // g. 1: all ports of a node end in one switch.
        torus: Nodes along each dimension, the first one's neighbours numbered next to each other; empty: switches.
        ports_per_node: Ports that a node's accelerators share; None: one each.
        adds: Its switches add what passes them (InfiniBand SHARP).
        adapts_routes: Its switches spread packets over all ways (adaptive routing): no two flows meet by chance.
        source: Where it was read: a file's kind, a preset, a person.
    """

    name: str
    tiers: tuple[Tier, ...] = ()
    num_rails: int = 1
    torus: tuple[int, ...] = ()
    ports_per_node: int | None = None
    adds: bool = False
    adapts_routes: bool = True
    source: str = ""

    def __post_init__(self) -> None:
        check.positive(self, "num_rails")
        if self.ports_per_node is not None:
            check.positive(self, "ports_per_node")
        if self.tiers and self.torus:
            raise InvalidInput("torus", list(self.torus), "must be left out where there are tiers of switches", "[]")
        if any(length < 2 for length in self.torus):
            raise InvalidInput("torus", list(self.torus), "must have at least 2 nodes along each dimension")
        sizes = [tier.nodes_per_switch for tier in self.tiers]
        for below, above in pairwise(sizes):
            if above % below or above == below:
                rule = f"must be a multiple of the {below} nodes below a switch of the tier under it"
                raise InvalidInput("nodes_per_switch", above, rule, below * max(2, above // below))

    def require_nodes(self, num_nodes: int) -> None:
        """Return if it joins so many nodes.

        Raises:
            InvalidInput: A torus has fewer or more.
        """
        if self.torus and math.prod(self.torus) != num_nodes:
            rule = f"a torus of {' x '.join(map(str, self.torus))} joins {math.prod(self.torus)} nodes"
            raise InvalidInput("num_nodes", num_nodes, rule, math.prod(self.torus))

    def resized(self, num_nodes: int) -> Self:
        """What joins another number of nodes: such switches, or a torus of no more dimensions."""
        if not self.torus or math.prod(self.torus) == num_nodes:
            return self
        dimensions = range(len(self.torus), 0, -1)
        found = next((lengths for number in dimensions if (lengths := torus_lengths(num_nodes, number))), ())
        return replace(self, torus=found)


def torus_lengths(num_nodes: int, num_dimensions: int) -> tuple[int, ...]:
    """The lengths, as equal as there are, of a torus of so many nodes; empty where there is none."""
    if num_dimensions == 1:
        return (num_nodes,) if num_nodes > 1 else ()
    fitting = (length for length in check.divisors(num_nodes) if 1 < length <= round(num_nodes ** (1 / num_dimensions)))
    splits = ((length, *torus_lengths(num_nodes // length, num_dimensions - 1)) for length in fitting)
    whole = (lengths for lengths in splits if len(lengths) == num_dimensions)
    return min(whole, key=lambda lengths: (max(lengths), sum(lengths)), default=())
