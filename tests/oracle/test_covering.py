from __future__ import annotations

import random

import pytest

from tests.oracle.axes import AXES
from tests.oracle.covering import Case, covering_set, is_legal, pairs_of
from tests.oracle.tolerance import agrees
from tests.oracle.training import Distance, Oracle

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("case", covering_set(), ids=str)
def test_a_pair_of_options_trains_as_one_process_does(case: Case, oracle: Oracle) -> None:
    found = oracle.distance(case)
    assert isinstance(found, Distance), found
    assert agrees(found, case.layout.precision), found


def test_every_pair_of_options_that_a_legal_layout_holds_is_trained() -> None:
    draw = random.Random(0)
    trained = {pair for case in covering_set() for pair in pairs_of(case)}
    seen = 0
    for _ in range(20_000):  # plain values mostly, since few layouts of unusual values alone are legal
        row = [draw.choice(values) if draw.random() < 0.3 else values[0] for values in AXES.values()]
        case = Case.of(row)
        if is_legal(case):
            seen += 1
            assert pairs_of(case) <= trained, case
    assert seen > 1_000
