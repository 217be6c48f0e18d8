"""Pictures of a cluster: the switches above its nodes, and the accelerators of one node with the links between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, groupby, pairwise, product
from math import ceil, prod
from operator import mul

from markupsafe import Markup

from autotuner.core.cluster import Cluster
from autotuner.core.network import Groups, Network, PathKind, Wiring
from autotuner.core.units import format_rate
from autotuner.report.charts import Limits, Topology
from autotuner.report.drawing import circle, element, for_both, line, picture, rect, text
from autotuner.report.words import listed

# The switches above a cluster's nodes, tier by tier, or its torus; what limits a layout stands out.
# A bar is a switch and spans the boxes below it; lines into it are links from the tier below. Of many switches and
# nodes the first are drawn, and the words above each row say how many there are.

_LABEL, _BAR, _LINKS = 18.0, 22.0, 20.0
"""Heights in pixels of a row's words, of its bars, and of the lines below the bars."""

_LETTER = 6.6
"""Approximate width of a letter in pixels."""

_LEAST = 3.0
"""Shortest piece of a line in pixels that is visible as a line."""

_HALF = 560
"""Width of each picture in pixels on a wide screen, where two pictures stand side by side."""

_NODE_GAP, _SWITCH_GAP = 5.0, 14.0
_NARROW = 500

_TORUS_ACROSS, _TORUS_DOWN, _TORUS_STEP = 8, 4, 40.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One row of the picture: the switches of one tier, or the nodes."""

    words: str
    """Name and number of the switches or nodes."""
    rate: str = ""
    """Bandwidth of one rank on the links that leave the row upwards; empty if no links leave it."""
    links: str = ""
    """Name of the links that leave the row."""
    fan: int = 1
    """Number of this row's boxes that are drawn below each box of the row above."""
    is_thin: bool = False
    """True if the switches have less bandwidth upwards than downwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Words:
    """A label beside lines, and the space that it covers."""

    words: str
    x: float
    """Horizontal position at which the label begins or ends."""
    y: float
    """Vertical position of the label's base line."""
    look: str = ""
    is_at_end: bool = False

    @property
    def drawn(self) -> Markup:
        """Return the label as markup."""
        return text(self.x, self.y, self.words, self.look, "end" if self.is_at_end else None)

    @property
    def rows(self) -> tuple[float, float]:
        """Return the vertical positions of the top and the bottom of the label's letters."""
        return self.y - 12, self.y + 4

    def covers(self, x: float) -> bool:
        """Return True if the label covers this horizontal position."""
        width = _LETTER * len(self.words)
        return self.x - width < x if self.is_at_end else x < self.x + width


def draw_topology(topology: Topology) -> Markup:
    """Return pictures of the network between the nodes and of one node, as far as the cluster describes them."""
    cluster, limits, shown = topology.cluster, topology.limits, []
    if cluster.network is not None and cluster.num_nodes > 1:
        shown.append((partial(_network, cluster, limits), "The network between the nodes"))
    if cluster.wiring is not None:
        shown.append((partial(_node, cluster, cluster.wiring, limits), "Inside a node"))
    figures = (
        element("figure", for_both(draw, _HALF), element("figcaption", words, class_="quiet")) for draw, words in shown
    )
    return element("div", *figures, class_="topology")


def _network(cluster: Cluster, limits: Limits, width: int) -> Markup:
    """Return the picture of the cluster's network: the tiers of its switches, or its torus."""
    network = cluster.network or Network(name="one switch")
    if network.torus:
        return _torus(cluster, network, limits, width)
    rows = list(_rows(cluster, network, width))
    height = len(rows) * (_LABEL + _BAR) + (len(rows) - 1) * _LINKS + 2
    label = f"The network {network.name}: {'; '.join(row.words for row in rows)}."
    return picture(width, height, _drawn(rows, limits, width), label)


# ---------------------------------------------------------------- tiers of switches
def _rows(cluster: Cluster, network: Network, width: int) -> Iterator[_Row]:
    """Yield the rows of the picture, from the highest switches down to the nodes."""
    thinner = accumulate((tier.oversubscription for tier in network.tiers), mul)
    used = [pair for pair in zip(network.tiers, thinner, strict=True) if pair[0].nodes_per_switch < cluster.num_nodes]
    above = network.tiers[len(used)].name if len(used) < len(network.tiers) else "one switch" if not used else "above"
    yield _Row(words=f"{above}: joins all {cluster.num_nodes:,} nodes" if used or network.tiers else "one switch")
    fans, port = _fans(cluster, [tier.nodes_per_switch for tier, _ in used], width), _port_rate(cluster)
    for (tier, thin), fan in zip(reversed(used), fans, strict=False):
        count = ceil(cluster.num_nodes / tier.nodes_per_switch)
        rails = f" for each of {network.num_rails} rails" if network.num_rails > 1 and tier is network.tiers[0] else ""
        passes = "" if tier.oversubscription == 1 else f"passes up 1/{tier.oversubscription:g}: "
        yield _Row(
            words=f"{tier.name}: {_counted(count, 'switch', 'switches')}{rails}, {tier.nodes_per_switch:,} nodes each",
            rate=f"{passes}{format_rate(port / thin, 'B/s')} a rank",
            links=f"{tier.name} uplinks",
            fan=fan,
            is_thin=tier.oversubscription > 1,
        )
    accelerator, link = cluster.accelerator.name, cluster.inter_node_link
    yield _Row(
        words=f"{_counted(cluster.num_nodes, 'node', 'nodes')} of {cluster.accelerators_per_node} {accelerator}",
        rate=f"{link.name}: {format_rate(port, 'B/s')} a rank",
        links=link.name,
        fan=fans[-1],
    )


def _counted(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _port_rate(cluster: Cluster) -> float:
    """Return the bandwidth of one rank at its node's ports while all ranks of the node send."""
    ports = cluster.network.ports_per_node if cluster.network else None
    share = min(1.0, ports / cluster.accelerators_per_node) if ports else 1.0
    return cluster.inter_node_link.bandwidth_bytes_per_s * share


def _fans(cluster: Cluster, sizes: list[int], width: int) -> list[int]:
    """Return how many boxes to draw below each box, from the highest switches down: all of them, or the first few."""
    most_nodes = 2 if width < _NARROW else 4
    whole = [1, *sizes, cluster.num_nodes]
    there = [ceil(above / below) for below, above in pairwise(whole)][::-1]
    few = [2] * (len(there) - 1) if len(there) > 2 else [most_nodes] * (len(there) - 1)
    if len(there) == 1:
        few, most_nodes = [], 2 * most_nodes
    return [min(count, most) for count, most in zip(there, [*few, most_nodes], strict=True)]


def _drawn(rows: Sequence[_Row], limits: Limits, width: float) -> Iterator[Markup]:
    """Draw the words and boxes of every row, and the lines to the row above."""
    boxes, y = [(0.0, float(width))], 0.0
    for depth, row in enumerate(rows):
        words = _Words(words=row.words, x=0.0, y=y + 12, look="ink-text")
        if depth:
            boxes = [part for left, right in boxes for part in _split(left, right, row.fan, depth == len(rows) - 1)]
            limited = limits.get(row.links, ())
            rate = _rate(row, limited, y + 12, width)
            yield from _lines(boxes, y - _LINKS, y + _LABEL, row, (words, rate), limits=bool(limited))
            yield rate.drawn
        yield words.drawn
        for left, right in boxes:
            yield rect(left, y + _LABEL, right - left, _BAR, "node" if depth == len(rows) - 1 else "span odd", radius=4)
        y += _LABEL + _BAR + _LINKS


def _split(left: float, right: float, count: int, is_node: bool) -> Iterator[tuple[float, float]]:
    gap = _NODE_GAP if is_node else _SWITCH_GAP
    size = (right - left - gap * (count - 1)) / count
    return ((left + place * (size + gap), left + place * (size + gap) + size) for place in range(count))


def _lines(
    boxes: list[tuple[float, float]], above: float, below: float, row: _Row, words: Sequence[_Words], *, limits: bool
) -> Iterator[Markup]:
    """Draw a line upwards from each box, interrupted where a label is in the way."""
    look = "limit-tick" if limits else "event" if row.is_thin else "axis"
    for left, right in boxes:
        middle, start = (left + right) / 2, above
        for top, bottom in sorted(one.rows for one in words if one.covers(middle)):
            if top > start + _LEAST:
                yield line(middle, start, middle, top, look)
            start = max(start, bottom)
        if below > start + _LEAST:
            yield line(middle, start, middle, below, look)


def _rate(row: _Row, limited: Sequence[str], y: float, width: float) -> _Words:
    """Return the label with the bandwidth that leaves the row, at the right, or one line higher if there is no room.

    It names the collectives that this bandwidth limits.
    """
    said = row.rate if not limited else f"{row.rate}, limits {listed(limited)}"
    look = "bad-text" if limited else ""
    return _Words(words=said, x=width, y=y - (_LABEL - 2 if width < _NARROW else 0), look=look, is_at_end=True)


# ---------------------------------------------------------------- a torus
def _torus(cluster: Cluster, network: Network, limits: Limits, width: float) -> Markup:
    """Return the picture of a torus: the nodes along its first two dimensions; of more dimensions, one plane."""
    lengths = (*network.torus, 1)[:2]
    across = min(lengths[0], _TORUS_ACROSS, int((width - 40) / _TORUS_STEP))
    down = min(lengths[1], _TORUS_DOWN)
    limited = [axis for name, axes in limits.items() if "torus" in name for axis in axes]
    words = f"torus of {' × '.join(map(str, network.torus))} nodes of {cluster.accelerators_per_node}"
    rate = f"{format_rate(_port_rate(cluster), 'B/s')} a rank over all links of its node"
    beside = f", one plane of {prod(network.torus[2:])} shown" if len(network.torus) > 2 else ""
    shown = [text(0, 12, f"{words}{beside}", "ink-text"), text(0, 28, rate)]
    if limited:
        shown.append(text(0, 44, f"limits {listed(limited)}", "bad-text"))
    top = 36.0 + 16.0 * bool(limited)
    look = "limit-tick" if limited else "axis"
    places = product(range(down), range(across))
    spots = [(20 + column * _TORUS_STEP, top + 20 + row * _TORUS_STEP) for row, column in places]
    for x, y in spots:
        shown.append(line(x - 20, y, x + 20, y, look))
        if lengths[1] > 1:
            shown.append(line(x, y - 20, x, y + 20, look))
    shown.extend(circle(x, y, 6, "p-dot") for x, y in spots)
    beyond = [f"{length} nodes along dimension {place}" for place, length in enumerate(network.torus, 1)]
    return picture(width, top + down * _TORUS_STEP + 4, shown, f"A {words}: {', '.join(beyond)}.")


# The accelerators of a node and what joins them: NVLink, PCIe switches, sockets, and the ports that are nearest.

_WIDEST = 56.0
_GAP = 6.0
_BOX, _NODE_LABEL, _MARKS, _PORT_STEP = 26.0, 18.0, 14.0, 14.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Joined:
    """A row of links or switches that connect groups of accelerators."""

    words: str
    """Words above the groups."""
    groups: Groups
    """The groups of accelerators that the row connects."""
    look: str
    """CSS class of the row's lines."""
    limited: Sequence[str] = ()
    """Axes of a layout that the row limits."""


def _node(cluster: Cluster, wiring: Wiring, limits: Limits, width: int) -> Markup:
    """Return the picture of one node, since all nodes are alike."""
    size = cluster.accelerators_per_node
    step = min(_WIDEST, (width + _GAP) / size)
    middles = [(place + 0.5) * step - _GAP / 2 for place in range(size)]
    shown: list[Markup] = []
    y = 0.0
    for row in _above(cluster, wiring, limits):
        shown.extend(_node_drawn(row, middles, y))
        y += _NODE_LABEL + _MARKS
    for place, middle in enumerate(middles):
        shown.append(rect(middle - (step - _GAP) / 2, y, step - _GAP, _BOX, "node", radius=4))
        shown.append(text(middle, y + 17, str(place), "ink-text", "middle"))
    y += _BOX + 4
    for row in _below(cluster, wiring, limits):
        shown.extend(_node_drawn(row, middles, y))
        y += _NODE_LABEL + _MARKS
    shown.extend(_ports(cluster, wiring, middles, y))
    label = f"A node of {size} accelerators: {'; '.join(row.words for row in _all(cluster, wiring))}."
    return picture(width, y + (_NODE_LABEL + _MARKS if wiring.ports else 2), shown, label)


def _all(cluster: Cluster, wiring: Wiring) -> Iterator[_Joined]:
    yield from _above(cluster, wiring, {})
    yield from _below(cluster, wiring, {})


def _above(cluster: Cluster, wiring: Wiring, limits: Limits) -> Iterator[_Joined]:
    link = cluster.intra_node_link
    if wiring.nvlink_groups:
        rate = format_rate(link.bandwidth_bytes_per_s, "B/s")
        limited = _of(limits, link.name)
        yield _Joined(words=f"{link.name}: {rate}", groups=wiring.nvlink_groups, look="way own", limited=limited)


def _below(cluster: Cluster, wiring: Wiring, limits: Limits) -> Iterator[_Joined]:
    everyone = tuple(range(cluster.accelerators_per_node))
    if wiring.switches:
        words = f"PCIe switches: {_node_rate(cluster, PathKind.PCIE_SWITCH)} each"
        limited = _of(limits, PathKind.PCIE_SWITCH.in_words)
        yield _Joined(words=words, groups=wiring.switches, look="way", limited=limited)
    if wiring.sockets or not wiring.nvlink_groups:
        between = f", {_node_rate(cluster, PathKind.SOCKETS)} between them" if wiring.sockets else ""
        limited = (*_of(limits, PathKind.SOCKET.in_words), *_of(limits, PathKind.SOCKETS.in_words))
        words = f"sockets or NUMA nodes{between}" if wiring.sockets else "PCIe of one socket"
        yield _Joined(words=words, groups=wiring.sockets or (everyone,), look="way", limited=limited)


def _of(limits: Limits, name: str) -> Sequence[str]:
    return limits.get(name, ())


def _node_rate(cluster: Cluster, path: PathKind) -> str:
    return format_rate(cluster.wired_link(path).bandwidth_bytes_per_s, "B/s")


def _node_drawn(row: _Joined, middles: Sequence[float], y: float) -> Iterator[Markup]:
    """Draw the words of a row, and for each group a line with a dot for each member."""
    said = f"{row.words}, limits {listed(row.limited)}" if row.limited else row.words
    yield text(0, y + 12, said, "bad-text" if row.limited else "")
    at = y + _NODE_LABEL + 4
    for group in row.groups:
        places = [middles[each] for each in group]
        yield line(min(places) - 4, at, max(places) + 4, at, "limit-tick" if row.limited else row.look)
        yield from (circle(place, at, 3.5, "m-dot bad" if row.limited else "m-dot") for place in places)


def _ports(cluster: Cluster, wiring: Wiring, middles: Sequence[float], y: float) -> Iterator[Markup]:
    """Draw each port below the accelerators that it is nearest to; several ports of a group stand side by side."""
    if not wiring.ports:
        return
    rate = format_rate(cluster.inter_node_link.bandwidth_bytes_per_s, "B/s")
    number = f"{len(wiring.ports)} ports" if len(wiring.ports) > 1 else "one port"
    yield text(0, y + 12, f"{number}, each drawn below its nearest accelerators: {rate}")
    for near, ports in groupby(wiring.ports, key=lambda port: port.nearest):
        beside = list(ports)
        middle = sum(middles[each] for each in near) / len(near) if near else middles[0]
        for place, port in enumerate(beside):
            x = middle + _PORT_STEP * (place - (len(beside) - 1) / 2)
            yield circle(x, y + _NODE_LABEL + 4, 4, "p-dot", title=port.name)
