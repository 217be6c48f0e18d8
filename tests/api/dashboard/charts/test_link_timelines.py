from __future__ import annotations

from dataclasses import replace

from markupsafe import Markup

from api.dashboard.charts.link_timelines import link_timeline_picture
from api.dashboard.charts.window import WHOLE, Window
from autotuner.domain.jobs.fault_trace import FaultTrace
from autotuner.domain.jobs.link_health import LinkHealth
from autotuner.domain.runs.timeline import Fold, StepTimeline
from autotuner.search.explain.link_timelines import LinkTimelines
from tests.api.dashboard.charts.drawn import each, number, words
from tests.slow_links import slow_links, stepped

FOUND = slow_links(0.06)


def drawn(found: LinkTimelines = FOUND, window: Window = WHOLE) -> Markup:
    return link_timeline_picture(found, window)


def test_the_same_step_stands_twice_on_one_axis_each_with_where_it_ends() -> None:
    said = words(drawn())
    assert [w for w in said if "predicted" in w] == ["healthy links, predicted", "links as they are, predicted"]
    assert "780 ms" in said
    assert "1.44 s" in said
    assert said.count("stage 3") == 2


def test_the_longer_step_is_as_much_wider() -> None:
    left, right = (number(end, "x1") for end in each(drawn(), "step-end"))
    assert abs((right - 104) / (left - 104) - 1.44 / 0.78) < 0.01


def test_every_message_is_a_line_across_the_slow_hop_and_late_ones_stand_out() -> None:
    lines = list(each(drawn(), "message"))
    assert len(lines) == 24
    assert len(list(each(drawn(), "late"))) == 13
    assert all(number(one, "x2") >= number(one, "x1") for one in lines)
    assert len({(number(one, "y1"), number(one, "y2")) for one in lines}) == 2  # down, and up


def test_the_hop_is_marked_with_its_delay_between_its_two_lanes_where_it_is_slow_alone() -> None:
    assert len(list(each(drawn(), "slow-hop"))) == 1
    assert words(drawn()).count("60 ms") == 1


def test_what_was_measured_stands_under_both_and_in_ink() -> None:
    measured: StepTimeline = stepped(0.063)
    picture = drawn(replace(FOUND, measured=measured))
    assert "links as they are, measured" in words(picture)
    assert len(list(each(picture, "slow-hop"))) == 2
    assert len(list(each(picture, "m-line"))) == 1


def test_under_a_trace_the_measured_step_is_a_healthy_one() -> None:
    stretch = FaultTrace.parse("7;2_3;0.06").stretches()[1]
    said = words(drawn(replace(FOUND, measured=stepped(0.0), stretch=stretch)))
    assert "healthy links, measured" in said
    assert "links from step 7 of the trace on, predicted" in said


def test_a_dead_link_is_called_so() -> None:
    hop = replace(FOUND.hops[0], links=(LinkHealth(ends=(2, 3), is_dead=True),))
    assert "dead" in words(drawn(replace(FOUND, hops=(hop,))))


def test_what_is_folded_away_keeps_its_length() -> None:
    healthy = FOUND.healthy.timeline
    fold = Fold(start_s=0.2, end_s=0.6, num_micro_batches=8)
    folded = replace(FOUND, healthy=replace(FOUND.healthy, timeline=replace(healthy, folds=(fold,))))
    assert "8 micro-batches alike" in words(drawn(folded))
    assert [number(one, "x1") for one in each(drawn(folded), "step-end")] == [
        number(one, "x1") for one in each(drawn(), "step-end")
    ]


def test_looking_closer_leaves_out_what_lies_beyond() -> None:
    close = drawn(FOUND, Window(0.0, 0.25))
    assert 0 < len(list(each(close, "message"))) < 24
    assert all(104 - 1 <= number(one, "x1") <= 1296 - 12 + 1 for one in each(close, "message"))


def test_its_name_says_what_it_shows_and_it_needs_no_style() -> None:
    assert "13 of 24 messages between stages 2 and 3 are waited for." in drawn()
    assert "style=" not in drawn()
