"""The output of commands: text and tables for people, JSON for programs."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.text import Text

from autotuner.core import documents

if TYPE_CHECKING:
    from autotuner.report.report import Report

_UNBOUNDED_COLUMNS = 10_000

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that tell a terminal what to do, or turn the order of letters around."""


class PlainConsole(Console):
    """A console that spells control characters out: another user may have put them into a name."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Rich's hook for all that is given as a string, before its width is taken."""
        return super().render_str(_spelt_out(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Rich's hook for all that is printed; its own codes are apart from the text."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(_spelt_out(segment.text), segment.style)


def _spelt_out(text: str) -> str:
    return _CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)


def console() -> Console:
    """Standard output, as wide as the terminal or COLUMNS; a file or a pipe is as wide as its longest line."""
    terminal = PlainConsole()
    if terminal.is_terminal or "COLUMNS" in os.environ:
        return terminal
    return PlainConsole(width=_UNBOUNDED_COLUMNS)


def print_json(document: Any) -> None:
    """The document on standard output, for programs."""
    sys.stdout.write(json.dumps(document, indent=2) + "\n")


T = TypeVar("T")


def show(answer: T, report_of: Callable[[T], Report], *, as_json: bool = False, output: str = "text") -> None:
    """Print an answer: its report for people, as text or as Markdown, or all of it as JSON for programs."""
    if as_json or output == "json":
        print_json(documents.write(answer))
    elif output == "markdown":
        from autotuner.report.markdown import markdown

        sys.stdout.write(markdown(report_of(answer)))
    else:
        from autotuner.report.terminal import render

        console().print(render(report_of(answer)))


@contextmanager
def status(text: str) -> Iterator[Callable[[str], None]]:
    """A moving line on standard error, where that is a terminal; what it says is exchanged by the function given."""
    with PlainConsole(stderr=True, highlight=False).status(escape(text)) as line:
        yield lambda other: line.update(escape(other))
