"""Batches whose sequences differ: how long these are, and what ranks compute of them by the way they are dealt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from api.dashboard.charts.drawing import Frame, Scale, for_both, hatched, line, picture, rect, text
from autotuner.core.workload import LengthDistribution
from autotuner.search.space.moves import BatchWay

_HEIGHT = 170.0
_MOST_BARS = 32
_ROW, _THICK, _TOP, _FOOT = 26.0, 15.0, 6.0, 40.0
_PER_LETTER = 6.9
"""Pixels of a letter in the small type of pictures, where it is bold."""


def length_histogram(lengths: LengthDistribution, *, wide: int = 896) -> Markup:
    """Share of sequences by their length, for a desk and for a phone."""
    bars = _bars(lengths)
    label = f"Sequences by length, up to {lengths.longest:,} tokens, {lengths.mean:,.0f} on average"
    return for_both(lambda width: picture(width, _HEIGHT, _histogram(bars, lengths, width), label), wide)


def _bars(lengths: LengthDistribution) -> list[float]:
    """Shares in ranges that are as wide as each other."""
    count = min(_MOST_BARS, lengths.longest)
    shares, total = [0.0] * count, sum(lengths.weights)
    for length, weight in zip(lengths.lengths, lengths.weights, strict=True):
        shares[(length - 1) * count // lengths.longest] += weight / total
    return shares


def _histogram(bars: Sequence[float], lengths: LengthDistribution, width: int) -> Iterator[Markup]:
    frame = Frame(width=width, height=_HEIGHT)
    x, y = frame.across(0, lengths.longest), frame.upward(0, max(bars))
    yield from frame.share_rules(y, 4)
    for number, share in enumerate(bars):
        low, high = x(number * lengths.longest / len(bars)), x((number + 1) * lengths.longest / len(bars))
        yield rect(low + 0.5, y(share), high - low - 1, frame.floor - y(share), "forward")
    yield from frame.ground(x, x.marks(4 if width < 500 else 8), lambda at: f"{at:g}")
    yield line(x(lengths.mean), frame.top, x(lengths.mean), frame.floor, "event")
    yield text(x(lengths.mean) + 4, frame.top - 4, f"mean {lengths.mean:,.0f}")
    yield from frame.titles("% of sequences", "tokens of a sequence")


def batch_ways_picture(ways: Sequence[BatchWay], *, wide: int = 896) -> Markup:
    """Tokens of the slowest rank by way: real ones, padding, and what it has beyond the mean."""
    height = _TOP + _ROW * len(ways) + _FOOT
    label = "Tokens that the slowest rank computes for a sequence. " + "; ".join(way.sentence for way in ways)
    return for_both(lambda width: picture(width, height, _rows(ways, width, height), label), wide)


def _rows(ways: Sequence[BatchWay], width: int, height: float) -> Iterator[Markup]:
    left = min(8 + _PER_LETTER * max(len(way.name) for way in ways), 0.5 * width)
    x = Scale(0, max(way.slowest_tokens for way in ways), left, width - 14)
    floor = height - _FOOT
    for mark in x.marks(3 if width < 500 else 6):
        yield line(x(mark), _TOP, x(mark), floor + 4, "rule")
        yield text(x(mark), floor + 17, f"{mark:g}", anchor="middle")
    yield text(width / 2, height - 4, "tokens for a sequence, on the slowest rank", anchor="middle")
    for number, way in enumerate(ways):
        yield from _row(way, x, _TOP + _ROW * number)


def _row(way: BatchWay, x: Scale, top: float) -> Iterator[Markup]:
    y, ends = top + (_ROW - _THICK) / 2, (way.real_tokens, way.computed_tokens, way.slowest_tokens)
    real, computed, slowest = map(x, ends)
    yield text(x(0) - 8, y + _THICK - 3, way.name, "bold" if way.is_own else None, anchor="end")
    yield rect(x(0), y, real - x(0), _THICK, "forward", title=way.sentence)
    yield rect(real, y, computed - real, _THICK, "other", title=way.sentence)
    yield hatched(computed, y, slowest - computed, _THICK)
