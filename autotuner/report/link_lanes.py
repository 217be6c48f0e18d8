"""A picture of one step several times on one axis of time: with nominal links, with a slow link, and as measured.

A message over the slow hop is a slanted line from the sender to the receiver, and waits for it stand out. The axis has
no folds, so that a longer step is wider by the same factor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from markupsafe import Markup

from autotuner.core.timeline import RankTimeline, StepTimeline
from autotuner.core.units import format_seconds
from autotuner.report.charts import Axis, Drawing
from autotuner.report.drawing import Scale, divisor, line, picture, rect, text
from autotuner.report.lanes import LEFT, WHOLE, WIDE, Stretch, Window, between, idle, numbers, paths, placed
from autotuner.search.explain.link_timelines import LinkTimelines, Message, SlowHop

_RIGHT, _TOP, _BOTTOM = 12.0, 6.0, 26.0
_HEAD = 24.0
"""Pixels above the lanes of a step, for its name."""

_BETWEEN = 14.0
"""Pixels between two steps."""

_MOST_LANES = 12
"""Maximum number of lanes. Of a deeper pipeline, only the ranks around the slow hops and at both ends are drawn."""

_TALL_LANES = 6
"""Largest number of lanes that are drawn tall."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLanes(Drawing):
    """A picture of one step under nominal and under slow links, one below the other on the same axis of time.

    ``found`` must have a step under slow links.
    """

    found: LinkTimelines
    window: Window = WHOLE
    wide: int = WIDE
    """Width of the picture in pixels."""

    @property
    def look(self) -> str:
        """CSS class of the box around the picture, for the style sheet of pages."""
        return "timeline"

    @property
    def drawn(self) -> Markup:
        """The picture of the two steps as SVG markup, for a page."""
        groups = list(_groups(self.found))
        longest_s = max(group.timeline.step_s for group in groups)
        shared = (self.wide - LEFT - _RIGHT) / (self.window.high - self.window.low)
        start = LEFT - self.window.low * shared
        axis = _Axis(
            Scale(Axis(title="", unit="s", low=0.0, high=longest_s), start, start + shared), self.wide - _RIGHT
        )
        rows = _Rows.of(_ranks_shown(self.found), self.found.hops)
        bottom = _TOP + len(groups) * (rows.height + _BETWEEN) - _BETWEEN
        parts = list(_ticks(axis, bottom))
        for number, group in enumerate(groups):
            parts.extend(_group(group, axis, rows, _TOP + number * (rows.height + _BETWEEN)))
        return picture(self.wide, bottom + _BOTTOM, parts, _label(self.found, groups))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """One drawing of the step in the picture."""

    name: str
    timeline: StepTimeline
    is_measured: bool = False
    marked: Sequence[SlowHop] = ()
    """The hops that are slow in this drawing."""
    messages: Sequence[Message] = ()
    healthy_s: float | None = None
    """End of the step with nominal links in seconds; None in the drawing with nominal links."""


def _groups(found: LinkTimelines) -> Iterator[_Group]:
    yield _Group(name="healthy links, predicted", timeline=found.healthy.timeline)
    if found.slow is not None:
        yield _Group(
            name=f"{_when(found)}, predicted",
            timeline=found.slow.timeline,
            marked=found.hops,
            messages=found.messages,
            healthy_s=found.healthy.timeline.step_s,
        )
    if found.measured is not None:
        slow = found.is_measured_slow
        yield _Group(
            name=f"{_when(found) if slow else 'healthy links'}, measured",
            timeline=found.measured,
            is_measured=True,
            marked=found.hops if slow else (),
        )


def _when(found: LinkTimelines) -> str:
    if found.stretch is None:
        return "links without faults"
    return f"links from step {found.stretch.first_step} of the trace on"


# ---------------------------------------------------------------- positions
@dataclass(frozen=True, slots=True)
class _Axis:
    scale: Scale
    right: float

    def stretches(self, timeline: StepTimeline) -> tuple[Stretch, ...]:
        """Return the parts of a step between its folds."""
        edges = [0.0, *(edge for fold in timeline.folds for edge in (fold.start_s, fold.end_s)), timeline.step_s]
        return tuple(
            Stretch(start_s=a, end_s=b, scale=between(a, b, self.scale(a), self.scale(b)))
            for a, b in zip(edges[::2], edges[1::2], strict=True)
        )

    def shows(self, x: float) -> bool:
        """Return True if a position lies inside the picture."""
        return LEFT - 0.5 <= x <= self.right + 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """The lanes of one drawing of the step; ``tops`` is the top of each lane by pipeline rank."""

    tops: dict[int, float]
    tall: float
    height: float

    @classmethod
    def of(cls, ranks: Sequence[int], hops: Sequence[SlowHop]) -> Self:
        few = len(ranks) <= _TALL_LANES
        tall, gap, wide_gap = (24.0, 4.0, 22.0) if few else (14.0, 3.0, 18.0)
        slow = {hop.ranks for hop in hops}
        tops, y = {}, _HEAD
        for rank, behind in pairwise((*ranks, None)):
            assert rank is not None  # only the last pair has no second rank
            tops[rank] = y
            y += tall + (wide_gap if (rank, behind) in slow else gap)
        return cls(tops=tops, tall=tall, height=y - gap)

    def between(self, hop: SlowHop) -> float | None:
        """Return the middle between both ranks of a hop; None if they are not neighbours in the picture."""
        first, second = hop.ranks
        if first not in self.tops or second not in self.tops or second != first + 1:
            return None
        return (self.tops[first] + self.tall + self.tops[second]) / 2


def _ranks_shown(found: LinkTimelines) -> list[int]:
    ranks = sorted({lane.pipeline_rank for lane in found.healthy.timeline.ranks})
    if len(ranks) <= _MOST_LANES:
        return ranks
    near = [rank + by for hop in found.hops for rank in hop.ranks for by in (0, -1, 1)]
    wanted = dict.fromkeys([*near, ranks[0], ranks[-1], *ranks])
    return sorted([rank for rank in wanted if rank in set(ranks)][:_MOST_LANES])


# ---------------------------------------------------------------- marks
def _ticks(axis: _Axis, bottom: float) -> Iterator[Markup]:
    _, unit = divisor(axis.scale.axis)
    for value, label in axis.scale.ticks(max(2, int((axis.scale.end - axis.scale.start) / 90))):
        x = axis.scale(value)
        if axis.shows(x) and x <= axis.right - 14:
            yield line(x, _TOP + _HEAD - 4, x, bottom + 4, "rule")
            yield text(x, bottom + 19, f"{label} {unit}", anchor="middle" if x > LEFT + 1 else None)


def _group(group: _Group, axis: _Axis, rows: _Rows, top: float) -> Iterator[Markup]:
    yield text(LEFT, top + 15, group.name, "strong" if group.is_measured else "lane-label")
    stretches = axis.stretches(group.timeline)
    seen: set[int] = set()
    for lane in group.timeline.ranks:
        if lane.pipeline_rank in rows.tops and lane.pipeline_rank not in seen:
            seen.add(lane.pipeline_rank)
            yield from _lane(lane, axis, stretches, top + rows.tops[lane.pipeline_rank], rows.tall)
    yield from _folded(group.timeline, axis, rows, top)
    for hop in group.marked:
        yield from _hop(hop, axis, rows, top)
    yield from _slants(group.messages, axis, rows, top)
    yield from _ends(group, axis, rows, top)


def _lane(lane: RankTimeline, axis: _Axis, stretches: Sequence[Stretch], y: float, tall: float) -> Iterator[Markup]:
    yield text(LEFT - 12, y + tall / 2 + 4, f"stage {lane.pipeline_rank}", "lane-label", "end")
    blocks = list(placed(list(lane.blocks), stretches, axis.right))
    yield from idle(blocks, stretches, axis.right, y, tall, 7.0)
    yield from paths(blocks, y, tall)
    yield from numbers(blocks, y + tall / 2 + 4)


def _folded(timeline: StepTimeline, axis: _Axis, rows: _Rows, top: float) -> Iterator[Markup]:
    """Draw the repeated parts of a step as bands of their true length."""
    for fold in timeline.folds:
        left, right = max(LEFT, axis.scale(fold.start_s)), min(axis.right, axis.scale(fold.end_s))
        if right - left > 2:
            yield rect(left, top + _HEAD, right - left, rows.height - _HEAD, "band")
            said = f"{fold.num_micro_batches} similar micro-batches"
            if right - left > 7 * len(said):
                yield text((left + right) / 2, top + (rows.height + _HEAD) / 2 + 4, said, anchor="middle")


def _hop(hop: SlowHop, axis: _Axis, rows: _Rows, top: float) -> Iterator[Markup]:
    between = rows.between(hop)
    if between is None:
        return
    yield line(LEFT, top + between, axis.right, top + between, "slow-hop")
    said = "dead" if any(link.is_dead for link in hop.links) else format_seconds(hop.delay_s) if hop.delay_s else "slow"
    yield text(LEFT - 12, top + between + 4, said, "slow-word", "end")


def _slants(messages: Sequence[Message], axis: _Axis, rows: _Rows, top: float) -> Iterator[Markup]:
    """Draw the messages, late ones last, so that they lie above messages that are in time."""
    for message in sorted(messages, key=lambda one: one.is_late):
        if message.from_rank not in rows.tops or message.to_rank not in rows.tops:
            continue
        x1, x2 = axis.scale(message.sent_s), axis.scale(message.received_s)
        if axis.shows(x1) and axis.shows(x2):
            down = rows.tops[message.from_rank] < rows.tops[message.to_rank]
            y1 = top + rows.tops[message.from_rank] + rows.tall * down
            y2 = top + rows.tops[message.to_rank] + rows.tall * (not down)
            yield line(x1, y1, x2, y2, "message late" if message.is_late else "message")


def _ends(group: _Group, axis: _Axis, rows: _Rows, top: float) -> Iterator[Markup]:
    """Mark where the step ends, and where it would end if all links ran at their nominal speed."""
    x = axis.scale(group.timeline.step_s)
    if group.healthy_s is not None and axis.shows(axis.scale(group.healthy_s)):
        healthy = axis.scale(group.healthy_s)
        yield line(healthy, top + _HEAD - 6, healthy, top + rows.height, "p-line")
    if axis.shows(x):
        yield line(x, top + _HEAD - 6, x, top + rows.height, "m-line" if group.is_measured else "step-end")
        if x < LEFT + 7 * len(group.name) + 60:  # its name stands there
            yield text(x + 6, top + _HEAD + 12, format_seconds(group.timeline.step_s), "halo strong")
        else:
            yield text(min(x, axis.right), top + 15, format_seconds(group.timeline.step_s), "halo strong", "end")


def _label(found: LinkTimelines, groups: Sequence[_Group]) -> str:
    said = "; ".join(f"{group.name}: {format_seconds(group.timeline.step_s)}" for group in groups)
    late = sum(message.is_late for message in found.messages)
    hops = ", ".join(f"stages {hop.ranks[0]} and {hop.ranks[1]}" for hop in found.hops)
    over = f" Ranks wait for {late} of {len(found.messages)} messages between {hops}." if found.messages else ""
    return f"A step on a time axis. {said}.{over}"
