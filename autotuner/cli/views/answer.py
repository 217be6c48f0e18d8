"""What to train with, by a sweep: the answer in a few lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from autotuner.search.text.sentences import signed

__all__ = ["answer_view"]

_NUM_BEATEN = 3


def answer_view(answer: Mapping[str, Any]) -> RenderableType:
    """The answer in one sentence, how sure it is, what it beats and why.

    Args:
        answer: As the service tells it.
    """
    return Group(Text(answer["sentence"], style="bold"), *(Text(line) for line in _lines(answer)))


def _lines(answer: Mapping[str, Any]) -> Iterator[str]:
    yield f"how sure: {'; '.join(answer['certainty']['sentences'])}"
    beaten = [f"{signed(one['gain'], one['gain_error'])} {one['said']}" for one in answer["beaten"][:_NUM_BEATEN]]
    if beaten:
        yield f"it beats: {'; '.join(beaten)}"
    if why := answer["why"]:
        yield f"why, against {why['than']}: {'; '.join(why['sentences'])}"
