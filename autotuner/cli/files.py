"""Reads files that arguments name, and standard input."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, TextIO

from autotuner.core.codec import parse_object
from autotuner.core.errors import InvalidInput

_LOG = logging.getLogger("autotuner")

MAX_CHARACTERS = 2_000_000
"""Maximum size of a file in characters, because a service accepts no longer body."""


def read_text(path: str, field: str, *, errors: str = "strict") -> str:
    """Return the text of a file, without the byte order mark that some programs write before UTF-8.

    Args:
        path: The file.
        field: The argument or option that names the file, for error messages.
        errors: Way to handle bytes that are not UTF-8, as for Python's ``open``.

    Raises:
        InvalidInput: The file does not exist, is not a text, or is longer than ``MAX_CHARACTERS``.
    """
    try:
        with Path(path).open(encoding="utf-8-sig", errors=errors) as file:
            return read_open(file, path, field)
    except OSError as error:
        raise InvalidInput(field, path, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(field, path, f"cannot be read: {error}") from error


def read_open(file: TextIO, path: str, field: str) -> str:
    """Return the text of an open file, such as standard input.

    Args:
        file: The open file.
        path: Name of the file, for error messages.
        field: The argument or option that names the file, for error messages.

    Raises:
        InvalidInput: The text is longer than ``MAX_CHARACTERS``.
    """
    text = file.read(MAX_CHARACTERS + 1)
    if len(text) > MAX_CHARACTERS:
        raise InvalidInput(field, path, f"has more than {MAX_CHARACTERS:,} characters, the most that can be read")
    _LOG.info("read %s, %d characters", path, len(text))
    return text


def read_object(path: str, field: str) -> dict[str, Any]:
    """Return the JSON object in a file.

    Args:
        path: The file.
        field: The argument or option that names the file, for error messages.

    Raises:
        InvalidInput: The file cannot be read (see ``read_text``), or does not hold a JSON object.
    """
    return parse_object(read_text(path, field), field)


def write_text(path: Path, text: str, option: str) -> None:
    """Write a text to a file, and create its folder if it is missing.

    Raises:
        InvalidInput: The file cannot be written. The error names ``option``, the option that gave the path.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        _LOG.info("wrote %s, %d characters", path, len(text))
    except OSError as error:
        raise InvalidInput(option, str(path), f"cannot be written: {error.strerror}") from error
