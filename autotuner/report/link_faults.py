"""Slow and failing links of a sweep: a table, and the fault trace as a picture with one lane for each link."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from autotuner.core.fault_trace import FaultTrace
from autotuner.core.link import LinkEnds, LinkHealth, latest
from autotuner.core.sweep import SweepRequest
from autotuner.report.charts import Axis, Drawing
from autotuner.report.drawing import Scale, for_both, hatched, line, picture, rect, text
from autotuner.report.links import trace_in_words
from autotuner.report.report import Block, Cells, Column, Lines, Quantity, Section, Table
from autotuner.report.words import link_state, sentence

_LEFT, _RIGHT, _TOP, _BOTTOM = 56.0, 10.0, 4.0, 34.0
_LANE, _GAP = 18.0, 6.0
_MOST_LANES = 12
"""Maximum number of links drawn; the links with the earliest faults come first."""


def slow_links(request: SweepRequest, wide: int = 620) -> Section | None:
    """Return a section on the slow links of a sweep's cluster and on its fault trace; None if no link has a fault.

    Args:
        request: The request of the sweep.
        wide: Width in pixels of the trace's picture on a wide screen.
    """
    trace, links = request.fault_trace, latest(request.job.cluster.link_health)
    if trace is None and not links:
        return None
    blocks: list[Block] = []
    if trace is not None:
        blocks += [FaultStrip(trace=trace, wide=wide), Lines(items=(sentence(trace_in_words(trace)),), is_quiet=True)]
    columns = (Column("link", is_number=False), Column("delay"), Column("bandwidth"), Column("dead", is_number=False))
    if links:
        rows = [_row(link) for link in links]
        blocks.append(Table(columns=columns, rows=rows, name="Link health of the cluster", is_compact=True))
    note = (
        "Ranked by robust MFU, which is the MFU of a layout over all steps of the trace, including the time to plan "
        "the schedule anew. Healthy MFU is measured on the steps before the trace. The pictures below also show "
        "robust MFU."
    )
    if trace is None:
        note = "Trials run with these delays, and predictions include them."
    title = "Degraded links" if trace is None else "Links that fail"
    return Section(title=title, id="links", note=note, blocks=blocks)


_CLASSES = {"intra_node": "within nodes", "inter_node": "between nodes"}


def _row(link: LinkHealth) -> Sequence[Cells]:
    delay = Quantity(value=link.delay_s, unit="s", low=link.delay_s - link.jitter_s, high=link.delay_s + link.jitter_s)
    rate = None if link.bandwidth_bytes_per_s is None else Quantity(value=link.bandwidth_bytes_per_s, unit="bytes/s")
    name = str(link) if link.ends else _CLASSES[str(link.link_class)]
    return (name, delay if link.delay_s or link.jitter_s else None, rate, "dead" if link.is_dead else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultStrip(Drawing):
    """A picture of a fault trace: a row for each link, with boxes at the steps where the link is slow or dead."""

    trace: FaultTrace
    wide: int

    @property
    def look(self) -> str:
        """CSS class of the box around the picture, for the style sheet of pages."""
        return "strip-of-faults"

    @property
    def drawn(self) -> Markup:
        """The picture as SVG markup, drawn for a wide screen and for a phone."""
        return for_both(lambda width: _drawn(self.trace, width), wide=self.wide)


def _drawn(trace: FaultTrace, width: int) -> Markup:
    ends = trace.ends[:_MOST_LANES]
    x = Scale(Axis(title="", low=0.0, high=trace.num_steps), _LEFT, width - _RIGHT)
    height = _TOP + len(ends) * (_LANE + _GAP) + _BOTTOM
    parts = [*_axis(x, height)]
    for number, link in enumerate(ends):
        y = _TOP + number * (_LANE + _GAP)
        parts.append(text(_LEFT - 8, y + _LANE / 2 + 4, f"{link[0]}_{link[1]}", "lane-label", "end"))
        parts.append(rect(_LEFT, y, x.end - _LEFT, _LANE, "track"))
        for health, first, last in _pieces(trace, link):
            parts.extend(_piece(health, x(first), x(last), y))
    return picture(width, height, parts, _label(trace))


def _pieces(trace: FaultTrace, link: LinkEnds) -> Iterator[tuple[LinkHealth, int, int]]:
    """Yield each fault of one link, with its first step and the step before which it ends."""
    own = [fault for fault in trace.faults if fault.health.ends == link]
    steps = [*(fault.step for fault in own[1:]), trace.num_steps]
    for fault, until in zip(own, steps, strict=True):
        if not fault.health.is_healthy and until > fault.step:
            yield fault.health, fault.step, until


def _piece(health: LinkHealth, left: float, right: float, y: float) -> Iterator[Markup]:
    """Draw one fault as a box; the box of a dead link is hatched, so that it can be recognised without its colour."""
    if health.is_dead:
        yield hatched(left, y, right - left, _LANE, "dead-link")
    else:
        yield rect(left, y, right - left, _LANE, "late-link")
    said = link_state(health)
    if right - left > 7 * len(said) + 6:
        yield text(
            (left + right) / 2, y + _LANE / 2 + 4, said, "ink-text halo" if health.is_dead else "on-late", "middle"
        )


def _axis(x: Scale, height: float) -> Iterator[Markup]:
    floor = height - _BOTTOM
    for mark, _ in x.ticks(max(2, int((x.end - x.start) / 70))):
        if mark == int(mark):
            yield line(x(mark), _TOP, x(mark), floor, "rule")
            yield text(x(mark), floor + 13, f"{mark:g}", anchor="middle" if mark else None)
    yield text((x.start + x.end) / 2, height - 4, "step under the trace", anchor="middle")


def _label(trace: FaultTrace) -> str:
    links = ", ".join(f"{low}_{high}" for low, high in trace.ends)
    return f"Fault trace over {trace.num_steps} steps: faults of links {links or '(none)'}."
