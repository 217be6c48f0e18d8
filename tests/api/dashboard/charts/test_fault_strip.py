from __future__ import annotations

from api.dashboard.charts.fault_strip import fault_strip
from autotuner.domain.jobs.fault_trace import FaultTrace
from tests.api.dashboard.charts.drawn import each, number, words

TRACE = FaultTrace.parse("10;2_3;0.06\n20;0_1;dead\n30;2_3;0", num_steps=40)


def test_every_link_has_a_lane_with_what_befalls_it_where_it_does() -> None:
    picture = fault_strip(TRACE, 466)
    assert [word for word in words(picture) if "_" in word] == ["0_1", "2_3"]
    (late,) = each(picture, "late-link")
    assert (number(late, "x"), number(late, "width")) == (156, 200)
    assert "60 ms" in words(picture)


def test_a_dead_link_is_hatched_and_called_so() -> None:
    picture = fault_strip(TRACE, 466)
    (dead,) = each(picture, "dead-link")
    assert number(dead, "width") == 200
    assert "dead" in words(picture)
    assert len(list(each(picture, "hatch"))) == 1


def test_its_name_says_what_it_shows() -> None:
    assert "Fault trace over 40 steps: what befalls links 0_1, 2_3." in fault_strip(TRACE, 400)
