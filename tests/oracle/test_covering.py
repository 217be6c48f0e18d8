from __future__ import annotations

import random

import pytest

from tests.oracle.axes import AXES
from tests.oracle.covering import Case, covering_set, is_legal, pairs_of
from tests.oracle.tolerance import agrees
from tests.oracle.training import Distance, Oracle

pytestmark = pytest.mark.oracle


NUM_CASES = 117
"""How many layouts cover all pairs: to find them takes seconds, which only who runs a test spends."""


@pytest.mark.parametrize("number", range(NUM_CASES))
def test_a_pair_of_options_trains_as_one_process_does(number: int, oracle: Oracle) -> None:
    case = covering_set()[number]
    found = oracle.distance(case)
    assert isinstance(found, Distance), (str(case), found)
    assert agrees(found, case.layout.precision), (str(case), found)


@pytest.mark.every_part
def test_no_layout_that_covers_a_pair_is_left_out() -> None:
    assert len(covering_set()) == NUM_CASES


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
