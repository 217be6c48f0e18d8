from __future__ import annotations

import re

from api.dashboard.charts.waterfall import Fall, signed_seconds, waterfall

FALLS = (Fall(name="tensor collectives", seconds=-15.7), Fall(name="backward", seconds=1.6, is_worth_saying=False))


def test_a_waterfall_is_named_by_its_numbers_and_drawn_for_desk_and_phone() -> None:
    markup = waterfall(("B", 157.0), FALLS, ("A", 142.9))
    assert markup.count('aria-label="From B, 157 s, to A, 143 s: tensor collectives −15.7 s; backward +1.6 s"') == 2
    assert 'viewBox="0 0 896' in markup
    assert 'viewBox="0 0 350' in markup


def test_each_part_begins_where_the_one_before_ended() -> None:
    wide = waterfall(("B", 157.0), FALLS, ("A", 142.9)).split("hide-wide")[0]
    (gain,) = re.findall(r'<rect x="([\d.]+)"[^>]*width="([\d.]+)"[^>]*class="gain"', wide)
    (loss,) = re.findall(r'<rect x="([\d.]+)"[^>]*width="([\d.]+)"[^>]*class="loss"', wide)
    assert float(gain[0]) == float(loss[0])  # it went down to there, and up from there


def test_words_of_callers_are_escaped_and_nothing_is_styled_by_attributes() -> None:
    markup = waterfall(("<b>", 1.0), [Fall(name="<i>", seconds=0.5)], ("A", 1.5))
    assert "<b>" not in markup
    assert "<i>" not in markup
    assert "style=" not in markup


def test_a_change_of_seconds_has_a_true_sign() -> None:
    assert (signed_seconds(-0.23), signed_seconds(15.7)) == ("−230 ms", "+15.7 s")
