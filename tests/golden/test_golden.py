from __future__ import annotations

import pytest

from tests.golden.golden import differences


@pytest.mark.parametrize(
    ("recorded", "found"),
    [
        ({"a": 1.0}, {"a": 1.0 + 1e-12}),
        (["6.5 s"], ["6.51 s"]),
        (["12.0 % of 8"], ["12.1 % of 8"]),
        ({"a": None}, {"a": None}),
    ],
)
def test_rounding_errors_are_not_a_difference(recorded: object, found: object) -> None:
    assert list(differences(recorded, found)) == []


@pytest.mark.parametrize(
    ("recorded", "found", "where"),
    [
        ({"a": 1.0}, {"a": 1.001}, "a"),
        (["6.5 s"], ["6.7 s"], "[0]"),
        (["trial 3"], ["trial 4"], "[0]"),
        ([1, 2], [1], ""),
        ({"a": {"b": True}}, {"a": {"b": 1}}, "a.b"),
        ({"old": 1}, {"new": 1}, "old"),
    ],
)
def test_a_difference_is_named_by_its_place(recorded: object, found: object, where: str) -> None:
    assert next(differences(recorded, found)).startswith(f"{where}:")
