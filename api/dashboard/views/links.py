"""Links and faults, as pages show them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from markupsafe import Markup

from api.dashboard.charts.fault_strip import fault_strip
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.link import LinkHealth, latest
from autotuner.core.units import format_rate, format_seconds
from autotuner.report.drawing import for_both
from autotuner.search.text.links import trace_in_words

# Links that are not healthy, and what befalls links in the course of a run, as pages show them.

_CLASSES = {"intra_node": "within nodes", "inter_node": "between nodes"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRow:
    """One link that is not healthy, by column; a dash where the cluster's own word holds."""

    name: str
    delay: str
    bandwidth: str
    is_dead: bool

    @classmethod
    def of_all(cls, links: Iterable[LinkHealth]) -> tuple[Self, ...]:
        """Of several of one link the last counts."""
        return tuple(map(cls._of, latest(links)))

    @classmethod
    def _of(cls, link: LinkHealth) -> Self:
        jitter = f" ± {format_seconds(link.jitter_s)}" if link.jitter_s else ""
        rate = link.bandwidth_bytes_per_s
        return cls(
            name=str(link) if link.ends else _CLASSES[str(link.link_class)],
            delay=f"{format_seconds(link.delay_s)}{jitter}" if link.delay_s or jitter else "–",
            bandwidth="–" if rate is None else format_rate(rate, "B/s"),
            is_dead=link.is_dead,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceView:
    """A fault trace, drawn and in words."""

    picture: Markup
    words: str


def trace_view(trace: FaultTrace | None, wide: int) -> TraceView | None:
    """The trace drawn so wide, and for a phone; None where there is none."""
    if trace is None:
        return None
    picture = for_both(lambda width: fault_strip(trace, width), wide=wide)
    return TraceView(picture=picture, words=trace_in_words(trace))
