"""Request bodies: described to OpenAPI by pydantic models, read by the one codec alone, so errors have one form."""

from __future__ import annotations

import json
from typing import Any, Union

import pydantic
from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from api.dataclass_schema import MAX_FLOAT, max_integer, schema_of
from autotuner.domain.wire import from_dict
from autotuner.errors import InvalidInput

__all__ = ["CodecBody", "DocumentBody", "refuse_unstorable"]

_MAX_DEPTH = 32
"""No description is nested a quarter as deep; Python's own recursion ends near a thousand."""


class DocumentBody:
    """Metadata of a body that the route reads itself: a JSON object in one of these shapes."""

    def __init__(self, *shapes: type[BaseModel]) -> None:
        shown: Any = Union[shapes]  # noqa: UP007  # built at run time
        self._shown: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(shown)
        self._fractional = _fractional(self._shown.json_schema())

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Hand the body over unread by pydantic."""
        return core_schema.no_info_plain_validator_function(self._validate)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Describe the body by its shapes."""
        return handler(self._shown.core_schema)

    def _validate(self, document: object) -> Any:
        if isinstance(document, bytes):
            raise InvalidInput("body", "bytes", "must be sent with the header Content-Type: application/json")
        if not isinstance(document, dict):
            raise InvalidInput("body", document, "must be a JSON object")
        refuse_unstorable(document, self._fractional)
        return self.read(document)

    def read(self, document: dict[str, Any]) -> Any:
        """What the route gets."""
        return document


class CodecBody(DocumentBody):
    """Metadata of a body that the codec reads into a dataclass: ``Annotated[X, CodecBody(X), Body()]``."""

    def __init__(self, cls: type[Any]) -> None:
        super().__init__(schema_of(cls))  # type: ignore[arg-type]  # a class is hashable; mypy doubts it of type[T]
        self._cls = cls

    def read(self, document: dict[str, Any]) -> Any:
        """The dataclass that the document describes."""
        return from_dict(self._cls, document)


def refuse_unstorable(value: object, fractional: frozenset[str], path: str = "") -> None:
    """Refuse numbers and text that JSON carries and a database or an array does not.

    Args:
        value: Any part of a JSON document.
        fractional: Names of fields that are not counted in whole numbers, even when one is written as such.
        path: Where in the document the part is.

    Raises:
        InvalidInput: With the path of the first such value.
    """
    if path.count(".") > _MAX_DEPTH:
        raise InvalidInput(path[:40], "...", f"must not be nested deeper than {_MAX_DEPTH} levels")
    match value:
        case dict():
            for key, item in value.items():
                refuse_unstorable(key, fractional, path)
                refuse_unstorable(item, fractional, f"{path}.{key}" if path else key)
        case list():
            for index, item in enumerate(value):
                refuse_unstorable(item, fractional, f"{path}.{index}")
        case str() if "\0" in value or not _is_unicode(value):
            raise InvalidInput(path or "body", ascii(value)[1:-1], "must be Unicode text without NUL")
        case bool():
            pass
        case int() | float():
            name = next((part for part in reversed(path.split(".")) if not part.isdigit()), "")
            limit = MAX_FLOAT if isinstance(value, float) or name in fractional else max_integer(name)
            if not abs(value) <= limit:
                raise InvalidInput(path, str(value)[:40], f"must be a number in -{limit:g}..{limit:g}")


def _fractional(schema: JsonSchemaValue) -> frozenset[str]:
    """Names of the properties that are numbers but not whole numbers, anywhere in the schema."""
    objects = [schema, *schema.get("$defs", {}).values()]
    properties = (item for one in objects for item in one.get("properties", {}).items())
    return frozenset(name for name, shape in properties if '"number"' in json.dumps(shape))


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)
