"""The core's own dataclasses as JSON documents: read strictly, written and described by pydantic.

``Document[X]`` is ``X`` to Python. Where a route reads one, pydantic refuses what JSON carries and the core, a
database or an array does not: unknown fields, values of another type, numbers without bounds, text with a NUL.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Annotated, Any, TypeAlias, TypeVar, cast

from pydantic import Discriminator, GetCoreSchemaHandler, GetJsonSchemaHandler, Tag, TypeAdapter
from pydantic_core import core_schema
from pydantic_core.core_schema import CoreSchema, ValidatorFunctionWrapHandler

from autotuner.core.choices import Choice
from autotuner.core.convergence_gate import GateResult
from autotuner.core.errors import InvalidInput
from autotuner.core.measurement import Measurement, PhaseTimes, StepReport

MAX_INTEGER = 2**31 - 1
_MAX_BYTES = 2**63 - 1
"""Whole numbers beyond these fit neither a SQL column nor an array; only byte counts need the larger one."""

_MAX_FLOAT = 1e30
"""No rate, time or price is larger; products of a few such numbers stay finite."""

MAX_NAME = 200
"""Characters; each list shows names, for as long as what they name is stored."""

MAX_TEXT = 10_000
"""Characters that a request may send in a text whose field states no bound of its own."""

MAX_WORDS = 1000
"""Characters of a value that is written in words; a layout that sets every option has half as many."""

ONE_LINE = r"^[^\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]*$"
"""Neither line breaks nor what a terminal obeys, nor what turns the order of letters around: others will read it."""

_STORABLE_TEXT = "^[^\\x00]*$"
"""PostgreSQL stores no NUL."""

_REPORTED = (StepReport, Measurement, PhaseTimes, GateResult)
"""What a trial reports may be no number at all (a loss that diverged); JSON has null for it."""

_NOT_SCHEMAS = frozenset({"cls", "config", "default", "expected", "function", "metadata", "serialization"})

T = TypeVar("T")


class _Strict:
    """Metadata of ``Document``: the schema that pydantic makes of a type, made strict."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Pydantic's hook."""
        schema = _schema_of(source)
        return cast("CoreSchema", {**schema, "metadata": dict(schema.get("metadata", {}))})


@cache
def _schema_of(source: Any) -> dict[str, Any]:
    """Made once per type: a route of each new service would otherwise make it again."""
    schema: Any = TypeAdapter(source).core_schema
    definitions = {definition["ref"]: definition for definition in schema.get("definitions", ())}
    strict: dict[str, Any] = _strict(schema["schema"] if definitions else schema, "", definitions)
    return strict


Document: TypeAlias = Annotated[T, _Strict()]
"""A value that travels as JSON."""


@dataclass(frozen=True, slots=True)
class GivenFields:
    """Metadata of a field that holds some fields of a dataclass: a mapping with those that were given, read."""

    cls: type[Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Pydantic's hook."""
        return core_schema.no_info_wrap_validator_function(_given_fields, handler.generate_schema(self.cls))


def _given_fields(document: Any, read: ValidatorFunctionWrapHandler) -> dict[str, object]:
    value = read(document)
    return {name: getattr(value, name) for name in document}


_NAME_SCHEMA = {"type": "string", "pattern": _STORABLE_TEXT}
_BASE_SCHEMA = _NAME_SCHEMA | {"description": "Name of the catalog; fields that are left out are as there."}


@dataclass(frozen=True, slots=True, eq=False)
class Described:
    """Metadata of a dataclass that people may also write in short.

    Attributes:
        whole: Makes the whole document of what was sent; fields that fit nowhere are left to be refused.
        base: The field that names what the document starts from.
        parts: Fields that a name may stand for.
        other: Schema of another form that is read.
    """

    whole: Callable[[object], Any]
    base: str
    parts: Collection[str] = ()
    other: Mapping[str, Any] = field(default_factory=dict)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Pydantic's hook."""
        return core_schema.no_info_before_validator_function(self.whole, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Pydantic's hook: every field may be left out, for the names say the others."""
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
    """Metadata of a value that people may also write as a text.

    Attributes:
        read: Makes the document of a text.
        about: What the text says, for the schema.
    """

    read: Callable[[str], Any]
    about: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Pydantic's hook."""
        return core_schema.no_info_before_validator_function(self._document, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Pydantic's hook."""
        text = {"type": "string", "pattern": _STORABLE_TEXT, "maxLength": MAX_WORDS, "description": self.about}
        return {"anyOf": [text, handler(schema)]}

    def _document(self, given: object) -> object:
        if not isinstance(given, str):
            return given
        if len(given) > MAX_WORDS:
            raise InvalidInput("", given, f"must have at most {MAX_WORDS} characters")
        try:
            return self.read(given)
        except InvalidInput as error:  # whose path pydantic knows
            raise InvalidInput("", error.value, error.rule, error.nearest) from error


def extended(cls: type[T], value: Any, /, **more: object) -> T:
    """A ``cls`` with every field of ``value``, a dataclass that it extends, and with those that it has more."""
    return cls(**{each.name: getattr(value, each.name) for each in fields(value)}, **more)


# ---------------------------------------------------------------- a name, or what has that name
NAME, OBJECT, CONFIG = TAGS = ("(name)", "(object)", "(config)")
"""What a value of a union was read as; pydantic puts it into the path of an error."""


def _name_or_object(value: object) -> str:
    return NAME if isinstance(value, str) else OBJECT


NameOrObject: TypeAlias = Annotated[
    Annotated[str, Tag(NAME)] | Annotated[T, Tag(OBJECT)],
    Discriminator(_name_or_object),
]
"""A thing, or the name it is stored under."""


# ---------------------------------------------------------------- strictness
def _strict(node: Any, name: str, definitions: Mapping[str, Any]) -> Any:
    """A core schema in which every number and text has bounds, and no object takes more than its fields.

    Args:
        node: The schema or a part of it.
        name: The field that it describes.
        definitions: What it refers to, by reference; no type of ours contains itself.
    """
    match node:
        case {"type": "int"} if name.endswith("_parameters"):  # counted by us, of whatever sizes somebody sent
            return {"ge": 0, **node, "strict": True}
        case {"type": "int"}:
            limit = _MAX_BYTES if name.endswith("_bytes") else MAX_INTEGER
            return {"ge": -limit, "le": limit, **node, "strict": True}
        case {"type": "float"}:
            return {"ge": -_MAX_FLOAT, "le": _MAX_FLOAT, **node, "strict": True, "allow_inf_nan": False}
        case {"type": "str"} if name == "name":
            return {"pattern": ONE_LINE, "max_length": MAX_NAME, **node, "strict": True}
        case {"type": "str"}:
            bounds = {} if "max_length" in node else {"max_length": MAX_TEXT, "metadata": _without_bound(node)}
            return {"pattern": _STORABLE_TEXT, **node, **bounds, "strict": True}
        case {"type": "bool"}:
            return {**node, "strict": True}
        case {"type": "enum"} | {"type": "literal"}:
            return _words(node)
        case {"type": "definition-ref"}:
            return _strict(definitions[node["schema_ref"]], name, definitions)
        case {"type": "dataclass"}:
            return _object(node, definitions)
        case Mapping():
            return {
                key: value if key in _NOT_SCHEMAS else _strict(value, name, definitions) for key, value in node.items()
            }
        case list():
            return [_strict(item, name, definitions) for item in node]
    return node


def _without_bound(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata that leave ``MAX_TEXT`` out of the JSON schema, which describes answers, too."""

    def described(schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {key: value for key, value in handler(schema).items() if key != "maxLength"}

    metadata = dict(node.get("metadata", {}))
    return {**metadata, "pydantic_js_functions": [*metadata.get("pydantic_js_functions", ()), described]}


def _object(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    arguments = node["schema"]
    described = [{**each, "schema": _strict(each["schema"], each["name"], definitions)} for each in arguments["fields"]]
    if node["cls"] in _REPORTED:
        described = [{**each, "schema": _or_null(each["schema"])} for each in described]
    config = {**node.get("config", {}), "extra_fields_behavior": "forbid"}
    return {**node, "schema": {**arguments, "fields": described}, "config": config}


def _or_null(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    match schema:
        case {"type": "float"}:
            return {"type": "nullable", "schema": schema}
        case {"type": "tuple"}:
            return {**schema, "items_schema": [_or_null(item) for item in schema["items_schema"]]}
    return schema


def _words(node: Mapping[str, Any]) -> Any:
    """A choice among words: by its label where it is a ``Choice``, by its value where it is another enum."""
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
