"""The shape of a JSON document: how deep it is, how many members its lists and objects have, how long their names are.

A bound on a text belongs to the field that holds it, so it stands with that field; the body bounds all texts together.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from autotuner.core.errors import InvalidInput

MAX_DEPTH = 32
"""The deepest description of ours has 7 levels; a ``config.json`` of a model family rarely more."""

MAX_MEMBERS = 10_000
"""Of a list or an object."""

MAX_FIELD_NAME = 200
"""Characters of the name of a field."""


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
        case list() | dict() if len(value) > MAX_MEMBERS:
            raise InvalidInput(field, value, f"must have {MAX_MEMBERS} members or fewer, not {len(value)}", MAX_MEMBERS)
        case list():
            yield from ((field, member) for member in value)
        case dict():
            for name in value:
                if len(name) > MAX_FIELD_NAME:
                    rule = f"must have {MAX_FIELD_NAME} characters or fewer, not {len(name)}"
                    raise InvalidInput(field, name, rule, MAX_FIELD_NAME)
            yield from value.items()
