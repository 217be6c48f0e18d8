"""Types of columns: a whole value as a document of ``core.codec``, a word, a text that every database can hold."""

# ruff: noqa: D102  # SQLAlchemy documents what a type overrides

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from enum import StrEnum
from typing import Any, Generic, TypeVar

from sqlalchemy import Enum, Text
from sqlalchemy.engine import Dialect
from sqlalchemy.types import String, TypeDecorator

from autotuner.core import codec
from autotuner.core.errors import Unreadable

Value = TypeVar("Value")


@contextmanager
def _stored(cls: type[Any], text: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:  # InvalidInput is one
        raise Unreadable(cls.__name__, text, error) from error


def read_document(cls: type[Value], text: str) -> Value:
    """Return the value of a stored text.

    Raises:
        Unreadable: Another release wrote it, or it is damaged.
    """
    with _stored(cls, text):
        return codec.loads(cls, text)


class Document(TypeDecorator[Value], Generic[Value]):
    """A value of the core as the JSON text of ``codec``, schema version included."""

    impl = Text
    cache_ok = True

    def __init__(self, cls: type[Value]) -> None:
        super().__init__()
        self.cls = cls

    def process_bind_param(self, value: Value | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else codec.dumps(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Value | None:  # noqa: ARG002
        return None if value is None else read_document(self.cls, value)


class KnownFields(Document[Value]):
    """A document of which a reader takes the fields it knows, so that a list shows what a newer release wrote."""

    cache_ok = True

    def process_result_value(self, value: str | None, dialect: Dialect) -> Value | None:  # noqa: ARG002
        if value is None:
            return None
        known = {field.name for field in fields(self.cls)}  # type: ignore[arg-type]  # a value of the core is a dataclass
        with _stored(self.cls, value):
            return codec.from_plain(self.cls, {name: part for name, part in json.loads(value).items() if name in known})


class Documents(TypeDecorator[tuple[Value, ...]], Generic[Value]):
    """Values or words of the core as a JSON list."""

    impl = Text
    cache_ok = True

    def __init__(self, cls: type[Value]) -> None:
        super().__init__()
        self.cls = cls

    def process_bind_param(self, value: tuple[Value, ...] | None, dialect: Dialect) -> str:  # noqa: ARG002
        return json.dumps([codec.to_plain(item) for item in value or ()], separators=(",", ":"))

    def process_result_value(self, value: str | None, dialect: Dialect) -> tuple[Value, ...]:  # noqa: ARG002
        with _stored(self.cls, value or ""):
            items = json.loads(value or "[]")
            if issubclass(self.cls, StrEnum):
                return tuple(self.cls(item) for item in items)
            return tuple(codec.from_plain(self.cls, item) for item in items)


class Plain(TypeDecorator[str]):
    """A text that every database can hold: a NUL or half a surrogate pair is escaped.

    A caller's key with such a character is therefore no error; it finds nothing.
    """

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else value.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def word(cls: type[StrEnum]) -> Enum:
    """One of the enum's values as plain text, so that a new member needs no migration."""
    return Enum(cls, native_enum=False, length=32, values_callable=lambda members: [member.value for member in members])
