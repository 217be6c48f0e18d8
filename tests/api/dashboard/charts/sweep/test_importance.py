from __future__ import annotations

from api.dashboard.charts.sweep.importance import Explained, importance
from tests.api.dashboard.charts.drawn import number, one, words


def test_a_choice_has_its_share_between_what_only_it_and_what_it_alone_explains() -> None:
    drawn = importance([Explained(name="recompute", least=0.1, most=0.5, share=0.3)], 700)
    assert drawn is not None
    band, dot = one(drawn, "p-band"), one(drawn, "m-dot")
    assert number(band, "x") < number(dot, "cx") < number(band, "x") + number(band, "width")
    assert {"recompute", "30 %"} <= set(words(drawn))


def test_without_a_choice_there_is_no_picture() -> None:
    assert importance([], 700) is None
