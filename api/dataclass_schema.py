"""Pydantic models made from dataclasses: OpenAPI then describes what the codec of ``domain.wire`` reads and writes."""

from __future__ import annotations

import inspect
import re
import types
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pydantic
from pydantic import BaseModel, ConfigDict, create_model

from autotuner.domain.choice import Choice
from autotuner.domain.trial import Measurement, PhaseTimes, StepReport
from autotuner.domain.wire import to_dict

__all__ = ["MAX_FLOAT", "MAX_INTEGER", "DescribedBy", "max_integer", "schema_of"]

MAX_INTEGER = 2**31 - 1
MAX_BYTES = 2**63 - 1
"""Whole numbers beyond these fit neither a SQL column nor an array; only byte counts need the larger one."""

MAX_FLOAT = 1e30
"""No rate, time or price is larger; products of a few such numbers stay finite."""

_REPORTED = (StepReport, Measurement, PhaseTimes)
"""What a trial reports may be no number at all (a loss that diverged); JSON has null for it."""


class DescribedBy:
    """Metadata of a field that OpenAPI shows as another type: ``Annotated[object, DescribedBy(str | X)]``."""

    def __init__(self, annotation: Any) -> None:
        self.annotation = annotation


@cache
def schema_of(cls: type[Any]) -> type[BaseModel]:
    """The pydantic model of a dataclass as the codec writes it: choices by word, tuples as lists, nothing unknown."""
    hints = get_type_hints(cls, include_extras=True)
    texts = _attribute_texts(cls)
    definitions: dict[str, Any] = {}
    for spec in fields(cls):
        annotation = _annotation(hints[spec.name], spec.name, nullable=cls in _REPORTED)
        definitions[spec.name] = (annotation, _field(spec, texts.get(spec.name)))
    config = ConfigDict(extra="forbid", protected_namespaces=())
    return create_model(cls.__name__, __config__=config, __doc__=_summary(cls), **definitions)


def max_integer(name: str) -> int:
    """The largest whole number that a field of that name may hold."""
    return MAX_BYTES if name.endswith("_bytes") else MAX_INTEGER


def _annotation(hint: Any, name: str, *, nullable: bool) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        wide = next((extra.annotation for extra in args[1:] if isinstance(extra, DescribedBy)), args[0])
        return _annotation(wide, name, nullable=nullable)
    if origin in (Union, types.UnionType):
        return Union[tuple(_annotation(arg, name, nullable=nullable) for arg in args)]  # noqa: UP007  # built at run time
    if origin is tuple:
        return list[_annotation(args[0], name, nullable=nullable)]  # type: ignore[misc]  # built at run time
    if origin is dict:
        return dict[str, _annotation(args[1], name, nullable=nullable)]  # type: ignore[misc]  # built at run time
    if hint is object:
        return Any
    if isinstance(hint, type):
        return _class_annotation(hint, name, nullable=nullable)
    return hint


def _class_annotation(cls: type[Any], name: str, *, nullable: bool) -> Any:
    if is_dataclass(cls):
        return schema_of(cls)
    if issubclass(cls, Choice):
        return Literal[cls.labels()]
    if cls is int:
        limit = max_integer(name)
        return Annotated[int, pydantic.Field(strict=True, ge=-limit, le=limit)]
    if cls is float:
        number = Annotated[float, pydantic.Field(ge=-MAX_FLOAT, le=MAX_FLOAT)]
        return number | None if nullable else number
    return cls


def _field(spec: Field[Any], description: str | None) -> Any:
    if spec.default_factory is not MISSING:
        default = to_dict(spec.default_factory())
        return pydantic.Field(
            default_factory=lambda: default, description=description, json_schema_extra={"default": default}
        )
    default = ... if spec.default is MISSING else to_dict(spec.default)
    return pydantic.Field(default=default, description=description)


def _summary(cls: type[Any]) -> str:
    return (inspect.getdoc(cls) or cls.__name__).partition("\n\nAttributes:")[0]


def _attribute_texts(cls: type[Any]) -> dict[str, str]:
    """What the docstring's ``Attributes:`` section says of each field."""
    section = (inspect.getdoc(cls) or "").partition("\n\nAttributes:\n")[2]
    entries = re.split(r"^ {4}(\w+): ", section, flags=re.MULTILINE)[1:]
    return {name: " ".join(text.split()) for name, text in zip(entries[::2], entries[1::2], strict=True)}
