"""What a sweep is refused for before it is stored."""

from __future__ import annotations

import pytest

from autotuner.search.runnable import require_layouts
from autotuner.search.splits import SpaceTooLarge
from tests.builders import sweep_request


def test_a_sweep_of_more_layouts_than_it_may_hold_is_refused_with_their_number() -> None:
    require_layouts(sweep_request())
    with pytest.raises(
        SpaceTooLarge, match=r"space = 'more than 2': legal layouts are more than .*; name fewer values"
    ):
        require_layouts(sweep_request(), most=2)
