from __future__ import annotations

from dataclasses import replace

from api.examples.results import sweep_answer
from autotuner.cli.views.answer import answer_view
from autotuner.domain.wire import to_dict
from autotuner.search.results.answer import Answer
from tests.unit.cli.views.printed import printed


def shown(answer: Answer) -> list[str]:
    return printed(answer_view(to_dict(answer)), 300).splitlines()


def given() -> Answer:
    answer = sweep_answer().answer
    assert answer is not None
    return answer


def test_an_answer_says_what_how_sure_what_it_beats_and_why() -> None:
    what, sure, beaten, why = shown(given())
    assert what.rstrip() == given().sentence
    assert sure.startswith(
        "how sure: 71 % likely the best of 21 with a rank; rank 2 may be as good, 29 % likely the best"
    )
    assert beaten.rstrip() == "it beats: +0.6 ± 1.4 % rank 2"
    assert why.rstrip() == "why, against rank 2: a step is predicted to take 210 ms less in recomputation"


def test_a_layout_alone_beats_none_and_needs_no_reason() -> None:
    assert len(shown(replace(given(), beaten=(), why=None))) == 2
