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
    what, sure, why = shown(given())
    assert what.rstrip() == f"Best layout: {given().sentence}"
    assert sure.startswith(
        "How sure: The chance that it is the best of the 21 ranked layouts is 71 %. It is tied with rank 2"
    )
    assert why.rstrip() == "Why it is ahead of rank 2: Its step is predicted to spend 210 ms less on recomputation."


def test_what_is_tied_with_the_best_is_not_called_beaten() -> None:
    (rival,) = given().beaten
    assert rival.is_tie
    beaten = shown(replace(given(), beaten=(rival, replace(rival, said="rank 3", is_tie=False))))[2]
    assert beaten.rstrip() == "It is ahead of rank 3 (+0.6 ± 1.4 %)."


def test_a_layout_alone_beats_none_and_needs_no_reason() -> None:
    assert len(shown(replace(given(), beaten=(), why=None))) == 2
