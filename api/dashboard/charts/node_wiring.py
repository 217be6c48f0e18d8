"""The accelerators of a node and what joins them: NVLink, PCIe switches, sockets, and the ports that are nearest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup

from api.dashboard.charts.network import Limits
from api.dashboard.charts.svg import WIDE, circle, line, picture, rect, text
from autotuner.core.cluster import Cluster
from autotuner.core.network import Groups, PathKind, Wiring
from autotuner.core.units import format_rate
from autotuner.search.text.sentences import listed

_WIDEST = 56.0
_GAP = 6.0
_BOX, _LABEL, _MARKS, _PORT_STEP = 26.0, 18.0, 14.0, 14.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Joined:
    """A row of what joins accelerators.

    Attributes:
        words: Above it.
        groups: Who is joined.
        look: Class of its lines.
        limited: Axes of a layout that it limits.
    """

    words: str
    groups: Groups
    look: str
    limited: Sequence[str] = ()


def node_wiring_picture(cluster: Cluster, limits: Limits | None = None, *, width: int = WIDE) -> Markup:
    """The picture of one node: all are alike."""
    wiring = cluster.wiring or _joined_by_one(cluster)
    size = cluster.accelerators_per_node
    step = min(_WIDEST, (width + _GAP) / size)
    middles = [(place + 0.5) * step - _GAP / 2 for place in range(size)]
    shown: list[Markup] = []
    y = 0.0
    for row in _above(cluster, wiring, limits or {}):
        shown.extend(_drawn(row, middles, y))
        y += _LABEL + _MARKS
    for place, middle in enumerate(middles):
        shown.append(rect(middle - (step - _GAP) / 2, y, step - _GAP, _BOX, "node", radius=4))
        shown.append(text(middle, y + 17, str(place), "ink-text", "middle"))
    y += _BOX + 4
    for row in _below(cluster, wiring, limits or {}):
        shown.extend(_drawn(row, middles, y))
        y += _LABEL + _MARKS
    shown.extend(_ports(cluster, wiring, middles, y))
    label = f"A node of {size} accelerators: {'; '.join(row.words for row in _all(cluster, wiring))}."
    return picture(width, y + (_LABEL + _MARKS if wiring.ports else 2), shown, label)


def _joined_by_one(cluster: Cluster) -> Wiring:
    """What is taken where nothing is described: the cluster's link joins all."""
    return Wiring(name="as described", nvlink_groups=(tuple(range(cluster.accelerators_per_node)),))


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
        words = f"PCIe switches: {_rate(cluster, PathKind.PCIE_SWITCH)} each"
        limited = _of(limits, PathKind.PCIE_SWITCH.in_words)
        yield _Joined(words=words, groups=wiring.switches, look="way", limited=limited)
    if wiring.sockets or not wiring.nvlink_groups:
        between = f", {_rate(cluster, PathKind.SOCKETS)} between them" if wiring.sockets else ""
        limited = (*_of(limits, PathKind.SOCKET.in_words), *_of(limits, PathKind.SOCKETS.in_words))
        words = f"sockets or NUMA nodes{between}" if wiring.sockets else "PCIe of one socket"
        yield _Joined(words=words, groups=wiring.sockets or (everyone,), look="way", limited=limited)


def _of(limits: Limits, name: str) -> Sequence[str]:
    return limits.get(name, ())


def _rate(cluster: Cluster, path: PathKind) -> str:
    return format_rate(cluster.wired_link(path).bandwidth_bytes_per_s, "B/s")


def _drawn(row: _Joined, middles: Sequence[float], y: float) -> Iterator[Markup]:
    """Its words, and a line through the members of each group with a dot at each."""
    said = f"{row.words}, limits {listed(row.limited)}" if row.limited else row.words
    yield text(0, y + 12, said, "bad-text" if row.limited else None)
    at = y + _LABEL + 4
    for group in row.groups:
        places = [middles[each] for each in group]
        yield line(min(places) - 4, at, max(places) + 4, at, "limit-tick" if row.limited else row.look)
        yield from (circle(place, at, 3.5, "m-dot bad" if row.limited else "m-dot") for place in places)


def _ports(cluster: Cluster, wiring: Wiring, middles: Sequence[float], y: float) -> Iterator[Markup]:
    """Ports in the middle of the accelerators that they are nearest to, side by side where these have several."""
    if not wiring.ports:
        return
    rate = format_rate(cluster.inter_node_link.bandwidth_bytes_per_s, "B/s")
    number = f"{len(wiring.ports)} ports" if len(wiring.ports) > 1 else "one port"
    yield text(0, y + 12, f"{number}, each below those that it is nearest to: {rate}")
    for near, ports in groupby(wiring.ports, key=lambda port: port.nearest):
        beside = list(ports)
        middle = sum(middles[each] for each in near) / len(near) if near else middles[0]
        for place, port in enumerate(beside):
            x = middle + _PORT_STEP * (place - (len(beside) - 1) / 2)
            yield circle(x, y + _LABEL + 4, 4, "p-dot", title=port.name)
