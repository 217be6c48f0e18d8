from __future__ import annotations

from dataclasses import replace

from api.dashboard.charts.window import WHOLE, Window
from api.dashboard.views.link_timelines import LinkTimelinesView, link_timelines_view
from autotuner.search.explain.link_timelines import LinkTimelines
from tests.slow_links import slow_links, stepped


def view(found: LinkTimelines, window: Window = WHOLE) -> LinkTimelinesView:
    shown = link_timelines_view(found, lambda to: f"?near={to}", window=window)
    assert shown is not None
    return shown


def test_there_is_no_view_where_no_link_is_slow() -> None:
    healthy = replace(slow_links(), slow=None)
    assert link_timelines_view(healthy, str, window=WHOLE) is None


def test_the_table_says_what_the_links_add_to_every_part() -> None:
    found = view(slow_links())
    assert found.heads == ("step", "forward", "backward", "weight gradient", "idle")
    healthy, slow, added = found.rows
    assert (healthy.cells[0], slow.cells[0], added.cells[0]) == ("780 ms", "1.44 s", "+660 ms")
    assert added.cells[1:] == ("0", "0", "0", "+660 ms")


def test_a_measured_step_is_a_row_in_ink_under_the_links_that_it_ran_with() -> None:
    last = view(slow_links(measured=stepped(0.06))).rows[-1]
    assert (last.name, last.look, last.cells[0]) == ("slow links, measured", "measured", "1.44 s")


def test_ways_to_look_closer_lead_somewhere() -> None:
    assert [move.name for move in view(slow_links()).moves] == ["Closer"]
    assert view(slow_links(), Window(0.5, 1.0)).moves[0].address == "?near=0.625-0.875"


def test_the_caption_says_what_the_lines_are() -> None:
    assert "Slanted lines are what passes the slow link" in view(slow_links()).caption
    assert view(slow_links()).links == ("link 2_3 60 ms late",)
