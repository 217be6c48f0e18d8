"""What to train with, by a sweep: the answer in a few lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from autotuner.search.text.sentences import in_sentences, signed

_NUM_BEATEN = 3


def answer_view(answer: Mapping[str, Any]) -> RenderableType:
    """The answer in one sentence, how sure it is, what it beats and why.

    Args:
        answer: As the service tells it.
    """
    return Group(Text(f"Best layout: {answer['sentence']}", style="bold"), *(Text(line) for line in _lines(answer)))


def _lines(answer: Mapping[str, Any]) -> Iterator[str]:
    yield f"How sure: {in_sentences(answer['certainty']['sentences'])}"
    told_apart = [one for one in answer["beaten"] if not one["is_tie"]][:_NUM_BEATEN]
    if beaten := [f"{one['said']} ({signed(one['gain'], one['gain_error'])})" for one in told_apart]:
        yield f"It is ahead of {'; '.join(beaten)}."
    if why := answer["why"]:
        yield f"Why it is ahead of {why['than']}: {in_sentences(why['sentences'])}"
