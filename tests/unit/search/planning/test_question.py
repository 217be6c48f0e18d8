from __future__ import annotations

from dataclasses import replace

from autotuner.core import codec
from autotuner.core.choices import Recompute
from autotuner.search.planning.question import plan_id_of
from autotuner.search.planning.request import PlanRequest
from tests.unit.search.planning.requests import request_of

ASKED = replace(
    request_of(),
    prices={"h100": 2.0, "b200": 4.0},
    axes={"recompute": (Recompute.NONE,), "tensor_parallel_degree": None},
)


def test_a_question_is_read_as_it_was_written_with_words_and_options_that_are_left_open() -> None:
    read = codec.loads(PlanRequest, codec.dumps(ASKED))
    assert read == ASKED
    assert isinstance((read.axes["recompute"] or ())[0], Recompute)


def test_equal_questions_have_equal_ids_and_others_have_not() -> None:
    turned = replace(ASKED, prices={"b200": 4, "h100": 2})
    assert plan_id_of(turned) == plan_id_of(ASKED) == plan_id_of(codec.loads(PlanRequest, codec.dumps(ASKED)))
    assert plan_id_of(replace(ASKED, prices={"h100": 2.1, "b200": 4.0})) != plan_id_of(ASKED)
