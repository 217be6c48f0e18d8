"""What was measured of links one by one, and what ails them, in words without full stops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from autotuner.core.jobs.link_health import LinkHealth
from autotuner.core.jobs.link_norm import FEWEST_LINKS, LinkNorm
from autotuner.core.jobs.link_points import LinkPoint, num_ends
from autotuner.units import format_bytes, format_rate, format_seconds

__all__ = ["health_said", "link_name", "links_compared", "links_in_brief", "links_judged"]


def link_name(health: LinkHealth, *, between_nodes: bool) -> str:
    """The link: ``nodes 2 and 3``, or all of its class."""
    if health.ends is not None:
        return f"{_ends(between_nodes)} {health.ends[0]} and {health.ends[1]}"
    return "all links between nodes" if health.link_class == "inter_node" else "all links within a node"


def health_said(health: LinkHealth, *, between_nodes: bool) -> str:
    """One link: ``nodes 2 and 3: 30 ms late (± 1.2 ms), measured 2026-11-22``."""
    found = ", ".join(_ailments(health)) or "healthy"
    return f"{link_name(health, between_nodes=between_nodes)}: {found}, {health.source or 'assumed'}"


def links_in_brief(health: Sequence[LinkHealth], *, between_nodes: bool) -> str:
    """What ails links, as roughly as one day is like the next: ``nodes 2 and 3: 60 ms late``; empty of healthy ones."""
    rough = [
        replace(one, delay_s=_rounded(one.delay_s), jitter_s=0.0, bandwidth_bytes_per_s=_rate(one)) for one in health
    ]
    said = (
        f"{link_name(one, between_nodes=between_nodes)}: {', '.join(_ailments(one))}"
        for one in rough
        if not one.is_healthy
    )
    return "; ".join(said)


def _rounded(value: float) -> float:
    """To one digit: what differs by less differs from measurement to measurement."""
    return float(f"{value:.1g}")


def _rate(health: LinkHealth) -> float | None:
    return None if health.bandwidth_bytes_per_s is None else _rounded(health.bandwidth_bytes_per_s)


def links_compared(points: Sequence[LinkPoint], *, between_nodes: bool) -> str:
    """Which links were measured, what they typically reach, and what would not be healthy; empty where none was."""
    if not points:
        return ""
    ends, what = num_ends(points), _ends(between_nodes)
    all_pairs = ends * (ends - 1) // 2
    if len(points) < all_pairs:
        which = f"{len(points)} of {all_pairs} links between {ends} {what}, neighbours in a ring and a sample"
    else:
        which = f"{len(points)} link{'' if len(points) == 1 else 's'} between {ends} {what}"
    norm = LinkNorm.of(points)
    if norm is None:
        (first, *_) = points
        about = f"{format_seconds(first.delay_s)} one way and {format_rate(first.bandwidth_bytes_per_s, 'B/s')}"
        return f"{which}: {about}; fewer than {FEWEST_LINKS} have too few others to be compared with"
    return (
        f"{which}: typically {format_seconds(norm.delay_s)} one way and "
        f"{format_rate(norm.bandwidth_bytes_per_s, 'B/s')}; unhealthy beyond {format_seconds(norm.most_delay_s)} or "
        f"below {format_rate(norm.least_bytes_per_s, 'B/s')}"
    )


def links_judged(health: Sequence[LinkHealth], points: Sequence[LinkPoint], *, between_nodes: bool) -> list[str]:
    """A line for each link that is not healthy, or one that says that all are; none where none could be compared."""
    norm = LinkNorm.of(points)
    if norm is None:
        return []
    if not health and any(norm.is_late(point) or norm.is_narrow(point) for point in points):
        measured = f"measured between {num_ends(points)} {_ends(between_nodes)}"
        return [f"{measured}; there are others now, of which it says nothing"]
    return [health_said(each, between_nodes=between_nodes) for each in health] or ["no link is unhealthy"]


def _ailments(health: LinkHealth) -> Iterator[str]:
    if health.is_dead:
        yield "dead"
    if health.delay_s:
        jitter = f" (± {format_seconds(health.jitter_s)})" if health.jitter_s else ""
        yield f"{format_seconds(health.delay_s)} late{jitter}"
    elif health.jitter_s:
        yield f"± {format_seconds(health.jitter_s)}"
    if health.bandwidth_bytes_per_s is not None:
        yield f"{format_bytes(health.bandwidth_bytes_per_s)}/s"


def _ends(between_nodes: bool) -> str:
    return "nodes" if between_nodes else "accelerators"
