from __future__ import annotations

import pytest

from api.dashboard.charts.window import WHOLE, Window
from autotuner.errors import InvalidInput


def test_an_address_that_asks_for_nothing_sees_the_whole() -> None:
    assert Window.parse(None) == Window.parse("") == WHOLE
    assert WHOLE.is_whole


@pytest.mark.parametrize("window", [Window(0.25, 0.5), Window(0.0, 0.125), WHOLE])
def test_a_window_reads_what_it_writes(window: Window) -> None:
    assert Window.parse(str(window)) == window


@pytest.mark.parametrize("said", ["0.5", "0.5-0.2", "-1-2", "0-7", "a-b", "0.5-0.5", "0.1-0.2-0.3"])
def test_a_window_that_is_none_is_refused_with_one_that_is(said: str) -> None:
    with pytest.raises(InvalidInput, match="zoom"):
        Window.parse(said)


def test_looking_closer_halves_it_and_looking_farther_doubles_it_again() -> None:
    assert Window(0.25, 0.75).closer == Window(0.375, 0.625)
    assert Window(0.375, 0.625).farther == Window(0.25, 0.75)


def test_it_never_leaves_the_axis() -> None:
    assert Window(0.0, 0.5).earlier == Window(0.0, 0.5)
    assert Window(0.5, 1.0).later == Window(0.5, 1.0)
    assert Window(0.1, 0.9).farther == WHOLE


def test_it_grows_no_narrower_than_single_lines() -> None:
    window = WHOLE
    for _ in range(40):
        window = window.closer
    assert 0.001 < window.high - window.low < 0.01
    assert Window.parse(str(window)).high > window.low
