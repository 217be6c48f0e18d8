"""The one JSON codec: SQL columns, HTTP bodies and trial files all speak it.

A dataclass becomes an object of its fields, a ``Choice`` its word, an enum its value, a tuple a list. Reading is
strict: an unknown or missing field, or a value of another type, is refused with the path to it.
"""

from __future__ import annotations

import hashlib
import json
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from difflib import get_close_matches
from enum import Enum
from functools import cache, partial
from typing import Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from autotuner.core.choices import Choice
from autotuner.core.errors import InvalidInput

__all__ = ["SCHEMA_VERSION", "content_key", "dumps", "from_dict", "from_known", "loads", "to_dict", "without_defaults"]

SCHEMA_VERSION = 1
"""Grows when an old reader would misread a new document."""

T = TypeVar("T")


def dumps(value: Any) -> str:
    """One line of JSON, with the schema version beside the fields."""
    return json.dumps({"schema_version": SCHEMA_VERSION, **to_dict(value)}, allow_nan=False, separators=(",", ":"))


def loads(cls: type[T], text: str) -> T:
    """The value that ``dumps`` wrote.

    Raises:
        InvalidInput: The text is no JSON object, has another schema version, or does not describe a ``cls``.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(cls.__name__, text[:80], f"must be JSON ({error})") from error
    if not isinstance(document, dict):
        raise InvalidInput(cls.__name__, document, "must be a JSON object")
    version = document.pop("schema_version", None)
    if version != SCHEMA_VERSION:
        raise InvalidInput("schema_version", version, "was written by another version", SCHEMA_VERSION)
    return from_dict(cls, document)


def to_dict(value: Any) -> Any:
    """The value as what ``json`` writes: objects, lists, words and numbers; a float that is no number becomes null."""
    if isinstance(value, Choice):
        return value.label
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_dict(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, (list, tuple)):
        return [to_dict(item) for item in value]
    if isinstance(value, dict):
        return {str(key): to_dict(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def without_defaults(value: Any) -> Any:
    """The same without fields at their defaults, at any depth: a field that comes later changes no older value."""
    if is_dataclass(value) and not isinstance(value, type):
        said = ((f, getattr(value, f.name)) for f in fields(value))
        return {f.name: without_defaults(own) for f, own in said if own != _default(f)}
    return [without_defaults(item) for item in value] if isinstance(value, (list, tuple)) else to_dict(value)


def _default(spec: Field[Any]) -> Any:
    return spec.default if spec.default_factory is MISSING else spec.default_factory()


def content_key(*values: Any) -> str:
    """SHA-256 of the values as JSON, in hexadecimal digits: equal values have equal keys, in whatever process."""
    text = json.dumps([to_dict(value) for value in values], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def from_dict(cls: type[T], document: Any, path: str = "") -> T:
    """The dataclass that ``to_dict`` wrote, or that a person wrote by hand; fields with a default may be missing.

    Raises:
        InvalidInput: With the path of the first field that does not fit.
    """
    value: T = _whole(cls, False, document, path)
    return value


def from_known(cls: type[T], document: Any, path: str = "") -> T:
    """The same of what a newer release may have written: fields that it has more are left out.

    Raises:
        InvalidInput: With the path of the first known field that does not fit.
    """
    value: T = _whole(cls, True, document, path)
    return value


def _whole(cls: type[Any], leaves_unknown: bool, document: Any, path: str) -> Any:
    if not isinstance(document, dict):
        raise InvalidInput(path or cls.__name__, document, f"must be an object describing a {cls.__name__}")
    known = _fields(cls, leaves_unknown)  # type: ignore[arg-type]  # a class is hashable; mypy doubts it of type[Any]
    for name in () if leaves_unknown else document:
        if name not in known:
            near = get_close_matches(name, known, 1)
            rule = f"is no field of {cls.__name__}; it has {', '.join(known)}"
            raise InvalidInput(_join(path, name), document[name], rule, near[0] if near else None)
    values = {}
    for name, field in known.items():
        if name in document:
            value = document[name]
            values[name] = value if type(value) is field.plain else field.read(value, _join(path, name))
        elif field.is_required:
            raise InvalidInput(_join(path, name), None, "is required")
    try:
        return cls(**values)
    except InvalidInput as error:
        raise (error.under(path) if path else error) from error


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


# ---------------------------------------------------------------- a reader per type, found once: rows come by thousands
_Read: TypeAlias = Callable[[Any, str], Any]
"""Makes the value of what JSON says, at that path."""


@dataclass(frozen=True, slots=True)
class _Field:
    """How a field is read.

    Attributes:
        plain: What needs no reading; None: every value does.
    """

    read: _Read
    is_required: bool
    plain: type[Any] | None


@cache
def _fields(cls: type[Any], leaves_unknown: bool) -> dict[str, _Field]:
    hints = get_type_hints(cls)
    return {f.name: _field(hints[f.name], f, leaves_unknown) for f in fields(cls)}


def _field(annotation: Any, spec: Field[Any], leaves_unknown: bool) -> _Field:
    is_required = spec.default is MISSING and spec.default_factory is MISSING
    return _Field(_reader(annotation, leaves_unknown), is_required, annotation if annotation in _SCALARS else None)


@cache
def _reader(annotation: Any, leaves_unknown: bool) -> _Read:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        inner = tuple(a for a in args if a is not types.NoneType)
        read = _reader(inner[0], leaves_unknown) if len(inner) == 1 else partial(_read_one_of, inner)
        return partial(_read_optional, read)
    if origin is Literal:
        return partial(_read_word, args)
    if origin is tuple:
        length = None if args[-1] is Ellipsis else len(args)
        return partial(_read_list, _reader(args[0], leaves_unknown), length)
    if origin in (dict, Mapping):
        return partial(_read_object, _reader(args[1], leaves_unknown))
    if isinstance(annotation, type) and is_dataclass(annotation):
        return partial(_whole, annotation, leaves_unknown)
    if isinstance(annotation, type) and issubclass(annotation, Choice):
        return annotation.from_label
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return partial(_read_enum, annotation)
    return partial(_read_scalar, annotation)


def _read_optional(read: _Read, value: Any, path: str) -> Any:
    return None if value is None else read(value, path)


def _read_one_of(scalars: tuple[type[Any], ...], value: Any, path: str) -> Any:
    if type(value) not in scalars:
        raise InvalidInput(path, value, f"must be {' or '.join(_SCALARS[each] for each in scalars)}")
    return value


def _read_word(words: tuple[Any, ...], value: Any, path: str) -> Any:
    if value not in words:
        raise InvalidInput(path, value, f"must be one of {', '.join(map(str, words))}")
    return value


def _read_list(read: _Read, length: int | None, value: Any, path: str) -> Any:
    """A list, of so many items alike where a type says how many."""
    if not isinstance(value, list):
        raise InvalidInput(path, value, "must be a list")
    if length is not None and len(value) != length:
        raise InvalidInput(path, value, f"must be a list of {length}")
    return tuple(read(item, f"{path}.{index}") for index, item in enumerate(value))


def _read_object(read: _Read, value: Any, path: str) -> Any:
    if not isinstance(value, dict):
        raise InvalidInput(path, value, "must be an object")
    return {key: read(item, _join(path, key)) for key, item in value.items()}


def _read_enum(cls: type[Enum], value: Any, path: str) -> Any:
    legal = [member.value for member in cls]
    if value not in legal:
        raise InvalidInput(path, value, f"must be one of {', '.join(map(str, legal))}")
    return cls(value)


_SCALARS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def _read_scalar(annotation: Any, value: Any, path: str) -> Any:
    if annotation in (object, Any):
        return value
    if annotation is float and isinstance(value, int) and not isinstance(value, bool):
        return _as_float(value, path)
    if annotation is float and value is None:
        return math.nan  # what to_dict makes of a float that is no number
    if isinstance(value, annotation) and not (isinstance(value, bool) and annotation is not bool):
        return value
    raise InvalidInput(path, value, f"must be {_SCALARS[annotation]}")


def _as_float(value: int, path: str) -> float:
    try:
        return float(value)
    except OverflowError as error:
        raise InvalidInput(path, value, "is larger than any number that a computer reckons with") from error
