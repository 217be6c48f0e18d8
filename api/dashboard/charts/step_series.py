"""The times of a trial's steps one by one: those to warm up, the median and its interval, and what befell the links."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from markupsafe import Markup

from api.dashboard.charts.drawing import (
    Scale,
    SecondsUnit,
    circle,
    element,
    for_both,
    hatched,
    line,
    picture,
    rect,
    text,
    written,
)
from api.dashboard.charts.spread import Spread
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.link import LinkEnds, LinkHealth
from autotuner.core.measurement import LinkEvent, RobustMeasurement, StepReport
from autotuner.core.units import format_rate, format_seconds
from autotuner.search.text.links import event_in_words

# What befalls links in the course of a run: steps across, a lane per link, late and dead stretches marked.

_STRIP_LEFT, _STRIP_RIGHT, _STRIP_TOP, _STRIP_BOTTOM = 56.0, 10.0, 4.0, 34.0
_LANE, _GAP = 18.0, 6.0
_MOST_LANES = 12
"""Of more links, those that something befalls first are drawn."""


def fault_strip(trace: FaultTrace, width: int) -> Markup:
    """The trace, so wide."""
    ends = trace.ends[:_MOST_LANES]
    x = Scale(0, trace.num_steps, _STRIP_LEFT, width - _STRIP_RIGHT)
    height = _STRIP_TOP + len(ends) * (_LANE + _GAP) + _STRIP_BOTTOM
    parts = [*_axis(x, height)]
    for number, link in enumerate(ends):
        y = _STRIP_TOP + number * (_LANE + _GAP)
        parts.append(text(_STRIP_LEFT - 8, y + _LANE / 2 + 4, f"{link[0]}_{link[1]}", "lane-label", "end"))
        parts.append(rect(_STRIP_LEFT, y, x.end - _STRIP_LEFT, _LANE, "track"))
        for health, first, last in _pieces(trace, link):
            parts.extend(_piece(health, x(first), x(last), y))
    return picture(width, height, parts, _label(trace))


def state_of_link(health: LinkHealth) -> str:
    """Return the fault of a link, in a word: ``60 ms``, ``25 MB/s``, ``dead``."""
    if health.is_dead:
        return "dead"
    if health.bandwidth_bytes_per_s is not None:
        return format_rate(health.bandwidth_bytes_per_s, "B/s")
    return format_seconds(health.delay_s)


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
    said = state_of_link(health)
    if right - left > 7 * len(said) + 6:
        yield text(
            (left + right) / 2, y + _LANE / 2 + 4, said, "ink-text halo" if health.is_dead else "on-late", "middle"
        )


def _axis(x: Scale, height: float) -> Iterator[Markup]:
    floor = height - _STRIP_BOTTOM
    for mark in x.marks(max(2, int((x.end - x.start) / 70))):
        if mark == int(mark):
            yield line(x(mark), _STRIP_TOP, x(mark), floor, "rule")
            yield text(x(mark), floor + 13, f"{mark:g}", None, "middle" if mark else None)
    yield text((x.start + x.end) / 2, height - 4, "step under the trace", None, "middle")


def _label(trace: FaultTrace) -> str:
    links = ", ".join(f"{low}_{high}" for low, high in trace.ends)
    return f"Fault trace over {trace.num_steps} steps: what befalls links {links or 'is nothing'}."


_HEIGHT = 180.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 12.0, 22.0, 36.0
_MOST = 400
"""Steps drawn; of more, every n-th is: a picture has no more columns of pixels than that."""


def step_series(
    steps: Sequence[StepReport],
    median: Spread | None,
    *,
    robust: RobustMeasurement | None = None,
    events: Sequence[LinkEvent] = (),
) -> Markup:
    """The steps for a desk and for a phone; there is one at least.

    Args:
        steps: In order; those under a fault trace come last.
        median: Of the healthy ones that count.
        robust: What those under the trace came to, stretch by stretch.
        events: What the pipeline found out and did about it.
    """
    shown = steps[:: -(-len(steps) // _MOST)]
    return for_both(lambda width: _drawn(shown, median, robust, events, width), wide=632)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Space:
    """Where things lie."""

    x: Scale
    y: Scale
    unit: SecondsUnit
    width: int

    @classmethod
    def of(cls, steps: Sequence[StepReport], median: Spread | None, width: int) -> Self:
        times = [report.step_time_s for report in steps] + ([median.low, median.high] if median else [])
        low, high = min(times), max(times)
        room = 0.08 * (high - low) or 0.02 * high
        above = room + 0.18 * (high - low) * any(report.is_under_trace for report in steps)  # for what befalls links
        return cls(
            x=Scale(steps[0].step, steps[-1].step, _LEFT + 10, width - _RIGHT),
            y=Scale(low - room, high + above, _HEIGHT - _BOTTOM, _TOP),
            unit=SecondsUnit.of(high),
            width=width,
        )


def _drawn(
    steps: Sequence[StepReport],
    median: Spread | None,
    robust: RobustMeasurement | None,
    events: Sequence[LinkEvent],
    width: int,
) -> Markup:
    space = _Space.of(steps, median, width)
    warmup = sum(report.is_warmup for report in steps)
    told = f", median {format_seconds(median.value)}" if median else ""
    traced = sum(report.is_under_trace for report in steps)
    under = f", {traced} under the fault trace" if traced else ""
    found = f"; {len(events)} events of its links" if events else ""
    label = f"Times of {len(steps)} steps, {warmup} of them to warm up{under}{told}{found}"
    parts = [*_axes(space), *_stretches(steps, robust, space), *_parts(steps, median, space), *_events(events, space)]
    return picture(width, _HEIGHT, parts, label)


def _parts(steps: Sequence[StepReport], median: Spread | None, space: _Space) -> Iterator[Markup]:
    yield from _warmup(steps, space)
    if median is not None:
        yield from _median(steps, median, space)
    for report in steps:
        class_ = "m-dot soft" if report.is_warmup else "m-dot"
        title = f"step {report.step + 1}: {format_seconds(report.step_time_s)}"
        yield circle(space.x(report.step), space.y(report.step_time_s), 3.0, class_, title=title)


def _axes(space: _Space) -> Iterator[Markup]:
    per_unit = space.unit.seconds
    in_units = Scale(space.y.low / per_unit, space.y.high / per_unit, space.y.start, space.y.end)
    yield text(8, 12, space.unit.name)
    for mark in in_units.marks(4):
        yield line(_LEFT, in_units(mark), space.width - _RIGHT, in_units(mark), "rule")
        yield text(_LEFT - 8, in_units(mark) + 4, f"{mark:g}", anchor="end")
    numbers = Scale(space.x.low + 1, space.x.high + 1, space.x.start, space.x.end)
    for mark in numbers.marks(6):
        if mark == int(mark):
            yield text(numbers(mark), _HEIGHT - _BOTTOM + 16, f"{mark:g}", anchor="middle")
    yield text((_LEFT + space.width) / 2, _HEIGHT - 4, "step", anchor="middle")


def _warmup(steps: Sequence[StepReport], space: _Space) -> Iterator[Markup]:
    """The stretch before times count."""
    last = max((report.step for report in steps if report.is_warmup), default=None)
    if last is None:
        return
    right = min(space.x(last + 0.5), space.width - _RIGHT) if len(steps) > 1 else space.width - _RIGHT
    yield rect(_LEFT, _TOP, right - _LEFT, _HEIGHT - _BOTTOM - _TOP, "band")
    if right - _LEFT > 60:
        yield text(_LEFT + 8, _HEIGHT - _BOTTOM - 8, "warm-up")


def _median(steps: Sequence[StepReport], median: Spread, space: _Space) -> Iterator[Markup]:
    """The interval as a band over the steps that count, the median through it."""
    first = next((report.step for report in steps if not report.is_warmup), steps[0].step)
    last = max((report.step for report in steps if not report.is_under_trace), default=steps[-1].step)
    is_whole = last == steps[-1].step
    left, right = space.x(first) - 6, space.width - _RIGHT + 4 if is_whole else space.x(last) + 6
    top, bottom = space.y(median.high), space.y(median.low)
    yield rect(left, top, right - left, bottom - top, "p-band")
    yield line(left, space.y(median.value), right, space.y(median.value), "m-line")
    half_s = median.high - median.value
    spread = f" ± {format_seconds(half_s)}" if half_s else ""
    said = f"median {format_seconds(median.value)}{spread}"
    yield text(right if is_whole else left, max(top - 7, 12), said, "halo strong", "end" if is_whole else None)


def _stretches(steps: Sequence[StepReport], robust: RobustMeasurement | None, space: _Space) -> Iterator[Markup]:
    """The stretches of the trace in which some link is not healthy, shaded, and the mean over all of it."""
    first = next((report.step for report in steps if report.is_under_trace), None)
    if robust is None or first is None:
        return
    for stretch in robust.stretches:
        left = space.x(first + stretch.first_step - 0.5)
        right = min(space.x(first + stretch.first_step + len(stretch.step_times_s) - 0.5), space.width - _RIGHT)
        if stretch.links:
            is_dead = any(link.is_dead for link in stretch.links)
            yield rect(left, _TOP, right - left, _HEIGHT - _BOTTOM - _TOP, "dead-link" if is_dead else "late-link")
            said = ", ".join(f"{link} {state_of_link(link)}" for link in stretch.links[:2])
            if right - left > 6 * len(said):
                yield text((left + right) / 2, _TOP + 13, said, "ink-text", "middle")
    y = space.y(robust.step_time_s)
    yield line(space.x(first - 0.5), y, space.width - _RIGHT, y, "m-line")
    said = f"mean under the trace {format_seconds(robust.step_time_s)}"
    yield text(space.width - _RIGHT, 12, said, "halo strong", "end")


def _events(events: Sequence[LinkEvent], space: _Space) -> Iterator[Markup]:
    """A mark on the axis at each; those of one step share a mark."""
    floor = _HEIGHT - _BOTTOM
    by_step: dict[int, list[str]] = {}
    for event in events:
        by_step.setdefault(event.step, []).append(", ".join(word for word in event_in_words(event) if word))
    for step, said in by_step.items():
        x = space.x(step)
        if space.x.start - 1 <= x <= space.x.end + 1:
            told = element("title", f"step {step + 1}: {'; '.join(said)}")
            yield line(x, _TOP, x, floor, "event")
            yield element("path", told, d=f"M{written(x)} {written(floor)}l4 -7h-8z", class_="event-mark")
