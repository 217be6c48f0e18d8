from __future__ import annotations

import math

import pytest

from api.dashboard.views.figures import Scaled
from autotuner.search.table.column import Unit


@pytest.mark.parametrize(
    ("unit", "values", "written", "sign"),
    [
        ("share", [0.441, 0.3], ["44.1", "30.0"], "%"),
        ("share", [0.00441], ["0.441"], "%"),
        ("bytes", [74.8e9, 8e9], ["74.8", "8.0"], "GB"),
        ("bytes", [5.2e6], ["5.20"], "MB"),
        ("s", [0.512], ["512"], "ms"),
        ("s", [144.5, 2.0], ["144", "2"], "s"),
        ("per_s", [57_960.0], ["58.0"], "k"),
        ("dollars", [0.771], ["0.771"], ""),
    ],
)
def test_figures_of_a_column_share_a_unit_and_their_digits(
    unit: Unit, values: list[float], written: list[str], sign: str
) -> None:
    scaled = Scaled.of(unit, values)
    assert [scaled(value) for value in values] == written
    assert scaled.unit == sign


def test_what_is_not_known_is_a_dash_and_a_loss_has_a_true_minus() -> None:
    scaled = Scaled.of("share", [0.5, None, math.nan])
    assert [scaled(None), scaled(math.nan), scaled(-0.1)] == ["–", "–", "−10.0"]
    assert (scaled.half(0.004), scaled.half(None)) == ("± 0.4", "")
    assert Scaled.of("s", [])(None) == "–"


def test_an_interval_that_would_reach_below_zero_is_given_by_its_ends() -> None:
    scaled = Scaled.of("share", [0.279])
    assert scaled.spread(0.279, 0.003) == "± 0.3"
    assert scaled.spread(0.279, 0.405) == "11.4 to 68.4"  # a factor of 2.45 to either side
    assert (scaled.spread(None, 0.1), scaled.spread(0.279, None)) == ("", "")
