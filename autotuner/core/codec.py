"""Plain JSON of values, with the standard library alone: trial files, SQL columns, content keys.

A dataclass becomes an object of its fields, a ``Choice`` its label, an enum its value, a tuple a list. Ranks of a trial
read with this module, because they may not import pydantic. Documents that people or other programs wrote are read with
``documents`` instead. ``from_plain`` only reads output of ``to_plain``, so its error messages are short.
"""

from __future__ import annotations

import hashlib
import json
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from difflib import get_close_matches
from enum import Enum
from functools import cache, partial
from typing import Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from autotuner.core.choices import Choice
from autotuner.core.errors import InvalidInput

SCHEMA_VERSION = 1
"""Version of the document format. It grows when an old reader would misread a new document."""

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """Return a value as plain JSON data (dictionaries, lists, strings, numbers); NaN and infinity become None."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Choice):
        return value.label
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {name: to_plain(getattr(value, name)) for name in _names(type(value))}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


_PLAIN = frozenset({str, int, bool, types.NoneType})


@cache
def _names(cls: type[Any]) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass."""
    return tuple(f.name for f in fields(cls))


def without_defaults(value: Any) -> Any:
    """Return a value as plain JSON data, without the fields that have their default value.

    Therefore a new field of a later release does not change the content keys (hashes) of older values.
    """
    if is_dataclass(value) and not isinstance(value, type):
        stated = ((f, getattr(value, f.name)) for f in fields(value))
        return {f.name: without_defaults(own) for f, own in stated if own != _default(f)}
    return [without_defaults(item) for item in value] if isinstance(value, (list, tuple)) else to_plain(value)


def _default(spec: Field[Any]) -> Any:
    return spec.default if spec.default_factory is MISSING else spec.default_factory()


def content_key(*values: Any) -> str:
    """Return the SHA-256 of the values in hexadecimal. Equal values have equal keys in every process."""
    text = json.dumps([to_plain(value) for value in values], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def dumps(value: Any) -> str:
    """Return a value as one line of JSON: its fields, and the schema version."""
    return json.dumps({"schema_version": SCHEMA_VERSION, **to_plain(value)}, allow_nan=False, separators=(",", ":"))


def parse_json(text: str, field: str, form: str = "JSON", example: str | None = None) -> Any:
    """Return the parsed content of a JSON text that a person or a program sent.

    Args:
        text: The JSON text.
        field: Name of the field that holds the text, for the error message.
        form: Forms that the text may have, for the error message: ``a CSV table or JSON``.
        example: A legal text, for the error message; None: no example is given.

    Raises:
        InvalidInput: The text is not JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(field, text[:60], f"must be {form} ({error})", example) from error


def parse_object(text: str, field: str) -> dict[str, Any]:
    """Return the JSON object in a text that a person or a program sent.

    Args:
        text: The JSON text.
        field: Name of the field that holds the text, for the error message.

    Raises:
        InvalidInput: The text is not JSON, or the JSON is not an object.
    """
    document = parse_json(text, field)
    if not isinstance(document, dict):
        raise InvalidInput(field, text[:60], "must be a JSON object")
    return document


def loads(cls: type[T], text: str) -> T:
    """Return the value whose JSON text ``dumps`` wrote.

    Args:
        cls: Type of the value.
        text: JSON text with the schema version.

    Raises:
        InvalidInput: The text is not a JSON object, has another schema version, or does not describe a ``cls``.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(cls.__name__, text[:80], f"must be JSON ({error})") from error
    if not isinstance(document, dict):
        raise InvalidInput(cls.__name__, document, "must be a JSON object")
    version = document.pop("schema_version", None)
    if version != SCHEMA_VERSION:
        raise InvalidInput(
            "schema_version",
            version,
            "must be the schema version that this release of the autotuner reads",
            SCHEMA_VERSION,
        )
    return from_plain(cls, document)


def from_plain(cls: type[T], document: Any, path: str = "") -> T:
    """Return the value whose plain JSON data ``to_plain`` made. Fields with a default may be missing.

    Args:
        cls: Type of the value.
        document: The plain JSON data.
        path: Path of the data in a larger document, for error messages.

    Raises:
        InvalidInput: A field is unknown, missing or of another type, or a constructor refuses it. The error gives its
            path.
    """
    value: T = _read_value(cls, document, path)
    return value


def _read_value(cls: type[Any], document: Any, path: str) -> Any:
    if not isinstance(document, Mapping):
        raise InvalidInput(path or cls.__name__, document, f"must be an object with the fields of a {cls.__name__}")
    readers, required = _readers(cls)  # type: ignore[arg-type]  # a class is hashable
    if not (document.keys() <= readers.keys() and required <= document.keys()):
        raise _wrong_fields(cls, document, path)
    prefix = f"{path}." if path else ""
    values = {name: readers[name](value, prefix + name) for name, value in document.items()}
    try:
        return cls(**values)
    except InvalidInput as error:
        raise (error.under(path) if path else error) from error


def _wrong_fields(cls: type[Any], document: Mapping[str, Any], path: str) -> InvalidInput:
    """Return the error about the first field that is unknown, or else about the first that is missing."""
    readers, required = _readers(cls)  # type: ignore[arg-type]  # a class is hashable
    for name in document:
        if name not in readers:
            near = get_close_matches(name, readers, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            return InvalidInput(_join(path, name), document[name], f"is not a known field of {cls.__name__}{hint}")
    missing = next(name for name in readers if name in required and name not in document)
    return InvalidInput(_join(path, missing), None, "is required")


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


# ---------------------------------------------------------------- a reader per type, made once: rows come by thousands
_Read: TypeAlias = Callable[[Any, str], Any]
"""A function that makes a value from JSON data; its second argument is the path of the data, for errors."""


@cache
def _readers(cls: type[Any]) -> tuple[Mapping[str, _Read], frozenset[str]]:
    """Return the function that reads each field of a dataclass, and the names of its required fields."""
    hints, specs = get_type_hints(cls), fields(cls)
    required = frozenset(f.name for f in specs if f.default is MISSING and f.default_factory is MISSING)
    return {f.name: _reader(hints[f.name]) for f in specs}, required


@cache
def _reader(hint: Any) -> _Read:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        inner = [each for each in args if each is not types.NoneType]
        is_one = len(inner) == 1 or is_dataclass(inner[0])  # a named object is stored as the object
        read = _reader(inner[0]) if is_one else partial(_read_scalar, tuple(inner))
        return lambda value, path: None if value is None else read(value, path)
    if origin is Literal:
        return partial(_read_word, args)
    if origin is tuple:
        return partial(_read_list, _reader(args[0]), None if args[-1] is Ellipsis else len(args))
    if origin in (dict, Mapping):
        return partial(_read_object, _reader(args[1]))
    if isinstance(origin, type) and is_dataclass(origin):  # of numbers that have a default: StepTime[Number]
        return partial(_read_value, origin)
    if isinstance(hint, TypeVar):
        return _reader(hint.__default__)  # type: ignore[attr-defined]  # of typing_extensions
    if not isinstance(hint, type) or hint in (object, Any):
        return lambda value, _: value
    if is_dataclass(hint):
        return partial(_read_value, hint)
    if issubclass(hint, Choice):
        return hint.from_label
    if issubclass(hint, Enum):
        return partial(_read_enum, hint, tuple(member.value for member in hint))
    return _read_float if hint is float else partial(_read_scalar, (hint,))


def _read_word(words: tuple[Any, ...], value: Any, path: str) -> Any:
    if value not in words:
        raise InvalidInput(path, value, f"must be one of {', '.join(map(str, words))}")
    return value


def _read_enum(cls: type[Enum], words: tuple[Any, ...], value: Any, path: str) -> Any:
    return cls(_read_word(words, value, path))


def _read_list(read: _Read, length: int | None, value: Any, path: str) -> Any:
    if not isinstance(value, list) or length not in (None, len(value)):
        raise InvalidInput(path, value, "must be a list" if length is None else f"must be a list of {length} items")
    return tuple(read(item, f"{path}.{index}") for index, item in enumerate(value))


def _read_object(read: _Read, value: Any, path: str) -> Any:
    if not isinstance(value, Mapping):
        raise InvalidInput(path, value, "must be an object")
    return {key: read(item, _join(path, key)) for key, item in value.items()}


_SCALARS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def _read_scalar(kinds: tuple[type[Any], ...], value: Any, path: str) -> Any:
    if type(value) not in kinds:
        raise InvalidInput(path, value, f"must be {' or '.join(_SCALARS[each] for each in kinds)}")
    return value


def _read_float(value: Any, path: str) -> float:
    if value is None:
        return math.nan  # to_plain makes None of a float that is not a number
    try:
        return float(value) if type(value) is int else _read_scalar((float,), value, path)
    except OverflowError as error:
        raise InvalidInput(path, value, "is too large; the largest number is 1.8e308 (float64)") from error
