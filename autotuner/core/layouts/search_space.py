"""SearchSpace: which values of each option a sweep may try."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from autotuner.core.layouts.layout import OPTIONS
from autotuner.core.layouts.option import Kind, Option
from autotuner.errors import InvalidInput

__all__ = ["SearchSpace"]

Space = TypeVar("Space")

_DERIVED = "data_parallel_replicate_degree"
"""The degree that has no axis: it takes the ranks that the other degrees leave."""


def _with_axes(cls: type[Space]) -> type[Space]:
    """The class as a dataclass with one field for each option, which defaults to what is searched by default."""
    cls.__annotations__ = {}
    for name, one in OPTIONS.items():
        if name != _DERIVED:
            cls.__annotations__[name] = _annotation(one)
            setattr(cls, name, one.searched)
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)


def _annotation(one: Option) -> Any:
    values: Any = tuple.__class_getitem__((type(one.default), ...))
    return values | None if one.kind == Kind.DEGREE or one.searched is None else values


@_with_axes
class SearchSpace:
    """Values that each axis may take; None: every value that is legal.

    There is an axis for each field of ``Layout`` but the replicate degree, which takes the ranks that are left. Axes
    that a default leaves narrow (schedules, kernels, precision) hold what is widely run; a caller widens them by name.
    """

    if TYPE_CHECKING:  # the fields are those of OPTIONS, so a checker cannot know them; construction does

        def __init__(self, **axes: tuple[int, ...] | None) -> None: ...

    def __post_init__(self) -> None:
        for axis in fields(self):  # type: ignore[arg-type]  # a dataclass at run time
            values, lowest = self.values(axis.name), OPTIONS[axis.name].lowest
            if values is None:
                continue
            if not values:
                raise InvalidInput(axis.name, [], "must name at least one value, or be left out")
            if len(set(values)) != len(values):
                raise InvalidInput(axis.name, list(values), "must name each value once")
            if min(values) < lowest:
                raise InvalidInput(axis.name, list(values), f"must hold values of {lowest} or more", lowest)

    def values(self, name: str) -> tuple[int, ...] | None:
        """The values of the axis of a field; None: every value that is legal."""
        values: tuple[int, ...] | None = getattr(self, name)
        return values

    def with_axes(self, **axes: tuple[int, ...] | None) -> SearchSpace:
        """The space with other values on the named axes."""
        return replace(self, **axes)  # type: ignore[type-var]  # a dataclass at run time
