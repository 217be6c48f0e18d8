from __future__ import annotations

import pytest

from tests.oracle.covering import Case, one_by_one
from tests.oracle.tolerance import agrees
from tests.oracle.training import Distance, Oracle

pytestmark = [pytest.mark.oracle, pytest.mark.every_part]


@pytest.mark.parametrize("case", one_by_one(), ids=lambda case: case.values[0].label)
def test_an_option_trains_as_one_process_does(case: Case, oracle: Oracle) -> None:
    found = oracle.distance(case)
    assert isinstance(found, Distance), found
    assert agrees(found, case.layout.precision), found
