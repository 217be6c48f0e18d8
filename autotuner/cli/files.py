"""Files that arguments name, and standard input."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TextIO

from autotuner.core.codec import parse_object
from autotuner.core.errors import InvalidInput

MAX_CHARACTERS = 2_000_000
"""Maximum size of a file in characters: a service accepts no longer body."""


def read_text(path: str, field: str, *, errors: str = "strict") -> str:
    """Return the text of a file, without the mark that some programs put before UTF-8.

    Raises:
        InvalidInput: There is no such file, it is no text, or it is longer than ``MAX_CHARACTERS``.
    """
    try:
        with Path(path).open(encoding="utf-8-sig", errors=errors) as file:
            return read_open(file, path, field)
    except OSError as error:
        raise InvalidInput(field, path, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(field, path, f"cannot be read: {error}") from error


def read_open(file: TextIO, path: str, field: str) -> str:
    """Return the text of an open file, such as standard input; errors as of ``read_text``."""
    text = file.read(MAX_CHARACTERS + 1)
    if len(text) > MAX_CHARACTERS:
        raise InvalidInput(field, path, f"must have {MAX_CHARACTERS:,} characters or fewer")
    return text


def read_object(path: str, field: str) -> dict[str, Any]:
    """Return the JSON object of a file; errors as of ``read_text``."""
    return parse_object(read_text(path, field), field)


def write_text(path: Path, text: str, option: str) -> None:
    """Write a file into a folder that is made where it is missing.

    Raises:
        InvalidInput: It cannot be written, with the option that names it.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(option, str(path), f"cannot be written: {error.strerror}") from error
