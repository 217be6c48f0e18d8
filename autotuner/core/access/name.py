"""What a caller may be called."""

from __future__ import annotations

from autotuner.errors import InvalidInput

__all__ = ["MAX_NAME", "check_name"]

MAX_NAME = 128
"""Characters of a caller's name."""


def check_name(name: str) -> None:
    """Return if a caller can have that name: an account, an address, what a CI job is called.

    Raises:
        InvalidInput: It is empty or too long, does not print, or begins or ends with a space.
    """
    if not name or len(name) > MAX_NAME or not name.isprintable() or name != name.strip():
        rule = f"must be 1 to {MAX_NAME} characters that print, without a space at the ends"
        raise InvalidInput("name", name, rule, name.strip()[:MAX_NAME].strip() or None)
