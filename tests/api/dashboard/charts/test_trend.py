"""The trend of a retune as a picture."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from api.dashboard.charts.axis import decimals, round_step
from api.dashboard.charts.trend import trend_chart
from autotuner.domain.upkeep.retune import Verdict
from autotuner.search.upkeep.retunes.trend import TrendPoint
from tests.api.service import NOW

DAY_S = 86400.0


def point(night: int = 0, rate: float = 1000.0, **changes: Any) -> TrendPoint:
    """A night on which three measurements lay within 1 %, held to 1000 tokens per second."""
    value = TrendPoint(
        run_id=f"rr-{night}",
        at=NOW + night * DAY_S,
        verdict=Verdict.UNCHANGED,
        layout="tp2 mb1",
        tokens_per_s=rate,
        lowest=0.99 * rate,
        highest=1.01 * rate,
        mfu=0.3,
        num_measurements=3,
        reference=1000.0,
        band_low=985.0,
        band_high=1015.0,
        noise=0.004,
    )
    return replace(value, **changes)


def test_without_a_run_there_is_no_picture() -> None:
    assert trend_chart([]) is None


def test_a_regression_lies_below_its_band_and_everything_within_the_picture() -> None:
    chart = trend_chart([point(), point(1, 929.0)])
    assert chart is not None
    good, bad = chart.slots
    assert good.band is not None
    assert bad.band is not None
    assert good.band[0] < good.y < good.band[1]
    assert bad.y > bad.band[1]
    places = [y for slot in chart.slots for y in (slot.y, slot.high, slot.low, *(slot.band or ()), slot.reference)]
    assert all(0 <= y <= 100 for y in places if y is not None)
    assert bad.high < bad.y < bad.low


def test_marks_are_told_apart_by_their_digits() -> None:
    chart = trend_chart([point(), point(1, 1003.0)])
    assert chart is not None
    labels = [mark.label for mark in chart.marks]
    assert chart.unit == "ktoken/s"
    assert len(set(labels)) == len(labels) >= 4
    assert [mark.y for mark in chart.marks][:: len(labels) - 1] == [100.0, 0.0]


def test_a_first_night_has_no_band_and_one_place_of_six() -> None:
    chart = trend_chart([point(reference=None, band_low=None, band_high=None, noise=None)])
    assert chart is not None
    (slot,) = chart.slots
    assert (slot.band, slot.reference) == (None, None)
    assert slot.width == pytest.approx(100 / 6, abs=0.001)


def test_equal_runs_without_any_scatter_have_a_picture() -> None:
    same = point(lowest=1000.0, highest=1000.0, band_low=None, band_high=None, reference=None)
    chart = trend_chart([same, replace(same, at=NOW + DAY_S)])
    assert chart is not None
    assert 0 < chart.slots[0].y < 100


def test_another_layout_is_marked_where_it_begins() -> None:
    chart = trend_chart([point(), point(1), point(2, layout="dp2 mb2"), point(3, layout="dp2 mb2")])
    assert chart is not None
    assert [slot.is_another for slot in chart.slots] == [False, False, True, False]


def test_the_newest_quarter_of_nights_is_shown_and_few_of_them_named() -> None:
    chart = trend_chart([point(night) for night in range(100)])
    assert chart is not None
    assert (len(chart.slots), chart.is_cut, chart.is_dense) == (90, True, True)
    named = [slot.label for slot in chart.slots if slot.label]
    assert (len(named), named[-1]) == (6, "16 Jan")
    assert chart.slots[-1].x + chart.slots[-1].width == pytest.approx(100, abs=0.01)


def test_runs_of_one_day_are_named_by_their_time() -> None:
    chart = trend_chart([point(), point(at=NOW + 60)])
    assert chart is not None
    assert [slot.label for slot in chart.slots] == ["08:53", "08:54"]


@pytest.mark.parametrize(
    ("least", "step", "digits"), [(0.011, 0.02, 2), (0.21, 0.25, 2), (3.0, 5.0, 0), (0.0, 0.01, 2)]
)
def test_a_step_is_round_and_its_digits_tell_its_multiples_apart(least: float, step: float, digits: int) -> None:
    assert round_step(least) == pytest.approx(step)
    assert decimals(round_step(least)) == digits
