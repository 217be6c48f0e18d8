"""Time divided among what happened in it."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Span(NamedTuple):
    """From one moment to another, in nanoseconds of one clock, something of the kind ``part`` happened."""

    start_ns: int
    end_ns: int
    part: str


def divided(window: Span, spans: Iterable[Span]) -> Counter[str]:
    """Nanoseconds of the window by part: each moment goes to the first of the spans that covers it.

    What none covers goes to the window's own part, so the parts always sum to the window.
    """
    free: list[tuple[int, int]] = [(window.start_ns, window.end_ns)]
    parts: Counter[str] = Counter()
    for span in spans:
        parts[span.part] += _take(free, span)
    parts[window.part] += sum(end - start for start, end in free)
    return parts


def joined(spans: Sequence[Span], breaks: Sequence[int]) -> list[Span]:
    """The spans, in order of time, with the gaps between neighbours closed; a gap in which a break falls stays open."""
    closed: list[Span] = []
    breaks = sorted(breaks)
    for span in sorted(spans):
        if closed and bisect_right(breaks, closed[-1].end_ns) == bisect_right(breaks, span.start_ns):
            closed[-1] = closed[-1]._replace(end_ns=max(closed[-1].end_ns, span.end_ns))
        else:
            closed.append(span)
    return closed


def _take(free: list[tuple[int, int]], span: Span) -> int:
    """Remove the span from the free intervals, which lie apart in order; what was removed, in nanoseconds."""
    taken, index = 0, max(0, bisect_right(free, (span.start_ns, span.start_ns)) - 1)
    while index < len(free) and free[index][0] < span.end_ns:
        start, end = free[index]
        from_ns, to_ns = max(start, span.start_ns), min(end, span.end_ns)
        if from_ns >= to_ns:
            index += 1
            continue
        taken += to_ns - from_ns
        rest = [piece for piece in ((start, from_ns), (to_ns, end)) if piece[0] < piece[1]]
        free[index : index + 1] = rest
        index += len(rest)
    return taken
