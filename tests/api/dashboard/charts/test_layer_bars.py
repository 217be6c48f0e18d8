"""Bars of the layers of communication."""

from __future__ import annotations

import re

from api.dashboard.charts.layer_bars import layer_bars
from api.examples.layers import layer_report


def test_what_a_layer_gives_stands_at_the_end_of_its_bar_alone() -> None:
    wide = layer_bars(layer_report()).split("hide-wide")[0]
    assert len(re.findall(r'class="p-band"', wide)) == 5
    assert len(re.findall(r'class="gain"', wide)) == 1
    assert wide.count("+9") == 1


def test_the_picture_says_in_words_what_each_layer_gives() -> None:
    assert "collectives: hierarchy of collectives flat → two level gives 9 % more" in layer_bars(layer_report())
