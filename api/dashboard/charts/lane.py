"""A lane of a timeline: a rank's blocks as paths, numbered where there is room, and the idle time between them.

Blocks of a kind are one path, so that hundreds of them weigh little.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from api.dashboard.charts.scale import Scale
from api.dashboard.charts.svg import element, strokes, text
from autotuner.core.timeline import Block, BlockKind

LEFT = 104.0
"""Pixels beside lanes, for what each is."""

KIND_CLASSES = {
    BlockKind.FORWARD: "forward",
    BlockKind.BACKWARD: "backward",
    BlockKind.INPUT: "backward",
    BlockKind.WEIGHT: "weight",
    BlockKind.SEND: "communication",
    BlockKind.SYNC: "communication",
    BlockKind.OPTIMIZER: "optimizer",
}
"""Classes of the style sheet."""

KIND_WORDS = {
    BlockKind.FORWARD: "forward",
    BlockKind.BACKWARD: "backward",
    BlockKind.INPUT: "backward",
    BlockKind.WEIGHT: "weight gradient",
    BlockKind.SEND: "send",
    BlockKind.SYNC: "gradient sync",
    BlockKind.OPTIMIZER: "optimizer",
}
"""What people call each."""

_NARROWEST = 0.35
"""Pixels of the thinnest block."""

_NARROWEST_GAP = 1.5
"""Idle time of fewer pixels is left white: a hair between two blocks."""

_FILLS = {BlockKind.FORWARD: "on-forward", BlockKind.WEIGHT: "on-weight"}
"""Classes of words on a block; on-backward on all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A stretch of one step between folds, and the pixels where it lies."""

    start_s: float
    end_s: float
    scale: Scale

    def x(self, seconds: float) -> float:
        """Where a moment lies, or the end nearest to it."""
        return self.scale(min(max(seconds, self.start_s), self.end_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A block's pixels in one stretch; ``is_whole`` where no fold or edge cuts it."""

    left: float
    right: float
    block: Block
    is_whole: bool


def placed(blocks: Sequence[Block], stretches: Sequence[Stretch], edge: float) -> Iterator[Placed]:
    """The blocks that lie between the left and the right edge."""
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
    """One path per look, block for block; sends are half as tall, later stages of a rank a little paler."""
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
    """Micro-batches, counted from 1, on blocks that are wide enough."""
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
    """What lies between the blocks of each stretch, hatched with strokes so many pixels apart."""
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
