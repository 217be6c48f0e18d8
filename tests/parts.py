"""A part of the slow tests, so that each commit runs another one."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest


def left_out_by(part: str, items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Slow tests that a part leaves out: ``2/6`` runs the second of six parts, and each test marked ``every_part``.

    But for those marked, the parts share no test, and together they run all.

    Raises:
        pytest.UsageError: The part is no such fraction.
    """
    if (found := re.fullmatch(r"(\d+)/(\d+)", part)) is None:
        raise pytest.UsageError(f"--part {part}: give two numbers, as in 2/6")
    number, num_parts = map(int, found.groups())
    if not 1 <= number <= num_parts:
        raise pytest.UsageError(f"--part {part}: the first number is 1 to {num_parts}")
    slow = [item for item in items if item.get_closest_marker("oracle") and not item.get_closest_marker("every_part")]
    return [item for place, item in enumerate(slow) if place % num_parts != number - 1]
