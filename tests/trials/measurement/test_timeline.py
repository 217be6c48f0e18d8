from __future__ import annotations

import random

from trials.measurement.timeline import Span, divided, joined

WINDOW = Span(0, 100, "rest")


def test_a_moment_goes_to_the_first_span_that_covers_it() -> None:
    assert divided(WINDOW, [Span(10, 30, "a"), Span(20, 50, "b")]) == {"a": 20, "b": 20, "rest": 60}


def test_a_span_may_be_cut_in_pieces_and_reach_out_of_the_window() -> None:
    spans = [Span(40, 50, "a"), Span(-20, 60, "b"), Span(90, 200, "b"), Span(300, 400, "a")]
    assert divided(WINDOW, spans) == {"a": 10, "b": 60, "rest": 30}


def test_the_parts_sum_to_the_window_whatever_overlaps() -> None:
    draw = random.Random(0)
    for _ in range(50):
        starts = [draw.randrange(-50, 150) for _ in range(30)]
        spans = [Span(start, start + draw.randrange(60), draw.choice("abc")) for start in starts]
        assert divided(WINDOW, spans) == slowly_divided(spans)


def slowly_divided(spans: list[Span]) -> dict[str, int]:
    """Nanosecond by nanosecond."""
    parts: dict[str, int] = {span.part: 0 for span in spans} | {"rest": 0}
    for moment in range(WINDOW.start_ns, WINDOW.end_ns):
        owner = next((span.part for span in spans if span.start_ns <= moment < span.end_ns), "rest")
        parts[owner] += 1
    return parts


def test_gaps_close_unless_a_break_falls_into_them() -> None:
    spans = [Span(30, 40, "a"), Span(0, 10, "a"), Span(15, 20, "a"), Span(16, 18, "a")]
    assert joined(spans, [25]) == [Span(0, 20, "a"), Span(30, 40, "a")]
    assert joined([], [25]) == []
