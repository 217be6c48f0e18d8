"""Clusters with their checks, links and networks, as people read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotuner.core import documents
from autotuner.core.cluster import Cluster
from autotuner.core.link import LinkHealth, LinkPoint, health_said, links_compared, links_judged
from autotuner.core.profile import DeviceProfile
from autotuner.core.units import format_rate, format_seconds
from autotuner.report.terminal import plain_table
from autotuner.search.text.topologies import described_said


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


def topology_view(found: Mapping[str, Any]) -> RenderableType:
    """Show what was read of a topology, what it means, and what was assumed."""
    return Group(*map(Text, _lines(found)))


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"read: {', '.join(found['read'])}"
    if found["num_nodes"]:
        is_whole = len(found["nodes"]) == found["num_nodes"]  # of many, the service names the first
        last = found["nodes"][-1:] if is_whole else []
        names = found["nodes"][:3] + (["..."] if found["num_nodes"] > 4 else []) + last
        yield f"{found['num_nodes']} nodes, those below one switch beside each other: {', '.join(dict.fromkeys(names))}"
    if found["num_accelerators"]:
        yield f"{found['num_accelerators']} accelerators per node"
    yield from (f"  {sentence}" for sentence in found["said"])
    yield from (f"note: {note}" for note in found["notes"])


def cluster_table(
    clusters: Sequence[Mapping[str, Any]], checks: Mapping[str, Mapping[str, Any] | None]
) -> RenderableType:
    """A line for each, with its last check."""
    if not clusters:
        return Text("no cluster is stored; `autotuner cluster add NAME --accelerator h100 --nodes 16` stores one")
    table = plain_table("name", "nodes", "per node", "accelerator", "runs on", "last check")
    for one in clusters:
        table.add_row(
            one["name"],
            str(one["num_nodes"]),
            str(one["accelerators_per_node"]),
            one["accelerator"]["name"],
            _engine(one),
            _check(checks.get(one["name"])),
        )
    return table


def cluster_view(
    cluster: Mapping[str, Any], links: Mapping[str, Any], check: Mapping[str, Any] | None
) -> RenderableType:
    """One cluster with its links and the lines of its last check."""
    size = f"{cluster['num_nodes']} nodes of {cluster['accelerators_per_node']} {cluster['accelerator']['name']}"
    head = Text(f"{cluster['name']}: {size}, runs on {_engine(cluster)}")
    said = [Text(f"  {_at(line['at'])} {line['text']}") for line in (check or {}).get("lines", ())]
    one_by_one = _one_by_one(cluster, links)
    topology = map(Text, _topology(cluster))
    return Group(head, Text(""), _links(links), *topology, *one_by_one, Text(f"last check: {_check(check)}"), *said)


def _topology(cluster: Mapping[str, Any]) -> Iterator[str]:
    """What joins nodes and accelerators, where the cluster describes it."""
    if cluster["network"] is None and cluster["wiring"] is None:
        return
    described = documents.restore(Cluster, dict(cluster))
    yield "topology:"
    yield from (f"  {said}" for said in described_said(described))
    yield ""


def _engine(cluster: Mapping[str, Any]) -> str:
    return f"{cluster['engine']}, queue {cluster['queue']}" if cluster["queue"] else str(cluster["engine"])


def _check(check: Mapping[str, Any] | None) -> str:
    if check is None:
        return "never"
    return f"{check['state']}, {_at(check['finished_at'] or check['created_at'])}"


def _at(epoch_s: float) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _links(links: Mapping[str, Any]) -> Table:
    """Bandwidths are what long messages get of a link."""
    table = plain_table("link between", "described as", "bandwidth", "a step", "measured", "a step, measured")
    for each in links["items"]:
        described, measured = each["described"], each["measured"]
        measured_words = _words(measured) if measured else ("-", "-")
        table.add_row(each["between"], described["name"], *_words(described), *measured_words)
    return table


def _one_by_one(cluster: Mapping[str, Any], links: Mapping[str, Any]) -> Iterator[RenderableType]:
    """The pairs as they were last measured, and what ails which link by that or by assumption."""
    points = [documents.restore(LinkPoint, point) for point in links.get("one_by_one", ())]
    health = [documents.restore(LinkHealth, each) for each in links.get("health", ())]
    if points:
        yield pairs_view(points, health, between_nodes=links["one_by_one_nodes"] > 1)
        yield Text(f"measured one by one {_at(links['one_by_one_at'])}")
    else:
        for each in health:
            yield Text(health_said(each, between_nodes=cluster["num_nodes"] > 1))


def _words(link: Mapping[str, Any]) -> tuple[str, str]:
    return format_rate(link["bandwidth_bytes_per_s"] * link["efficiency"], "B/s"), format_seconds(link["latency_s"])
