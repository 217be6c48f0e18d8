"""Pictures of charts: what their axes say."""

from __future__ import annotations

import pytest

from autotuner.report.charts import Axis, Unit
from autotuner.report.drawing import Scale, title_of


@pytest.mark.parametrize(
    ("unit", "low", "high", "title", "labels"),
    [
        ("share", 0.0, 0.4, "of it, %", ["0", "10", "20", "30", "40"]),
        ("share", 0.001, 0.002, "of it, %", ["0.100", "0.125", "0.150", "0.175", "0.200"]),
        ("signed_share", -0.2, -0.05, "of it, %", ["−20 %", "−15 %", "−10 %", "−5 %"]),
        ("bytes", 0.0, 400.0, "of it, B", ["0", "100", "200", "300", "400"]),
        ("s", 0.0, 4e-7, "of it, µs", ["0.0", "0.1", "0.2", "0.3", "0.4"]),
    ],
)
def test_an_axis_is_marked_in_its_unit_however_small_its_values_are(
    unit: Unit, low: float, high: float, title: str, labels: list[str]
) -> None:
    axis = Axis(title="of it", unit=unit, low=low, high=high)
    assert title_of(axis) == title
    assert [label for _, label in Scale(axis, 0, 100).ticks(5)] == labels
