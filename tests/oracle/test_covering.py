from __future__ import annotations

import os
import random

import pytest

from tests.oracle.axes import AXES
from tests.oracle.covering import Case, covering_set, is_legal, pairs_of, part_of
from tests.oracle.tolerance import agrees
from tests.oracle.training import Distance, Oracle

pytestmark = pytest.mark.oracle

PART = os.environ.get("PAIRS_PART", "1/1")
"""The part of all cases to train; `.ci/run` trains another one with each commit, `make oracle` all of them."""


@pytest.mark.parametrize("case", part_of(covering_set(), PART), ids=str)
def test_a_pair_of_options_trains_as_one_process_does(case: Case, oracle: Oracle) -> None:
    found = oracle.distance(case)
    assert isinstance(found, Distance), found
    assert agrees(found, case.layout.precision), found


def test_a_few_parts_train_all_cases_and_each_of_them_once() -> None:
    cases = covering_set()
    trained = [case for number in range(1, 7) for case in part_of(cases, f"{number}/6")]
    assert len(trained) == len(cases)
    assert set(map(id, trained)) == set(map(id, cases))


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
