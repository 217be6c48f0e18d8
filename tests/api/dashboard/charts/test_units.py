from __future__ import annotations

import pytest

from api.dashboard.charts.units import SecondsUnit


@pytest.mark.parametrize(
    ("longest_s", "name", "told"),
    [
        (144.5, "s", "144.50"),
        (2.5, "s", "2.500"),
        (0.0425, "ms", "42.50"),
        (0.0025, "ms", "2.500"),
        (3e-6, "µs", "3.000"),
    ],
)
def test_a_column_is_told_in_the_unit_of_its_longest(longest_s: float, name: str, told: str) -> None:
    unit = SecondsUnit.of(longest_s)
    assert (unit.name, unit.told(longest_s)) == (name, told)


def test_a_difference_has_a_true_minus_and_none_where_it_rounds_to_nothing() -> None:
    unit = SecondsUnit.of(144.5)
    assert [unit.signed(seconds) for seconds in (-1.8, 0.48, -0.001)] == ["−1.80", "+0.48", "0.00"]
