"""Value types: the decorator of every value type of the core, and the kinds of numbers that fields hold.

A field states its bounds and its unit in its type and its meaning in the docstring below it or under ``Attributes``::

    @value
    class Workload:
        seq_len: Annotated[Count, Unit("tokens")]
        \"\"\"Tokens per sequence.\"\"\"

The constructor checks the bounds. ``documents`` and the OpenAPI document read the same annotations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache, lru_cache, partial
from math import gcd, isqrt
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from annotated_types import Ge, Gt, Interval, Le

from autotuner.core.errors import InvalidInput

T = TypeVar("T")


# ---------------------------------------------------------------- marks of fields
@dataclass(frozen=True, slots=True)
class Unit:
    """A mark (in ``Annotated``) with the unit of a number: ``s``, ``bytes``, ``tokens``."""

    symbol: str


@dataclass(frozen=True, slots=True)
class OrNull:
    """A mark (in ``Annotated``) for a float that may be NaN, such as a diverged loss. In JSON, NaN becomes null."""


@dataclass(frozen=True, slots=True)
class Typed:
    """A mark (in ``Annotated``) for a field that people type in another form than JSON, such as a time in minutes."""

    read: Callable[[str, str], Any]
    """A function that makes the JSON value from the name of the field, for error messages, and from the text."""
    written: Callable[[Any], str] = str
    """A function that makes the text of a value."""
    example: str = ""
    """Examples of texts, which forms and help show to people."""


@dataclass(frozen=True, slots=True)
class Flag:
    """A mark (in ``Annotated``) with the name that command lines and forms use instead of the field's name."""

    name: str


@dataclass(frozen=True, slots=True)
class Caption:
    """A mark (in ``Annotated``) with a field's label in a form, if the field's name does not say enough."""

    text: str


@dataclass(frozen=True, slots=True)
class Topic:
    """A mark (in ``Annotated``) for a field that a form shows, with its inner fields, as a group with this title."""

    title: str


@dataclass(frozen=True, slots=True)
class Rare:
    """A mark (in ``Annotated``) for a field that few people set. Forms show it last."""


@dataclass(frozen=True, slots=True)
class AsJson:
    """A mark (in ``Annotated``) for a field whose inner fields people type as one JSON text, or give as a file."""

    example: str
    """Example of a text, which forms and help show to people."""
    beside_fields: bool = False
    """True if the most usual fields of the object also have separate inputs. The text then has only the other
    fields."""


@dataclass(frozen=True, slots=True)
class Hint:
    """A mark (in ``Annotated``) with the text that an empty input shows, which says what an empty input means."""

    text: str


M = TypeVar("M")


def mark_of(hint: Any, kind: type[M]) -> M | None:
    """Return the outermost mark of a kind on a type annotation; None if there is none.

    A mark is an object in ``Annotated[X, mark]``. In an optional type (``X | None``), the marks on ``X`` count, too.

    Args:
        hint: Type annotation of a field.
        kind: Class of the mark.
    """
    found = next((one for one in reversed(getattr(hint, "__metadata__", ())) if isinstance(one, kind)), None)
    inner = get_args(hint)[:1] if get_origin(hint) is Annotated else get_args(hint) if _is_optional(hint) else ()
    return found or next((mark for each in inner if (mark := mark_of(each, kind)) is not None), None)


def _is_optional(hint: Any) -> bool:
    return type(None) in get_args(hint) and get_origin(hint) in (Union, UnionType)


def derived(get: Callable[[Any], T]) -> Callable[[Any], T]:
    """Mark the function of a property as derived, so that answers show the property beside the fields.

    ``documents.write`` adds the property to answers. A document that is read may contain the property, but its value is
    ignored. The property is neither stored nor part of content keys (hashes of values).
    """
    get.__is_derived__ = True  # type: ignore[attr-defined]
    return get


@cache
def derived_of(cls: type[Any]) -> Mapping[str, property]:
    """Return the properties of a class that are marked as ``derived``, by name."""
    found = {name: getattr(cls, name) for name in dir(cls) if isinstance(getattr(cls, name, None), property)}
    return {name: one for name, one in found.items() if hasattr(one.fget, "__is_derived__")}


Count: TypeAlias = Annotated[int, Gt(0)]
CountFromZero: TypeAlias = Annotated[int, Ge(0)]
Positive: TypeAlias = Annotated[float, Gt(0)]
NonNegative: TypeAlias = Annotated[float, Ge(0)]
FromOne: TypeAlias = Annotated[float, Ge(1.0)]
Share: TypeAlias = Annotated[float, Interval(ge=0.0, le=1.0)]
PositiveShare: TypeAlias = Annotated[float, Gt(0), Interval(ge=0.0, le=1.0)]
Seconds: TypeAlias = Annotated[float, Ge(0), Unit("s")]
Bytes: TypeAlias = Annotated[int, Ge(0), Unit("bytes")]
Reported: TypeAlias = Annotated[float, OrNull()]
"""A number that a trial reports. It may be NaN, which JSON writes as null."""


# ---------------------------------------------------------------- the decorator
@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    """Make a class a frozen, slotted, keyword-only dataclass whose constructor checks the bounds of its fields.

    The constructor checks the bounds of all fields, and then runs the class's ``__post_init__``, which may be
    inherited.

    Raises (the constructor):
        InvalidInput: A number is out of its bounds, or ``__post_init__`` refuses the value.
    """
    own: Callable[[Any], None] | None = getattr(cls, "__post_init__", None)
    own = getattr(own, "__wrapped__", own)  # the bounds of an inherited field are among those of this class

    def require(self: Any) -> None:
        for name, keeps, refuse in _checks(made):  # type: ignore[arg-type]  # a class is hashable
            if not keeps(given := getattr(self, name)):
                refuse(name, given)
        if own is not None:
            own(self)

    require.__wrapped__ = own  # type: ignore[attr-defined]
    cls.__post_init__ = require  # type: ignore[attr-defined]
    made = dataclass(frozen=True, slots=True, kw_only=True)(cls)
    return made


_Test: TypeAlias = Callable[[Any], bool]
_Refusal: TypeAlias = Callable[[str, Any], None]


@cache
def _checks(cls: type[Any]) -> tuple[tuple[str, _Test, _Refusal], ...]:
    """Return each field of a dataclass that must be checked.

    A field is checked if it has bounds or accepts only certain words. It comes with a fast test and with the function
    that raises the error.
    """
    found: list[tuple[str, _Test, _Refusal]] = []
    for name, hint in get_type_hints(cls, include_extras=True).items():
        plain = get_args(hint)[0] if get_origin(hint) is Annotated else hint
        if get_origin(plain) is Literal:
            found.append((name, get_args(plain).__contains__, partial(require_one_of, legal=get_args(plain))))
        elif bounds := bounds_in(hint):
            found.append((name, _test_of(bounds), partial(_refuse, bounds)))
    return tuple(found)


def _test_of(bounds: tuple[Bound, ...]) -> _Test:
    """Return a function that tests if a number is within its bounds.

    The tests of common bounds are fast, because every constructor calls them.
    """
    match bounds:
        case (Gt(gt=limit),):
            return lambda number: number is None or number > limit
        case (Ge(ge=limit),):
            return lambda number: number is None or number >= limit
    return lambda number: number is None or broken(number, bounds) is None


def _refuse(bounds: tuple[Bound, ...], name: str, number: Any) -> None:
    if (problem := broken(number, bounds)) is not None:
        raise InvalidInput(name, number, *problem)


def require_one_of(name: str, word: object, legal: Iterable[str]) -> None:
    """Check that a word is one of the legal words.

    Args:
        name: Name of the field, for the error message.
        word: The given value.
        legal: The legal words.

    Raises:
        InvalidInput: The word is not legal. The error suggests the most similar legal word.
    """
    words = tuple(legal)
    if word not in words:
        near = get_close_matches(str(word), words, 1) or get_close_matches(str(word).lower(), words, 1)
        raise InvalidInput(name, word, f"must be one of {', '.join(words)}", *near)


# ---------------------------------------------------------------- bounds
Bound: TypeAlias = Ge | Gt | Le | Interval


def bounds_in(hint: Any) -> tuple[Bound, ...]:
    """Return the bounds that a type annotation, such as ``Annotated[int, Gt(0)] | None``, puts on a number."""
    if get_origin(hint) is Annotated:
        inner, *marks = get_args(hint)
        return (*bounds_in(inner), *(mark for mark in marks if isinstance(mark, Bound)))
    if type(None) in (arguments := get_args(hint)):
        return tuple(bound for inner in arguments for bound in bounds_in(inner))
    return ()


def broken(number: Any, bounds: tuple[Bound, ...]) -> tuple[str, object] | None:
    """Return the first bound that a number breaks, as a pair: the rule in words, and the nearest legal value.

    The result is None if the number breaks no bound. The nearest legal value is None if there is no nearest one, as for
    a float that must be above 0. NaN breaks every bound.

    Args:
        number: The number to check.
        bounds: Bounds from the type annotation of a field, such as ``Gt(0)``.
    """
    for bound in bounds:
        if isinstance(bound, Gt) and not number > bound.gt:
            return f"must be above {bound.gt}", cast("int", bound.gt) + 1 if isinstance(number, int) else None
        if isinstance(bound, Ge) and not number >= bound.ge:
            return f"must be {bound.ge} or more", bound.ge
        if isinstance(bound, Le) and not number <= bound.le:
            return f"must be {bound.le} or less", bound.le
        if isinstance(bound, Interval) and not bound.ge <= number <= bound.le:
            near: Any = min(max(number, bound.ge), bound.le)
            return f"must be from {bound.ge:g} to {bound.le:g}", near
    return None


# ---------------------------------------------------------------- divisors
_LARGEST_DIVIDED = 10**12
"""Largest number whose divisors are searched. The search takes a tenth of a second for it, and no model or cluster has
larger numbers."""


def nearest_divisor(number: int, whole: int) -> int:
    """Return the divisor of ``whole`` that is closest to a number; of two equally close divisors, the smaller one.

    If ``whole`` is above 10^12, the result is the greatest common divisor of both numbers, because a search would take
    too long.
    """
    if whole > _LARGEST_DIVIDED:
        return gcd(number, whole)
    return min(divisors(whole), key=lambda d: (abs(d - number), d))


@lru_cache(maxsize=1024)
def divisors(whole: int) -> tuple[int, ...]:
    """Return all divisors of ``whole``, the smallest first. The time grows with the square root of ``whole``."""
    small = [d for d in range(1, isqrt(whole) + 1) if whole % d == 0]
    return tuple(sorted({*small, *(whole // d for d in small)}))
