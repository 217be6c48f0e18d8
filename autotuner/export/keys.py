"""Key: a place of a configuration that holds a field of a layout; one table of them is written and read.

A path joins the names of nested sections by dots, so that a configuration is one flat mapping here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from autotuner.core.errors import InvalidInput
from autotuner.core.layout import OPTIONS, Layout

Said = Callable[[Layout], object]
"""What is written of a layout; None: the key is left out."""

Heard = Callable[[str, object, Layout], object]
"""The value of a field, of a path and what stands there; the layout is as far as it was read before."""

_LARGEST = 2**53
"""Whole numbers up to it are exact in JSON, whoever reads it."""

_YES = {"true", "yes", "on", "1"}
_NO = {"false", "no", "off", "0", "none", ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A place of a configuration that holds a field of a layout.

    Attributes:
        heard: Raises ``InvalidInput`` where what stands there makes no sense.
    """

    path: str
    field: str
    said: Said
    heard: Heard


def count(path: str, field: str, when: Callable[[Layout], bool] | None = None) -> Key:
    """A number that is written as it is: always, or where a layout asks for it; else where it is above its default."""
    asked = when or (lambda layout: getattr(layout, field) != OPTIONS[field].default)
    return Key(
        path=path,
        field=field,
        said=lambda layout: getattr(layout, field) if asked(layout) else None,
        heard=lambda name, raw, layout: number_of(name, raw, at_least=OPTIONS[field].lowest),
    )


def words(
    path: str,
    field: str,
    values: Mapping[Any, object],
    when: Callable[[Layout], bool] = lambda layout: True,
) -> Key:
    """A choice that has a word of the trainer's, or a switch.

    Args:
        path: Where it stands.
        field: What it holds.
        values: Of the field, by words that are all strings, all numbers or all switches; the first word of a value is
            the one that is written.
        when: Whether it is written at all.
    """
    written: dict[object, object] = {}
    for word, value in values.items():
        written.setdefault(value, word)
    return Key(
        path=path,
        field=field,
        said=lambda layout: written.get(getattr(layout, field)) if when(layout) else None,
        heard=lambda name, raw, layout: _meant(name, raw, values),
    )


def _meant(path: str, raw: object, values: Mapping[Any, object]) -> object:
    kind = type(next(iter(values)))
    word: object = flag_of(path, raw) if kind is bool else number_of(path, raw) if kind is int else str(raw)
    if word not in values:
        raise InvalidInput(path, raw, f"must be one of {', '.join(map(str, values))}")
    return values[word]


def said(keys: Iterable[Key], layout: Layout) -> dict[str, object]:
    """What is written of a layout, by path."""
    values = {key.path: key.said(layout) for key in keys}
    return {path: value for path, value in values.items() if value is not None}


def heard(keys: Iterable[Key], config: Mapping[str, object], layout: Layout) -> Layout:
    """A layout with every field that the configuration holds, in the order of the keys.

    Raises:
        InvalidInput: A value makes no sense.
    """
    for key in keys:
        if key.path in config:
            value = key.heard(key.path, config[key.path], layout)
            layout = replace(layout, **{key.field: value})  # type: ignore[arg-type]  # each field has its own type
    return layout


def flat(config: Mapping[str, Any], parent: str = "") -> dict[str, object]:
    """A nested configuration by path; an empty section is a value."""
    leaves: dict[str, object] = {}
    for name, value in config.items():
        path = f"{parent}{name}"
        if isinstance(value, Mapping) and value:
            leaves |= flat(value, f"{path}.")
        else:
            leaves[path] = value
    return leaves


def nested(leaves: Mapping[str, object]) -> dict[str, Any]:
    """The sections that paths name."""
    config: dict[str, Any] = {}
    for path, value in leaves.items():
        *parents, name = path.split(".")
        section = config
        for parent in parents:
            section = section.setdefault(parent, {})
        section[name] = value
    return config


def number_of(path: str, raw: object, at_least: int = 0) -> int:
    """A whole number, also one that is written ``5e8`` or in quotes.

    Raises:
        InvalidInput: It is none, or too small or too large to be meant.
    """
    try:
        value = math.nan if isinstance(raw, bool) or raw is None else float(str(raw))
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value == int(value) and at_least <= value <= _LARGEST):
        raise InvalidInput(path, raw, f"must be a whole number from {at_least} to 2^53", at_least)
    return int(value)


def flag_of(path: str, raw: object) -> bool:
    """A switch, as JSON, YAML or a command line spell it.

    Raises:
        InvalidInput: It is none.
    """
    word = str(raw).lower()
    if word not in _YES | _NO:
        raise InvalidInput(path, raw, "must be true or false", False)
    return word in _YES
