"""A step as one lane of blocks per rank: what the rank does when; measured blocks are thick, predicted ones thin.

Repeated stretches are folded at a zigzag; the scale is the same on both sides of it. Predicted blocks behind a fold
start at its end, like the measured ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from markupsafe import Markup

from autotuner.core.errors import InvalidInput
from autotuner.core.timeline import Block, BlockKind, Fold, RankTimeline, StepTimeline
from autotuner.core.units import format_seconds
from autotuner.report.charts import Axis, Drawing
from autotuner.report.drawing import Scale, element, line, path, picture, strokes, text

# A lane of a timeline: a rank's blocks as paths, numbered where there is room, and the idle time between them.
#
# Blocks of a kind are one path, so that hundreds of them weigh little.

LEFT = 104.0
"""Pixels to the left of the lanes, for their names."""

KIND_CLASSES = {
    BlockKind.FORWARD: "forward",
    BlockKind.BACKWARD: "backward",
    BlockKind.INPUT: "backward",
    BlockKind.WEIGHT: "weight",
    BlockKind.SEND: "communication",
    BlockKind.SYNC: "communication",
    BlockKind.OPTIMIZER: "optimizer",
}
"""CSS class of each kind of block."""

KIND_WORDS = {
    BlockKind.FORWARD: "forward",
    BlockKind.BACKWARD: "backward",
    BlockKind.INPUT: "backward",
    BlockKind.WEIGHT: "weight gradient",
    BlockKind.SEND: "send",
    BlockKind.SYNC: "gradient sync",
    BlockKind.OPTIMIZER: "optimizer",
}
"""Words for each kind of block."""

_NARROWEST = 0.35
"""Smallest width of a block in pixels."""

_NARROWEST_GAP = 1.5
"""Idle time narrower than this number of pixels stays white, since it would look like a hair between two blocks."""

_FILLS = {BlockKind.FORWARD: "on-forward", BlockKind.WEIGHT: "on-weight"}
"""CSS class of the words on a block; on all other kinds it is ``on-backward``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A part of a step between two folds, with the scale that places it in pixels.

    A fold is a place where repeated work is left out.
    """

    start_s: float
    end_s: float
    scale: Scale

    def x(self, seconds: float) -> float:
        """Return the pixel of a time in the step; times outside the stretch are moved to its nearest end."""
        return self.scale(min(max(seconds, self.start_s), self.end_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A block of work in the timeline of a rank, with its left and right pixel in the picture.

    ``is_whole`` is False if only a part of the block is visible, because a fold (left-out repeated work) or an edge of
    the picture cuts it.
    """

    left: float
    right: float
    block: Block
    is_whole: bool


def placed(blocks: Sequence[Block], stretches: Sequence[Stretch], edge: float) -> Iterator[Placed]:
    """Yield the blocks of work of one rank that lie in the picture of a timeline, with their pixels.

    Args:
        blocks: Blocks of one rank.
        stretches: Parts of the step that are drawn.
        edge: Pixel of the right edge; the left edge is ``LEFT``.
    """
    for stretch in stretches:
        for block in blocks:
            if block.end_s <= stretch.start_s or block.start_s >= stretch.end_s:
                continue
            left, right = stretch.x(block.start_s), stretch.x(block.end_s)
            if right <= LEFT or left >= edge:
                continue
            within = block.start_s >= stretch.start_s and block.end_s <= stretch.end_s
            whole = within and left >= LEFT - 0.5 and right <= edge + 0.5
            yield Placed(left=max(LEFT, left), right=min(edge, right), block=block, is_whole=whole)


def paths(placed: Sequence[Placed], y: float, height: float, more: str = "") -> Iterator[Markup]:
    """Yield the blocks of work of one rank as SVG paths, one path for all blocks of the same look.

    Blocks of send operations have half the height. Blocks of a rank's later stages are paler.

    Args:
        placed: Blocks of the rank, with their pixels.
        y: Upper edge of the rank's row, in pixels.
        height: Height of the row in pixels.
        more: Further classes of the style sheet.
    """
    looks: dict[str, list[str]] = {}
    first = min((one.block.stage for one in placed if one.block.stage is not None), default=0)
    for one in placed:
        later = one.block.stage is not None and one.block.stage > first
        is_send = one.block.kind is BlockKind.SEND
        top, tall = (y + height / 4, height / 2) if is_send else (y, height)
        wide = max(_NARROWEST, one.right - one.left - (0.8 if one.right - one.left > 3 else 0.0))
        look = KIND_CLASSES[one.block.kind] + (" later" if later else "")
        looks.setdefault(look, []).append(f"M{one.left:.1f} {top:.1f}h{wide:.1f}v{tall:.1f}h-{wide:.1f}z")
    for look, boxes in looks.items():
        yield element("path", d="".join(boxes), class_=look + more)


def numbers(placed: Sequence[Placed], baseline: float) -> Iterator[Markup]:
    """Yield the numbers of micro-batches, counted from 1, as texts on the blocks that are wide enough.

    Args:
        placed: Blocks of one rank.
        baseline: Pixel of the base line of the texts.
    """
    for one in placed:
        if one.block.micro_batch is None:
            continue
        said = str(one.block.micro_batch + 1)
        if one.is_whole and one.right - one.left > 7 * len(said) + 3:
            fill = _FILLS.get(one.block.kind, "on-backward")
            yield text((one.left + one.right) / 2 - 0.4, baseline, said, fill, "middle")


def idle(
    placed: Sequence[Placed], stretches: Sequence[Stretch], right: float, y: float, tall: float, hatch: float
) -> Iterator[Markup]:
    """Yield the idle times of one rank (gaps between its blocks of work) as hatched boxes.

    Args:
        placed: Blocks of the rank, with their pixels.
        stretches: Parts of the step that are drawn.
        right: Pixel of the right edge.
        y: Upper edge of the rank's row, in pixels.
        tall: Height of the row in pixels.
        hatch: Pixels between the lines of the hatching.
    """
    gaps = [(a, b - a) for one in stretches for a, b in _gaps(placed, one, right) if b - a > _NARROWEST_GAP]
    if gaps:
        boxes = "".join(f"M{a:.1f} {y:.1f}h{wide:.1f}v{tall:.0f}h-{wide:.1f}z" for a, wide in gaps)
        yield element("path", d=boxes, class_="idle")
        drawn = "".join(strokes(a, y, wide, tall, hatch) for a, wide in gaps)
        yield element("path", d=drawn, class_="hatch")


def _gaps(placed: Sequence[Placed], stretch: Stretch, edge: float) -> Iterator[tuple[float, float]]:
    left, right = max(LEFT, stretch.scale.start), min(edge, stretch.scale.end)
    own = [one for one in placed if one.left < right and one.right > left]
    edges = [left, *(edge for one in own for edge in (one.left, one.right)), right]
    yield from zip(edges[::2], edges[1::2], strict=True)


# The part of a picture's axis that is shown.

_WINDOW_NARROWEST = 0.002
"""Smallest share of the axis that can be shown; closer views show only single lines."""


@dataclass(frozen=True, slots=True)
class Window:
    """The part of an axis that a picture shows, as two shares of the axis (0 to 1).

    An address writes it as ``0.25-0.5``.
    """

    low: float
    high: float

    @classmethod
    def parse(cls, said: str | None) -> Self:
        """Return the window that a query parameter describes; the whole axis if the text is empty or None.

        Raises:
            InvalidInput: The text does not describe a window.
        """
        if not said:
            return cls(0.0, 1.0)
        match = re.fullmatch(r"(\d?\.?\d{1,6})-(\d?\.?\d{1,6})", said)
        low, high = (float(match[1]), float(match[2])) if match else (1.0, 0.0)
        if not 0 <= low < high <= 1:
            raise InvalidInput("zoom", said, "must be two numbers from 0 to 1, the smaller first, for example 0-0.5")
        return cls(low, high)._held()

    def __str__(self) -> str:
        return f"{round(self.low, 4):g}-{round(self.high, 4):g}"

    @property
    def is_whole(self) -> bool:
        """True if the window covers the whole axis."""
        return self.high - self.low > 0.9999

    @property
    def closer(self) -> Window:
        """A window half as wide with the same middle, for a link that zooms in."""
        return self._of_size((self.high - self.low) / 2)

    @property
    def farther(self) -> Window:
        """A window twice as wide with the same middle, as far as the axis allows, for a link that zooms out."""
        return self._of_size((self.high - self.low) * 2)

    @property
    def earlier(self) -> Window:
        """A window of the same width, moved to the left by half of its width, for a link to earlier times."""
        return self._moved(-(self.high - self.low) / 2)

    @property
    def later(self) -> Window:
        """A window of the same width, moved to the right by half of its width, for a link to later times."""
        return self._moved((self.high - self.low) / 2)

    def _of_size(self, size: float) -> Window:
        middle = (self.low + self.high) / 2
        return Window(middle - size / 2, middle + size / 2)._held()

    def _moved(self, share: float) -> Window:
        return Window(self.low + share, self.high + share)._held()

    def _held(self) -> Self:
        size = min(1.0, max(_WINDOW_NARROWEST, self.high - self.low))
        low = min(max(0.0, self.low), 1 - size)
        return type(self)(low, low + size)


WHOLE = Window(0.0, 1.0)


def between(low: float, high: float, start: float, end: float) -> Scale:
    """Return a linear scale that maps values from ``low`` to ``high`` to pixels from ``start`` to ``end``."""
    return Scale(Axis(title="", low=low, high=high), start, end)


WIDE = 1296
"""Width of a whole page in pixels."""

_RIGHT, _TOP, _BOTTOM = 12.0, 26.0, 26.0
_FOLD_GAP = 16.0
"""Width of a fold in pixels."""

_FEW_LANES = 6
"""Largest number of lanes that are drawn tall, with their idle time closely hatched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes(Drawing):
    """A picture of one step: a row for each rank, with blocks for its work and hatched gaps for its idle time."""

    main: StepTimeline
    thin: StepTimeline | None
    """Predicted blocks below those of ``main``, on the same axis; None: no such blocks."""
    window: Window = WHOLE
    is_measured: bool
    """True if ``main`` was measured."""
    wide: int = WIDE
    """Width of the picture in pixels."""

    @property
    def look(self) -> str:
        """CSS class of the box around the picture, for the style sheet of pages."""
        return "timeline"

    @property
    def drawn(self) -> Markup:
        """The picture of the step as SVG markup, for a page."""
        main = self.main
        beneath = self.thin if self.thin is not None and len(self.thin.folds) == len(main.folds) else None
        axis = _Axis.of(main, beneath, self.window, self.wide)
        lanes = _Rows.of(len(main.ranks), has_thin=beneath is not None)
        parts = [*_ticks(axis, main, lanes)]
        seen: set[int] = set()
        thin_lanes = {} if beneath is None else {rank.pipeline_rank: rank for rank in beneath.ranks}
        for number, rank in enumerate(main.ranks):
            y = lanes.y(number)
            parts.append(text(LEFT - 12, y + lanes.tall / 2 + 4, _name(rank, main), "lane-label", "end"))
            parts.extend(_lane(rank, axis, y, lanes))
            if rank.pipeline_rank in thin_lanes and rank.pipeline_rank not in seen:
                seen.add(rank.pipeline_rank)
                parts.extend(_thin_lane(thin_lanes[rank.pipeline_rank], axis, y + lanes.tall + 2))
        if beneath is not None:
            parts.append(text(LEFT - 12, lanes.y(0) + lanes.tall + 10, "predicted", "", "end"))
        parts.extend(_zigzags(axis, main.folds, lanes))
        says = _label(main, is_measured=self.is_measured, has_thin=beneath is not None)
        return picture(self.wide, lanes.height, parts, says)


# ---------------------------------------------------------------- positions
@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    """The stretches of both steps on one axis; each begins where the longer of the two stretches before has ended."""

    of_main: tuple[Stretch, ...]
    of_thin: tuple[Stretch, ...]
    right: float

    @classmethod
    def of(cls, main: StepTimeline, thin: StepTimeline | None, window: Window, width: int) -> _Axis:
        shown = [_shown(main), *([] if thin is None else [_shown(thin)])]
        lengths = [max(end_s - start_s for start_s, end_s in both) for both in zip(*shown, strict=True)]
        inner = width - LEFT - _RIGHT
        per_s = (inner / (window.high - window.low) - _FOLD_GAP * len(main.folds)) / sum(lengths)
        left = LEFT - window.low * inner / (window.high - window.low)
        starts = [left + sum(lengths[:k]) * per_s + k * _FOLD_GAP for k in range(len(lengths))]
        found = [
            tuple(
                Stretch(start_s=a, end_s=b, scale=between(a, b, x, x + (b - a) * per_s))
                for (a, b), x in zip(one, starts, strict=True)
            )
            for one in shown
        ]
        return cls(of_main=found[0], of_thin=found[-1], right=width - _RIGHT)


def _shown(timeline: StepTimeline) -> list[tuple[float, float]]:
    """Return the stretches between folds, as start and end in seconds."""
    edges = [0.0, *(edge for fold in timeline.folds for edge in (fold.start_s, fold.end_s)), timeline.step_s]
    return list(zip(edges[::2], edges[1::2], strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    tall: float
    thin: float
    gap: float
    num_lanes: int

    @classmethod
    def of(cls, num_lanes: int, *, has_thin: bool) -> _Rows:
        few = num_lanes <= _FEW_LANES
        return cls(
            tall=30.0 if few else 16.0,
            thin=11.0 if has_thin else 0.0,
            gap=(14.0 if has_thin else 8.0) if few else 5.0,
            num_lanes=num_lanes,
        )

    @property
    def hatch(self) -> float:
        """Return the pixels between the strokes of the hatching."""
        return 6.0 if self.num_lanes <= _FEW_LANES else 12.0

    def y(self, number: int) -> float:
        return _TOP + number * (self.tall + self.thin + self.gap)

    @property
    def bottom(self) -> float:
        return self.y(self.num_lanes) - self.gap

    @property
    def height(self) -> float:
        return self.bottom + _BOTTOM


# ---------------------------------------------------------------- marks
def _ticks(axis: _Axis, main: StepTimeline, lanes: _Rows) -> Iterator[Markup]:
    right = axis.right
    unit, factor = _unit(main.step_s)
    for number, stretch in enumerate(axis.of_main):
        room = min(right, stretch.scale.end) - max(LEFT, stretch.scale.start)
        low, high = (stretch.start_s / factor, stretch.end_s / factor)
        marks = between(low, high, stretch.scale.start, stretch.scale.end)
        most = max(2, int((stretch.scale.end - stretch.scale.start) / 85))
        for value, label in marks.ticks(most) if room > 0 else ():
            x = marks(value)
            if LEFT - 1 <= x <= right - 14 and (number == 0 or x > stretch.scale.start + 14):
                yield line(x, _TOP - 6, x, lanes.bottom + 4, "rule")
                yield text(x, lanes.bottom + 19, f"{label} {unit}", anchor="middle" if x > LEFT else None)


def _unit(step_s: float) -> tuple[str, float]:
    return ("s", 1.0) if step_s >= 2 else ("ms", 1e-3) if step_s >= 2e-3 else ("µs", 1e-6)


def _lane(rank: RankTimeline, axis: _Axis, y: float, lanes: _Rows) -> Iterator[Markup]:
    blocks = list(placed(list(rank.blocks), axis.of_main, axis.right))
    yield from idle(blocks, axis.of_main, axis.right, y, lanes.tall, lanes.hatch)
    yield from paths(blocks, y, lanes.tall)
    yield from numbers(blocks, y + lanes.tall / 2 + 4)


def _thin_lane(rank: RankTimeline, axis: _Axis, y: float) -> Iterator[Markup]:
    yield from paths(list(placed(list(rank.blocks), axis.of_thin, axis.right)), y, 7.0, " pencilled")


def _zigzags(axis: _Axis, folds: Sequence[Fold], lanes: _Rows) -> Iterator[Markup]:
    for before, fold in zip(axis.of_main, folds, strict=False):
        x = before.scale.end + _FOLD_GAP / 2
        if not LEFT <= x <= axis.right:
            continue
        steps = int((lanes.bottom - _TOP) / 6) + 3
        points = [(x + (2.5 if k % 2 else -2.5), _TOP - 8 + 6 * k) for k in range(steps)]
        yield path(points, "fold-under")
        yield path(points, "fold")
        said = f"{fold.num_micro_batches} similar micro-batches, {format_seconds(fold.end_s - fold.start_s)}"
        yield text(min(max(x, LEFT + 90), axis.right - 90), 12, said, "halo ink-text", "middle")


def _name(rank: RankTimeline, timeline: StepTimeline) -> str:
    if timeline.num_ranks == 1 or len({one.pipeline_rank for one in timeline.ranks}) == 1:
        return f"rank {rank.rank}"
    stages = sorted({block.stage for block in rank.blocks if block.stage is not None})
    said = f"stage{'s' if len(stages) > 1 else ''} {', '.join(map(str, stages[:4]))}{' …' if len(stages) > 4 else ''}"
    shared = len(timeline.ranks) > len({one.pipeline_rank for one in timeline.ranks})
    return f"{said}, rank {rank.rank}" if shared else said


def _label(main: StepTimeline, *, is_measured: bool, has_thin: bool) -> str:
    said = "measured" if is_measured else "predicted"
    beside = ", with the predicted step below it" if has_thin else ""
    missing = is_measured and len(main.ranks) < main.num_ranks
    lanes = f"{len(main.ranks)} of {main.num_ranks} ranks" if missing else f"{len(main.ranks)} lanes"
    return (
        f"Timeline of a {said} step of {format_seconds(main.step_s)}{beside}: forward, backward, communication, update "
        f"and idle time over {main.num_micro_batches} micro-batches, {lanes}."
    )
