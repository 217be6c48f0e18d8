from __future__ import annotations

from dataclasses import replace

import pytest

from api.dashboard.views.attention import attention_lines
from autotuner.domain.upkeep.trouble import Trouble, TroubleKind
from tests.api.service import NOW

TROUBLE = Trouble(kind=TroubleKind.REGRESSION, subject="a/b", name="a/b", detail="lost 3.3 %", at=NOW)


def test_a_line_says_what_happened_and_leads_to_where_to_go_on() -> None:
    (line,) = attention_lines([TROUBLE], NOW)
    assert (line.word, line.name, line.said) == ("regression", "a/b", "lost 3.3 %")
    assert (line.path, line.action) == ("/retunes/a%2Fb", "See the nights")


@pytest.mark.parametrize(
    ("count", "said"),
    [(1, "a delivery was given up: answered 500"), (3, "3 deliveries were given up: answered 500")],
)
def test_deliveries_of_one_webhook_are_one_line(count: int, said: str) -> None:
    dead = replace(TROUBLE, kind=TroubleKind.DELIVERIES_DEAD, count=count, detail="answered 500")
    assert attention_lines([dead], NOW)[0].said == said


@pytest.mark.parametrize("kind", TroubleKind)
def test_every_kind_of_trouble_has_words_and_a_place(kind: TroubleKind) -> None:
    (line,) = attention_lines([replace(TROUBLE, kind=kind)], NOW)
    assert line.path.startswith("/")
    assert line.word
    assert line.action
