"""Links that were measured one by one: a line for each, and which of them are not healthy."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from autotuner.core.cluster import Cluster
from autotuner.core.link import LinkHealth, LinkPoint, links_compared, links_judged
from autotuner.core.profile import DeviceProfile
from autotuner.core.units import format_rate, format_seconds
from autotuner.report.terminal import plain_table


def links_view(profiles: Sequence[tuple[DeviceProfile, Cluster]]) -> RenderableType:
    """The links of this machine by each of its profiles, beside what predictions then take it for."""
    parts = [
        pairs_view(profile.measurements.links, cluster.link_health, between_nodes=False)
        for profile, cluster in profiles
        if profile.links_measured_at is not None
    ]
    return Group(*parts) if parts else Text("no links were measured; `autotuner profile --links` measures them")


def pairs_view(points: Sequence[LinkPoint], health: Sequence[LinkHealth], *, between_nodes: bool) -> RenderableType:
    """A line for each pair of ends, and in words what is not healthy."""
    if not points:
        return Text("there is one device, and no link to measure")
    table = plain_table("link", "one way", "jitter", "forth", "back", "")
    ailing = {each.ends for each in health}
    for point in points:
        table.add_row(
            f"{point.ends[0]} - {point.ends[1]}",
            format_seconds(point.delay_s),
            format_seconds(point.jitter_s),
            format_rate(point.forth_bytes_per_s, "B/s"),
            format_rate(point.back_bytes_per_s, "B/s"),
            "unhealthy" if point.ends in ailing else "",
        )
    compared = links_compared(points, between_nodes=between_nodes)
    return Group(table, Text(compared), *map(Text, links_judged(health, points, between_nodes=between_nodes)))
