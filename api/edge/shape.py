"""The shape of a JSON document: how deep, how long its lists and texts, whatever it means."""

from __future__ import annotations

import json
from collections.abc import Iterator

from autotuner.errors import InvalidInput

__all__ = ["MAX_DEPTH", "MAX_MEMBERS", "MAX_TEXT", "check_shape"]

MAX_DEPTH = 32
"""The deepest description of ours has 7 levels; a ``config.json`` of a model family rarely more."""

MAX_MEMBERS = 10_000
"""Of a list or an object."""

MAX_TEXT = 10_000
"""Characters; a configuration to import, which is one text, has a bound of its own."""

_LONG = "text"
"""The field that holds a whole configuration."""


def check_shape(body: bytes) -> None:
    """Nothing where the document keeps the bounds, or cannot be read as JSON, which who reads it says better.

    Raises:
        InvalidInput: Naming the first place that breaks one.
    """
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return
    level = [("body", document)]
    for _ in range(MAX_DEPTH):
        level = [member for field, value in level for member in _members(field, value)]
    if level:
        raise InvalidInput(level[0][0], "...", f"must not be nested deeper than {MAX_DEPTH} levels", MAX_DEPTH)


def _members(field: str, value: object) -> Iterator[tuple[str, object]]:
    """What a value holds; of a value that holds nothing, nothing."""
    match value:
        case str() if len(value) > MAX_TEXT and field != _LONG:
            raise InvalidInput(field, value, f"must have {MAX_TEXT} characters or fewer, not {len(value)}", MAX_TEXT)
        case list() | dict() if len(value) > MAX_MEMBERS:
            raise InvalidInput(field, value, f"must have {MAX_MEMBERS} members or fewer, not {len(value)}", MAX_MEMBERS)
        case list():
            yield from ((field, member) for member in value)
        case dict():
            yield from ((field, name) for name in value)
            yield from value.items()
