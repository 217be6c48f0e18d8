from __future__ import annotations

import pytest

from tests.parts import left_out_by

NUM_PARTS = 6


@pytest.fixture
def items(request: pytest.FixtureRequest) -> list[pytest.Item]:
    """Eleven quick tests, as many slow ones, and one that every part runs."""
    module = request.node.parent
    found = []
    for place in range(11):
        for marks in ([], ["oracle"]):
            item = pytest.Function.from_parent(module, name=f"test_{place}_{marks}", callobj=lambda: None)
            for mark in marks:
                item.add_marker(mark)
            found.append(item)
    always = pytest.Function.from_parent(module, name="test_always", callobj=lambda: None)
    always.add_marker("oracle")
    always.add_marker("every_part")
    return [*found, always]


def test_the_parts_run_each_slow_test_once_and_all_others_every_time(items: list[pytest.Item]) -> None:
    runs = dict.fromkeys(items, 0)
    for number in range(1, NUM_PARTS + 1):
        left_out = left_out_by(f"{number}/{NUM_PARTS}", items)
        for item in items:
            runs[item] += item not in left_out
    for item, count in runs.items():
        is_in_one_part = item.get_closest_marker("oracle") and not item.get_closest_marker("every_part")
        assert count == (1 if is_in_one_part else NUM_PARTS), item


def test_one_part_of_one_leaves_nothing_out(items: list[pytest.Item]) -> None:
    assert left_out_by("1/1", items) == []


@pytest.mark.parametrize("part", ["0/6", "7/6", "1/0", "2", "a/b", "-1/6", ""])
def test_a_part_that_does_not_exist_is_refused(part: str) -> None:
    with pytest.raises(pytest.UsageError, match="--part"):
        left_out_by(part, [])
