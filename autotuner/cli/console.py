"""The output of commands: text and tables for people, JSON for programs."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Timer
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from autotuner.core import documents

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

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


# ---------------------------------------------------------------- standard error
_LOG = logging.getLogger("autotuner")
"""Logger whose level --quiet and --verbose set."""

_PATIENCE_S = 0.5
"""Seconds of work before a bar appears. A command needs about half a second before its work begins."""


def notes(*, quiet: bool = False) -> Console:
    """Return a console for notes on standard error, beside the answer on standard output.

    It prints nothing with --quiet, or if ``quiet`` is True.
    """
    return PlainConsole(stderr=True, quiet=quiet or _LOG.level >= logging.ERROR)


def print_error(text: str) -> None:
    """Print an error on standard error, also with --quiet."""
    PlainConsole(stderr=True).print(Text.assemble(("error", "bold red"), f": {text}"), soft_wrap=True)


def is_watched(console: Console) -> bool:
    """Return True if somebody sees the notes of this console at a terminal, so that they may move."""
    return console.is_interactive and console.file.isatty() and not console.quiet


class LogLines(logging.Handler):
    """Prints the notes of --verbose on standard error, with control characters as visible text."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one note."""
        notes().print(Text(record.getMessage(), style="dim"), soft_wrap=True)


class Bar:
    """A bar that shows the progress of a command's work; it does nothing if nobody watches."""

    def __init__(self, progress: Progress | None = None, task: TaskID | None = None) -> None:
        self._progress = progress
        self._task = task

    def say(self, text: str) -> None:
        """Show a text before the bar."""
        self._update(description=text)

    def count(self, done: int, known: int) -> None:
        """Show the number of finished pieces of work, and the number of all pieces known so far."""
        self._update(completed=done, total=known, count=f"{done} of {known}")

    def _update(self, **shown: Any) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, **shown)


@contextmanager
def progress(text: str) -> Iterator[Bar]:
    """Show a text, a bar and the time on standard error while the block runs, and remove them at its end.

    They appear only on a terminal, without --quiet, and if the block takes more than half a second. The bar moves to
    and fro until the block counts its work.
    """
    console = notes()
    if not is_watched(console):
        yield Bar()
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[count]}"))
    # the answer goes to standard output, which may be no terminal
    bar = Progress(*columns, TimeElapsedColumn(), console=console, transient=True, redirect_stdout=False)
    task = bar.add_task(text, total=None, count="")
    start = Timer(_PATIENCE_S, bar.start)
    start.daemon = True
    start.start()
    try:
        yield Bar(bar, task)
    finally:
        start.cancel()
        start.join()
        bar.stop()


# ---------------------------------------------------------------- services
@contextmanager
def open_service(server: str | None, **options: Any) -> Iterator[Remote]:
    """Connect to a service as ``autotuner.connections.connect`` does, and show progress until it answers."""
    from autotuner.connections import connect

    with ExitStack() as stack:
        with progress("connecting" if server else "starting the service in this process"):
            found = stack.enter_context(connect(server, **options))
        yield found


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
    with open_service(server, keep=keep) as asked:
        with progress("waiting for the service"):
            found = read(asked)
        show(found, report_of, as_json=as_json)
