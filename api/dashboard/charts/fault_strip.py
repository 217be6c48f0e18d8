"""A picture of what befalls links in the course of a run: steps across, a lane per link, late and dead stretches."""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup

from autotuner.core.fault_trace import FaultTrace
from autotuner.core.link import LinkEnds, LinkHealth
from autotuner.report.charts import Axis
from autotuner.report.drawing import Scale, hatched, line, picture, rect, text
from autotuner.report.words import link_state

_LEFT, _RIGHT, _TOP, _BOTTOM = 56.0, 10.0, 4.0, 34.0
_LANE, _GAP = 18.0, 6.0
_MOST_LANES = 12
"""Of more links, those that something befalls first are drawn."""


def fault_strip(trace: FaultTrace, width: int) -> Markup:
    """The trace, so wide."""
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
    """A box; of a dead link hatched, so that it is told apart without its colour."""
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
    return f"Fault trace over {trace.num_steps} steps: what befalls links {links or 'is nothing'}."
