"""Where commands print: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console

__all__ = ["console", "print_json"]

_PIPE_COLUMNS = 160


def console() -> Console:
    """Standard output; a file or a pipe is as wide as the tables need, a terminal as wide as it is."""
    terminal = Console(markup=False)
    return terminal if terminal.is_terminal else Console(markup=False, width=_PIPE_COLUMNS)


def print_json(document: Any) -> None:
    """The document on standard output, for programs."""
    sys.stdout.write(json.dumps(document, indent=2) + "\n")
