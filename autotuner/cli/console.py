"""Where commands print: text and tables for people, JSON for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

__all__ = ["console", "plain_table", "print_json", "status"]

_UNBOUNDED_COLUMNS = 10_000

_WORDS = (
    *("layout", "why", "state", "name", "source", "part", "limited by", "time goes to"),
    *("accelerator", "runs on", "last check", "link between", "described as", "kind", "queues", "answer"),
    *("token", "may", "at most", "made", "last used", "counts"),
    *("phase", "way", "cluster", "sweep", "for", "change", "up to layer"),
    "a million tokens take",
    *("posts to", "wants", "format", "delivery", "webhook", "announced", "what", "last answer"),
)
"""Columns of words; all others hold numbers and are set flush right."""

_WRAPPED = (
    "layout",
    "why",
    "source",
    "limited by",
    "time goes to",
    "answer",
    "wants",
    "what",
    "last answer",
    "at most",
    "way",
    "a million tokens take",
)
"""Columns that give way where the terminal is narrow; a number is never cut."""


def console() -> Console:
    """Standard output, as wide as the terminal or COLUMNS; a file or a pipe is as wide as its longest line."""
    terminal = Console(markup=False)
    if terminal.is_terminal or "COLUMNS" in os.environ:
        return terminal
    return Console(markup=False, width=_UNBOUNDED_COLUMNS)


def print_json(document: Any) -> None:
    """The document on standard output, for programs."""
    sys.stdout.write(json.dumps(document, indent=2) + "\n")


@contextmanager
def status(text: str) -> Iterator[Callable[[str], None]]:
    """A moving line on standard error, where that is a terminal; what it says is exchanged by the function given."""
    with Console(stderr=True, markup=False, highlight=False).status(escape(text)) as line:
        yield lambda other: line.update(escape(other))


def plain_table(*columns: str) -> Table:
    """An empty table: columns of words flush left, columns of numbers flush right."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        justify: Literal["left", "right"] = "left" if column in _WORDS else "right"
        table.add_column(column, justify=justify, no_wrap=column not in _WRAPPED, overflow="fold")
    return table
