"""Scripts that measure and that fit constants; the program imports nothing from here."""

from __future__ import annotations

import sys


def say(line: str) -> None:
    """Print a line at once, so that a reader can follow a script that takes minutes."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
