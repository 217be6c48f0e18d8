"""Which rules a request breaks: pydantic's errors and the core's in one form."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from difflib import get_close_matches
from typing import Any, get_args, get_type_hints

from api.documents import MAX_NAME, OBJECT, ONE_LINE, TAGS, GivenFields
from autotuner.core.errors import InvalidInput, quoted
from autotuner.core.wire import to_dict

_MAX_SHOWN = 50
"""A list of a million wrong numbers is answered with the first of them."""

_RULES = {
    "missing": "is required",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "string_unicode": "must be Unicode text without NUL",
    "dataclass_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "dict_type": "must be an object",
    "tuple_type": "must be a list",
    "greater_than_equal": "must be {ge} or more",
    "less_than_equal": "must be {le} or less",
    "string_too_long": "must have {max_length} characters or fewer",
    "one_of": "must be one of {words}",
}
"""By pydantic's name of the error; any other is told in pydantic's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One value that breaks one rule.

    Attributes:
        field: Path of the value in the body, or name of the parameter.
        value: What was given; what is longer than a line is cut off.
        rule: What it should have been.
        nearest: The nearest legal value; null where none is known.
    """

    field: str
    value: object
    rule: str
    nearest: object = None

    def __str__(self) -> str:
        return str(InvalidInput(self.field, self.value, self.rule, self.nearest))


def violation(field: str, value: object, rule: str, nearest: object = None) -> Violation:
    """A violation that quotes no more than a line of the field and of the value."""
    text, path = quoted(value), field.replace("\0", "\N{REPLACEMENT CHARACTER}")  # our answers hold no NUL either
    shown = text if "..." in text else to_dict(value)
    return Violation(field=path if len(path) <= 100 else f"{path[:97]}...", value=shown, rule=rule, nearest=nearest)


def violations(found: Sequence[Mapping[str, Any]], body: Any) -> tuple[Violation, ...]:
    """What pydantic found, of the first 50 values at most.

    Args:
        found: Its errors, their paths beginning with where the value was sent.
        body: The type that the body was read as.
    """
    return tuple(_violation(item, body) for item in found[:_MAX_SHOWN])


def _violation(item: Mapping[str, Any], body: Any) -> Violation:
    kind, ctx = item["type"], item.get("ctx", {})
    path = [part for part in item["loc"][1:] if part not in TAGS]
    field = ".".join(map(str, path)) or str(item["loc"][0])
    if isinstance(error := ctx.get("error"), InvalidInput):
        inner = ".".join(filter(None, (*map(str, path), error.field)))
        return violation(inner, error.value, error.rule, error.nearest)
    if kind in ("unexpected_keyword_argument", "extra_forbidden"):
        known = tuple(dict.fromkeys(_fields_at(body, path[:-1])))
        near = _near(path[-1], known)
        return violation(field, item["input"], f"is unknown here; known are {', '.join(known)}", near)
    rule = _RULES[kind].format(**ctx) if kind in _RULES else item["msg"]
    if kind == "dataclass_type" and item["loc"][-1] == OBJECT:
        rule = "must be a name or an object"
    if kind == "string_pattern_mismatch" and "\0" in item["input"]:
        rule = _RULES["string_unicode"]
    elif kind == "string_pattern_mismatch" and ctx["pattern"] == ONE_LINE:
        return violation(field, item["input"], "must be one line without control characters", _one_line(item["input"]))
    if isinstance(item["input"], bytes):
        return violation(field, "bytes", "must be sent with the header Content-Type: application/json")
    return violation(field, None if kind == "missing" else item["input"], rule, _nearest(kind, ctx, item["input"]))


def _nearest(kind: str, ctx: Mapping[str, Any], value: object) -> object:
    if kind == "one_of":
        return _near(value, ctx["words"].split(", "))
    return next((ctx[name] for name in ("ge", "le") if name in ctx), None)


def _one_line(text: str) -> str:
    return " ".join("".join(letter if re.fullmatch(ONE_LINE, letter) else " " for letter in text[:MAX_NAME]).split())


def _near(word: object, known: Sequence[str]) -> str | None:
    near = get_close_matches(str(word)[:100], known, 1)
    return near[0] if near else None


# ---------------------------------------------------------------- names that an object may have
def _fields_at(annotation: Any, path: Sequence[str | int]) -> Iterator[str]:
    """Every field of the dataclasses that may stand at that path of an annotated value."""
    if not path:
        for cls in dataclasses_in(annotation):
            yield from get_type_hints(cls)
        return
    first, *rest = path
    if isinstance(first, int):
        yield from _fields_at(annotation, rest)
        return
    for cls in dataclasses_in(annotation):
        if first in (hints := get_type_hints(cls, include_extras=True)):
            yield from _fields_at(hints[first], rest)


def dataclasses_in(annotation: Any) -> Iterator[type[Any]]:
    """The dataclasses that a value of that type is or directly holds."""
    if isinstance(annotation, type) and is_dataclass(annotation):
        yield annotation
    for inner in (*get_args(annotation), *getattr(annotation, "__metadata__", ())):
        yield from dataclasses_in(inner.cls if isinstance(inner, GivenFields) else inner)
