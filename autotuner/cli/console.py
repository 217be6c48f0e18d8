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
    from autotuner.remote import Remote
    from autotuner.report.report import Report

_UNBOUNDED_COLUMNS = 10_000

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that control a terminal or reverse the order of letters."""


class PlainConsole(Console):
    """A console that prints control characters as visible text, since another user may have put them into a name."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Override Rich's conversion of strings: make control characters visible before the width is computed."""
        return super().render_str(_spelt_out(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Override Rich's output of all text: make control characters visible, except those that Rich itself adds."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(_spelt_out(segment.text), segment.style)


def _spelt_out(text: str) -> str:
    return _CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)


def console() -> Console:
    """Return a console for standard output.

    On a terminal, its width is that of the terminal or the value of the variable COLUMNS. Output to a file or a pipe
    has no limit of width.
    """
    terminal = PlainConsole()
    if terminal.is_terminal or "COLUMNS" in os.environ:
        return terminal
    return PlainConsole(width=_UNBOUNDED_COLUMNS)


def print_json(document: Any) -> None:
    """Write a document to standard output as JSON, for programs."""
    sys.stdout.write(json.dumps(document, indent=2) + "\n")


T = TypeVar("T")


def show(answer: T, report_of: Callable[[T], Report], *, as_json: bool = False, output: str = "text") -> None:
    """Print an answer: as a report for people (text or Markdown), or completely as JSON for programs.

    Args:
        answer: The answer.
        report_of: Turns the answer into its report.
        as_json: Print JSON, whatever ``output`` says.
        output: ``text``, ``markdown`` or ``json``.
    """
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
    """Show a text with a moving spinner while the block runs, if standard error is a terminal.

    The block gets a function that replaces the text.
    """
    with PlainConsole(stderr=True, highlight=False).status(escape(text)) as line:
        yield lambda other: line.update(escape(other))


def tell(
    server: str | None,
    read: Callable[[Remote], T],
    report_of: Callable[[T], Report],
    *,
    as_json: bool,
    keep: bool = True,
) -> None:
    """Ask a service, or one that is started in this process, and print its answer.

    Args:
        server: URL of a running service; None: start one in this process.
        read: Gets the answer from the service.
        report_of: Turns the answer into a report for people.
        as_json: Print the answer as JSON instead of the report.
        keep: See ``connect``.
    """
    from autotuner.connections import connect

    with connect(server, keep=keep) as service:
        show(read(service), report_of, as_json=as_json)
