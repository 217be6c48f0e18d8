"""Reads and writes values as JSON with pydantic, strictly, and reports every field that does not fit.

REST, the command line, the catalog's tables and files read with this module what people and other programs wrote:
``read`` refuses unknown fields, values of another type, numbers without bounds and text with a NUL. ``Document[X]`` is
``X`` to Python and the same strict reading to FastAPI. Ranks of a trial may not import pydantic; they use ``codec``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from functools import cache, partial
from typing import Annotated, Any, TypeAlias, TypeVar, cast, get_args, get_origin, get_type_hints

from pydantic import (
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Tag,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import SchemaValidator, core_schema
from pydantic_core.core_schema import CoreSchema, ValidatorFunctionWrapHandler

from autotuner.core.choices import Choice
from autotuner.core.codec import to_plain
from autotuner.core.errors import InvalidDocument, InvalidInput, Violation, quoted
from autotuner.core.signals import interrupts_held
from autotuner.core.value import OrNull, bounds_in, broken, derived_of

MAX_INTEGER = 2**31 - 1
_MAX_BYTES = 2**63 - 1
"""Largest whole number of bytes, which fits a SQL column and an array. Other whole numbers have smaller bounds."""

_MAX_FLOAT = 1e30
"""Largest rate, time or price. Products of a few such numbers stay finite."""

MAX_NAME = 200
"""Most characters of a name. Stored names are shown in lists at full length."""

MAX_TEXT = 10_000
"""Most characters of a text whose field states no bound of its own."""

MAX_WORDS = 1000
"""Most characters of a value that is written in words, such as a layout's name. A layout that sets every option has
half as many."""

ONE_LINE = r"^[^\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]*$"
"""Pattern of a text without line breaks, terminal control characters and characters that change
the direction of text."""

Label: TypeAlias = Annotated[str, Field(max_length=500, pattern=ONE_LINE)]
"""One line of text that a caller writes for people."""

PARAGRAPHS = ONE_LINE.replace(r"\x00-\x1f", r"\x00-\x08\x0b-\x1f")
"""Pattern of a text that may also have tabs and line breaks."""

Note: TypeAlias = Annotated[str, Field(max_length=2000, pattern=PARAGRAPHS)]
"""Several lines of text that a caller writes for people."""

_KEY = r"^[A-Za-z0-9][A-Za-z0-9._:+-]{0,127}$"

Key: TypeAlias = Annotated[str, Field(pattern=_KEY)]
"""A name that may be part of a URL."""

_STORABLE_TEXT = "^[^\\x00]*$"
"""Pattern of a text without NUL characters, which PostgreSQL cannot store."""

_NOT_SCHEMAS = frozenset({"cls", "config", "default", "expected", "function", "metadata", "serialization"})

T = TypeVar("T")


@cache
def _hints(cls: Any) -> Mapping[str, Any]:
    """Return the types of a dataclass's fields, with their marks."""
    return get_type_hints(cls, include_extras=True)


# ---------------------------------------------------------------- reading
def read(cls: type[T], document: Any, path: str = "") -> T:
    """Return the value that a JSON document from a caller describes. Fields with a default may be missing.

    Args:
        cls: Type of the value.
        document: Parsed JSON of the value.
        path: Path of the document in the whole request, for error messages.

    Raises:
        InvalidDocument: Some fields are not valid. The error lists each one: its path, its value, the rule that it
            breaks, and the nearest legal value.
    """
    return _read(cls, document, path, is_own=False)


def restore(cls: type[T], document: Any, path: str = "") -> T:
    """Return the value of a JSON document that this product wrote itself, such as one in its store.

    The types and bounds of all fields are checked, but not the general limits on the sizes of numbers and texts.
    Unknown fields, which a newer release may have written, are ignored.

    Args:
        cls: Type of the value.
        document: Parsed JSON of the value.
        path: Path of the document in a larger one, for error messages.

    Raises:
        InvalidDocument: Some fields have a wrong type. The error lists them in the same way as the error of ``read``.
    """
    return _read(cls, document, path, is_own=True)


def write(value: Any) -> Any:
    """Return a value as JSON data for an answer: its fields, and its properties that are marked ``derived``."""
    if is_dataclass(value) and not isinstance(value, type):
        names = (*(each.name for each in fields(value)), *derived_of(type(value)))
        own = {name: getattr(value, name) for name in names}
        alone = {name: _name_of(own[name]) for name in _named_alone(type(value)) if own[name] is not None}
        return {name: write(one) for name, one in (own | alone).items()}
    if isinstance(value, (list, tuple)):
        return [write(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): write(item) for key, item in value.items()}
    return to_plain(value)


_AS_WRITTEN = core_schema.plain_serializer_function_ser_schema(write)
"""pydantic serialization of an object in answers: only the given fields are written."""


def _name_of(thing: Any) -> str:
    """Return the name of a resolved object, as answers show it."""
    return thing if isinstance(thing, str) else cast("str", thing.name)


def _read(cls: type[T], document: Any, path: str, *, is_own: bool) -> T:
    try:
        return cast("T", _validator(cast("Any", cls), is_own=is_own).validate_python(document))
    except ValidationError as error:
        raise InvalidDocument(complaints(error.errors(), cls, path), error.error_count()) from None


# Pydantic reports an interrupt that arrives while it builds a schema as an error of the schema, or loses it.
@cache
@interrupts_held()
def _validator(cls: Any, *, is_own: bool) -> SchemaValidator:
    return SchemaValidator(_walked(cls, is_own=True) if is_own else strict_schema(cls))


@cache
@interrupts_held()
def strict_schema(cls: Any) -> CoreSchema:
    """Return pydantic's schema of a type in strict form: no conversions, no unknown fields, bounds for all values.

    The result is cached, because it takes long to make.
    """
    return _walked(cls, is_own=False)


def _walked(cls: Any, *, is_own: bool) -> CoreSchema:
    _prepare(cls)
    schema: Any = TypeAdapter(cls).core_schema
    definitions = {definition["ref"]: definition for definition in schema.get("definitions", ())}
    made = _Strictness(definitions, is_own).of(schema["schema"] if definitions else schema, "")
    return cast("CoreSchema", made)


@cache
def _prepare(cls: Any) -> None:
    """Put pydantic's schema of each dataclass in a type where pydantic looks for it, those of its parts first.

    Otherwise pydantic makes the schema of a dataclass anew for each dataclass that has it as a part.
    """
    if isinstance(cls, type) and is_dataclass(cls):
        for hint in _hints(cls).values():
            _prepare(hint)
        cls.__pydantic_core_schema__ = TypeAdapter(cls).core_schema  # type: ignore[attr-defined]
    else:
        for part in get_args(cls):
            _prepare(part)


class _Strict:
    """Metadata of ``Document`` that makes pydantic read a type strictly. The schema is made when it is first needed.

    A service has a hundred types, and most of its processes read and describe only a few of them.
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return a schema that reads strictly, and accepts values as they are; pydantic calls this hook."""
        cls = get_origin(source) or source

        def strict(document: Any) -> Any:
            is_value = is_dataclass(cls) and isinstance(document, cast("type", cls))
            return document if is_value else _validator(source, is_own=False).validate_python(document)

        def describe(_: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
            return handler(core_schema.definitions_schema(strict_schema(source), []))

        metadata = {"pydantic_js_annotation_functions": [describe]}
        return core_schema.no_info_plain_validator_function(strict, metadata=metadata, serialization=_AS_WRITTEN)


Document: TypeAlias = Annotated[T, _Strict()]
"""A value that travels as JSON."""


@dataclass(frozen=True, slots=True)
class GivenFields:
    """A mark (in ``Annotated``) for a field that is a mapping: the fields of a dataclass that a caller gave."""

    cls: type[Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of a mapping of given fields; pydantic calls this hook."""
        whole = handler.generate_schema(self.cls)
        return core_schema.no_info_wrap_validator_function(self._given, whole, serialization=_AS_WRITTEN)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the JSON schema of a mapping of given fields; pydantic calls this hook."""
        return {"anyOf": [_NAME_SCHEMA, handler(schema)]} if self.takes_name else handler(schema)

    @property
    def takes_name(self) -> bool:
        """True if the name of a catalog entry may be given instead of the fields."""
        return self.cls in _IN_SHORT

    def _given(self, document: Any, read: ValidatorFunctionWrapHandler) -> dict[str, object]:
        whole = _IN_SHORT[self.cls].whole(document) if self.takes_name else document
        value = read(whole)
        return {name: getattr(value, name) for name in whole}


_NAME_SCHEMA = {"type": "string", "pattern": _STORABLE_TEXT}
_BASE_SCHEMA = _NAME_SCHEMA | {"description": "Name of the catalog; fields that are left out are as there."}


@dataclass(frozen=True, slots=True, eq=False)
class Described:
    """A mark (in ``Annotated``) for a dataclass that callers may also write as a catalog name with some changes."""

    whole: Callable[[object], Any]
    """A function that makes the whole document from a short form. It keeps unknown fields, so that they are refused
    later."""
    base: str
    """Name of the field that holds the name of the base document."""
    parts: Collection[str] = ()
    """Fields that may hold a name instead of an object."""
    other: Mapping[str, Any] = field(default_factory=dict)
    """JSON schema of another form in which the document may be written."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return a schema that also reads the short form; pydantic calls this hook."""
        return core_schema.no_info_before_validator_function(self.whole, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return a JSON schema without required fields, because the base provides them; pydantic calls this hook."""
        in_short = self._in_short(handler(schema), handler, is_named=True)
        return {"anyOf": [in_short, dict(self.other)]} if self.other else in_short

    def _in_short(self, shape: dict[str, Any], handler: GetJsonSchemaHandler, *, is_named: bool) -> dict[str, Any]:
        if "anyOf" in shape:
            return shape | {"anyOf": [self._in_short(one, handler, is_named=is_named) for one in shape["anyOf"]]}
        whole = handler.resolve_ref_schema(shape)
        if "properties" not in whole:
            return shape
        fields = {name: self._field(name, field, handler) for name, field in whole["properties"].items()}
        in_short = {key: value for key, value in whole.items() if key not in ("required", "description")}
        in_short["title"] = f"{whole['title']} in short"
        return in_short | {"properties": ({self.base: _BASE_SCHEMA} if is_named else {}) | fields}

    def _field(self, name: str, shape: dict[str, Any], handler: GetJsonSchemaHandler) -> dict[str, Any]:
        is_named = name in self.parts
        in_short = self._in_short(shape, handler, is_named=is_named)
        return {"anyOf": [_NAME_SCHEMA, in_short]} if is_named else in_short


@dataclass(frozen=True, slots=True, eq=False)
class InWords:
    """A mark (in ``Annotated``) for a value that callers may also write as a text, such as a layout by its name."""

    read: Callable[[str], Any]
    """A function that makes the document from a text."""
    about: str
    """Description of the text, for the schema."""
    max_length: int = MAX_WORDS
    """Most characters of the text."""
    examples: tuple[str, ...] = ()
    """Examples for the schema."""
    check: Callable[[Any], Any] = lambda value: value
    """A function that returns a value that is legal in a request, and raises an error for any other value."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return a schema that also reads text; pydantic calls this hook."""
        read = core_schema.no_info_before_validator_function(self._document, handler(source))
        return core_schema.no_info_after_validator_function(self.check, read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return a JSON schema that also allows text; pydantic calls this hook."""
        text = _NAME_SCHEMA | {"maxLength": self.max_length, "description": self.about}
        shown = {"examples": list(self.examples)} if self.examples else {}
        return {"anyOf": [text | shown, handler(schema)]}

    def _document(self, given: object) -> object:
        if not isinstance(given, str):
            return given
        if len(given) > self.max_length:
            rule = f"has {len(given):,} characters, but at most {self.max_length:,} can be read"
            raise InvalidInput("", given[:60], rule)  # pydantic knows the path
        try:
            return self.read(given)
        except InvalidInput as error:  # pydantic knows the path
            raise InvalidInput("", error.value, error.rule, error.nearest) from error


def extended(cls: type[T], /, *values: Any, **more: object) -> T:
    """Return a value of type ``cls`` that takes its fields from other dataclass values and from keyword arguments.

    Args:
        cls: Type of the result.
        *values: Dataclass values. Each of their fields that ``cls`` also has is copied. If several values have a field,
            the last value counts.
        **more: Further fields, which replace copied ones.
    """
    names = {each.name for each in fields(cast("Any", cls))}
    shared = {each.name: getattr(one, each.name) for one in values for each in fields(one) if each.name in names}
    return cls(**shared | more)


# ---------------------------------------------------------------- a thing, or a name of it
NAME, OBJECT, CONFIG = TAGS = ("(name)", "(object)", "(config)")
"""Tags of the forms in which a value of a union may be written. pydantic puts the tag into the path of an error."""

_IN_SHORT: dict[type[Any], Described] = {}
"""Short forms in which a type may be written, by type."""


def write_in_short(cls: type[Any], described: Described) -> None:
    """Register the short form in which callers may write values of a type.

    The catalog calls this function, because only the catalog knows the names that a short form may contain.

    Args:
        cls: Type of the values.
        described: The short form: the function that expands it, and the fields that may hold a name.
    """
    _IN_SHORT[cls] = described


@dataclass(frozen=True, slots=True)
class Name:
    """A mark (in ``Annotated``) for a field that takes the name of an object, or optionally the object itself."""

    alone: bool = False
    """True if the field takes only a name; otherwise it also takes the object itself."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return a schema that reads a name or an object; pydantic calls this hook."""
        if self.alone:
            return core_schema.str_schema(serialization=core_schema.plain_serializer_function_ser_schema(_name_of))
        cls: Any = named_thing(source)
        thing = Annotated[cls, _IN_SHORT[cls], Tag(OBJECT)]  # a KeyError: nobody imported the catalog's short forms
        return handler.generate_schema(Annotated[Annotated[str, Tag(NAME)] | thing, Discriminator(_name_or_object)])


Named: TypeAlias = Annotated[T | str, Name()]
"""An object, or its name: stored, in the catalog, or in notation (``h100:64``)."""

OnlyNamed: TypeAlias = Annotated[T | str, Name(alone=True)]
"""The name of a stored or catalog object. The object itself cannot be given instead."""


def _name_or_object(value: object) -> str:
    return NAME if isinstance(value, str) else OBJECT


@cache
def _named_alone(cls: Any) -> Sequence[str]:
    """Return the names of the fields of a dataclass that accept a name only, and no object."""
    return [name for name, hint in _hints(cls).items() if _takes_name_alone(hint)]


def _takes_name_alone(hint: Any) -> bool:
    marks = getattr(hint, "__metadata__", ())
    return Name(alone=True) in marks or any(map(_takes_name_alone, get_args(hint)))


def named_thing(union: Any) -> type[Any]:
    """Return the type in a union such as ``Cluster | str`` that is not ``str``."""
    found: type[Any] = next(each for each in get_args(union) if each is not str)
    return found


# ---------------------------------------------------------------- strictness
_STRICT_OBJECTS: dict[tuple[type[Any], bool], dict[str, Any]] = {}
"""The strict schema of each dataclass that is a part of several documents; the bool is ``is_own``."""


@dataclass(frozen=True, slots=True)
class _Strictness:
    """A strict copy of a schema: every number and text has bounds, and no object takes unknown fields."""

    definitions: Mapping[str, Any]
    """pydantic schemas by reference. No type of this project contains itself."""
    is_own: bool
    """True for documents that this project wrote. Their sizes have only the bounds of the fields, and their objects may
    have unknown fields."""
    made: dict[tuple[str, str], Any] = field(default_factory=dict)
    """Schemas that were made strict, by reference and field, so that a type that occurs often is processed once."""

    def of(self, node: Any, name: str) -> Any:
        """Return the strict copy of a schema, or of a part of a schema, that describes the field of that name."""
        match node:
            case {"type": "int"}:
                return {**self._integers(node, name), **node, "strict": True}
            case {"type": "float"}:
                return {**self._limits(node, _MAX_FLOAT), **node, "strict": True, "allow_inf_nan": False}
            case {"type": "str"} if name == "name" and not self.is_own:
                return {"pattern": ONE_LINE, "max_length": MAX_NAME, **node, "strict": True}
            case {"type": "str"}:
                bounds = {} if "max_length" in node else {"max_length": MAX_TEXT, "metadata": _without_bound(node)}
                return {"pattern": _STORABLE_TEXT, **node, **bounds, "strict": True} if not self.is_own else node
            case {"type": "bool"}:
                return {**node, "strict": True}
            case {"type": "enum"} | {"type": "literal"}:
                return _words(node)
            case {"type": "definition-ref"}:
                key = node["schema_ref"], name
                if key not in self.made:
                    self.made[key] = self.of(self.definitions[node["schema_ref"]], name)
                return self.made[key]
            case {"type": "dataclass"}:
                return self._object(node)
            case Mapping():
                return {key: value if key in _NOT_SCHEMAS else self.of(value, name) for key, value in node.items()}
            case list():
                return [self.of(item, name) for item in node]
        return node

    def _integers(self, node: Mapping[str, Any], name: str) -> dict[str, Any]:
        if name.endswith("_parameters"):  # counted by us, of whatever sizes somebody sent
            return {"ge": 0}
        return self._limits(node, _MAX_BYTES if name.endswith("_bytes") else MAX_INTEGER)

    def _limits(self, node: Mapping[str, Any], limit: float) -> dict[str, Any]:
        if self.is_own:
            return {}
        return ({} if "gt" in node else {"ge": -limit}) | ({} if "lt" in node else {"le": limit})

    def _object(self, node: Mapping[str, Any]) -> dict[str, Any]:
        own, key = {name: value for name, value in node.items() if name != "ref"}, (node["cls"], self.is_own)
        if getattr(node["cls"], "__parameters__", ()):  # its parts differ from use to use
            made = self._made_object(own)
        else:
            if key not in _STRICT_OBJECTS:
                _STRICT_OBJECTS[key] = self._made_object(own)
            made = _STRICT_OBJECTS[key]
        return {**made, **({"ref": node["ref"]} if "ref" in node else {})}

    def _made_object(self, node: Mapping[str, Any]) -> dict[str, Any]:
        arguments, hints = node["schema"], _hints(node["cls"])
        described = [
            {**each, "schema": _or_null(self.of(each["schema"], each["name"]), hints[each["name"]])}
            for each in arguments["fields"]
        ]
        config = {**node.get("config", {}), "extra_fields_behavior": "ignore" if self.is_own else "forbid"}
        names = tuple(derived_of(node["cls"]))
        if not names:
            return {**node, "schema": {**arguments, "fields": described}, "config": config}
        shown = [core_schema.computed_field(name, core_schema.any_schema()) for name in names]
        made: Any = {
            **node,
            "schema": {**arguments, "fields": described, "computed_fields": shown},
            "config": config,
        }
        return {**core_schema.no_info_before_validator_function(partial(_without, names), made)}


def _without(names: Collection[str], document: object) -> object:
    """Return a document without the keys in ``names``, whose values follow from the other fields."""
    if not isinstance(document, Mapping):
        return document
    return {name: value for name, value in document.items() if name not in names}


def _without_bound(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata without the bound ``MAX_TEXT``.

    The bound would be wrong in the JSON schema, which describes answers too.
    """

    def described(schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {key: value for key, value in handler(schema).items() if key != "maxLength"}

    metadata = dict(node.get("metadata", {}))
    return {**metadata, "pydantic_js_functions": [*metadata.get("pydantic_js_functions", ()), described]}


def _or_null(schema: Any, hint: Any) -> Any:
    """Return the schema of a field in which null stands for each number that is NaN or infinite."""
    if schema["type"] == "default":
        return {**schema, "schema": _or_null(schema["schema"], hint)}
    if any(isinstance(mark, OrNull) for mark in getattr(hint, "__metadata__", ())):
        return core_schema.no_info_after_validator_function(_number, core_schema.nullable_schema(schema))
    if schema["type"] == "tuple":
        items = zip(schema["items_schema"], get_args(hint), strict=False)
        return {**schema, "items_schema": [_or_null(item, inner) for item, inner in items]}
    return schema


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _words(node: Mapping[str, Any]) -> Any:
    """Return the schema of an enum's words: the label of a ``Choice``, or the value of another enum."""
    cls: Any = node.get("cls")
    if is_choice := isinstance(cls, type) and issubclass(cls, Choice):
        words = list(cls.labels())
        inner: Any = core_schema.literal_schema(words)
    else:
        words = [str(getattr(member, "value", member)) for member in node.get("members", node.get("expected"))]
        inner = {key: value for key, value in node.items() if key != "ref"}
    schema: Any = core_schema.custom_error_schema(
        inner, "one_of", custom_error_message="must be one of {words}", custom_error_context={"words": ", ".join(words)}
    )
    if is_choice:
        by_label = core_schema.to_string_ser_schema(when_used="always")
        schema = core_schema.no_info_after_validator_function(cls.from_label, schema, serialization=by_label)
    return {**schema, **({"ref": node["ref"]} if "ref" in node else {})}


# ---------------------------------------------------------------- what does not fit
_MAX_SHOWN = 50
"""Most errors in one answer, because a list may contain a million wrong numbers."""

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
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be {ge} or more",
    "less_than_equal": "must be {le} or less",
    "string_too_long": "must have {max_length} characters or fewer",
    "too_long": "must have {max_length} items or fewer",
    "one_of": "must be one of {words}",
}
"""Our wording for each of pydantic's error types. Other errors keep pydantic's wording."""

_UNKNOWN = frozenset({"unexpected_keyword_argument", "extra_forbidden"})
_BROKEN_BOUNDS = frozenset({"greater_than", "greater_than_equal", "less_than", "less_than_equal"})


def complaints(
    found: Iterable[Mapping[str, Any]], cls: Any, path: str = "", whole: str = ""
) -> tuple[InvalidInput, ...]:
    """Return pydantic's validation errors as ``InvalidInput``, at most 50. Unknown fields come before other errors.

    Args:
        found: Errors of pydantic. Their paths start at the value that was read.
        cls: Type that the value was read as.
        path: Path of the value in the whole document. It is put before the path of each error.
        whole: Name of the value in messages about the whole value, if ``path`` is empty.
    """
    by_kind = sorted(found, key=lambda item: item["type"] not in _UNKNOWN)
    return tuple(_complaint(item, cls, path, whole) for item in by_kind[:_MAX_SHOWN])


def violation(error: InvalidInput) -> Violation:
    """Return an error as a ``Violation`` for an answer. Long paths and values are cut off after about one line."""
    text, path = quoted(error.value), error.field.replace("\0", "\N{REPLACEMENT CHARACTER}")  # answers hold no NUL
    shown = text if "..." in text else to_plain(error.value)
    field = path if len(path) <= 100 else f"{path[:97]}..."
    return Violation(field=field, value=shown, rule=error.rule, nearest=error.nearest)


def _complaint(item: Mapping[str, Any], cls: Any, root: str, whole: str) -> InvalidInput:
    kind, given, context = item["type"], item["input"], item.get("ctx", {})
    parts = [part for part in item["loc"] if part not in TAGS]
    path = ".".join(filter(None, (root, *map(str, parts))))
    if isinstance(error := context.get("error"), InvalidInput):
        inner = ".".join(filter(None, (path, error.field))) or whole or getattr(cls, "__name__", "document")
        return InvalidInput(inner, error.value, error.rule, error.nearest)
    path = path or whole or getattr(cls, "__name__", "document")
    if kind in _UNKNOWN:
        known = tuple(dict.fromkeys(name for one in _hints_at(cls, parts[:-1]) for name in _fields_of(one)))
        near = _near(parts[-1], known)
        hint = f" (did you mean {near}?)" if near else ""
        return InvalidInput(path, given, f"is not a known field{hint}; the fields are {', '.join(known)}")
    if kind in _BROKEN_BOUNDS:
        bounds = (bounds_in(hint) for hint in _hints_at(cls, parts))
        if problem := next(filter(None, (broken(given, each) for each in bounds)), None):
            return InvalidInput(path, given, *problem)
    rule = _RULES[kind].format(**context) if kind in _RULES else item["msg"]
    if kind == "dataclass_type" and item["loc"] and item["loc"][-1] == OBJECT:
        rule = "must be a name or an object"
    if kind == "string_pattern_mismatch" and "\0" in given:
        rule = _RULES["string_unicode"]
    elif kind == "string_pattern_mismatch" and context["pattern"] in _PATTERNS:
        rule, legal = _PATTERNS[context["pattern"]]
        return InvalidInput(path, given, rule, legal(given) or None)
    if isinstance(given, bytes):
        return InvalidInput(path, "bytes", "must be sent with the header Content-Type: application/json")
    return InvalidInput(path, None if kind == "missing" else given, rule, _nearest(kind, context, given))


def _nearest(kind: str, context: Mapping[str, Any], given: object) -> object:
    if kind == "one_of":
        return _near(given, context["words"].split(", "))
    if kind == "string_too_long" and context["max_length"] < MAX_TEXT:  # a bound of the field's own
        return cast("str", given)[: context["max_length"]]
    return next((context[name] for name in ("ge", "le") if name in context), None)


def _one_line(text: str) -> str:
    return " ".join("".join(letter if re.fullmatch(ONE_LINE, letter) else " " for letter in text[:MAX_NAME]).split())


def _paragraphs(text: str) -> str:
    return "".join(filter(re.compile(PARAGRAPHS).fullmatch, text.replace("\r\n", "\n")))


def _key(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._:+-]+", "-", text[:MAX_NAME]).strip("._:+-")[:128]


_PATTERNS: Mapping[str, tuple[str, Callable[[str], str]]] = {
    ONE_LINE: ("must be one line without control characters", _one_line),
    PARAGRAPHS: ("must not have control characters other than line breaks", _paragraphs),
    _KEY: (
        ("must have 1 to 128 characters, only letters, digits and . _ : + -, and must begin with a letter or a digit"),
        _key,
    ),
}
"""Rules of the patterns in words, each with a function that returns the nearest legal text."""


def _near(word: object, known: Sequence[str]) -> str | None:
    near = get_close_matches(str(word)[:100], known, 1)
    return near[0] if near else None


# ---------------------------------------------------------------- types inside a type
def _hints_at(hint: Any, path: Sequence[str | int]) -> Iterator[Any]:
    """Yield each type that may occur at a path inside a type."""
    if not path:
        yield hint
        return
    first, *rest = path
    if isinstance(first, int):
        yield from (each for item in _items(hint) for each in _hints_at(item, rest))
        return
    for cls in dataclasses_in(hint):
        if first in (hints := _hints(cast("Any", cls))):
            yield from _hints_at(hints[first], rest)


def _items(hint: Any) -> Iterator[Any]:
    """Yield the item types of the lists that a type is or contains."""
    for inner in get_args(hint):
        yield from get_args(hint)[:1] if get_origin(hint) is tuple else _items(inner)


def _fields_of(hint: Any) -> Iterator[str]:
    for cls in dataclasses_in(hint):
        yield from _hints(cast("Any", cls))


def dataclasses_in(annotation: Any) -> Iterator[type[Any]]:
    """Yield the dataclasses that a type annotation contains, such as the item type of a list."""
    if isinstance(annotation, type) and is_dataclass(annotation):
        yield annotation
    for inner in (*get_args(annotation), *getattr(annotation, "__metadata__", ())):
        yield from dataclasses_in(inner.cls if isinstance(inner, GivenFields) else inner)
