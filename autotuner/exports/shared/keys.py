"""Keys: tables of a trainer's settings and the fields of a layout, used both to write and to read configurations.

A path joins the names of nested sections by dots, so that a configuration is one flat mapping.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from autotuner.core.errors import InvalidInput
from autotuner.core.layout import OPTIONS, Layout
from autotuner.exports.shared.command import Flags
from autotuner.exports.shared.target import Notes

_LARGEST = 2**53  # JSON readers keep whole numbers exact up to here
_T = TypeVar("_T")
Value = bool | int | float | str | tuple["Value", ...]
Written = dict[str, Value]
"""Values to write, by the trainer's names of the settings."""

_YES, _NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0", "none", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A setting of a trainer that holds one field of a layout, with functions that convert in both directions."""

    path: str
    field: str
    write: Callable[[Layout], object]
    """A function that returns the value to write for a layout; None leaves the key out."""
    read: Callable[[str, object, Layout], object]
    """A function that returns the field's value from the path, the configured value, and the layout as read so far. It
    raises ``InvalidInput`` for a value that is not valid."""
    flags: tuple[str, ...] = ()
    """Command-line arguments of scripts for the same setting, as numbers or switches. The first one that is given
    counts."""
    is_switch: bool = False
    """True for a setting that is either on or off."""
    default: object = None
    """Default value of the setting in the trainer, if it is known."""


def number(
    path: str,
    field: str,
    *,
    when: Callable[[Layout], bool] | None = None,
    flags: tuple[str, ...] = (),
    default: object = None,
) -> Key:
    """Return a key (a setting that holds one field of a layout) for a field that is a whole number.

    Args:
        path: The dotted name of the setting in the configuration.
        field: The name of the field of the layout.
        when: A function that returns True for layouts for which the setting is written; None: the setting is written if
            it differs from its default.
        flags: See ``Key``.
        default: See ``Key``.
    """
    is_written = when or (lambda layout: getattr(layout, field) != OPTIONS[field].default)
    return Key(
        path=path,
        field=field,
        write=lambda layout: getattr(layout, field) if is_written(layout) else None,
        read=lambda name, raw, layout: read_integer(name, raw, at_least=OPTIONS[field].lowest),
        flags=flags,
        default=default,
    )


def words(
    path: str,
    field: str,
    values: Mapping[Any, object],
    *,
    when: Callable[[Layout], bool] = lambda layout: True,
    flags: tuple[str, ...] = (),
    default: object = None,
) -> Key:
    """Return a key (a setting that holds one field of a layout) for a field whose values are words or switches.

    Args:
        path: The dotted name of the setting in the configuration.
        field: The name of the field of the layout.
        values: The value of the field for each word of the trainer. Words are all strings, all numbers or all switches.
            Strings may be in upper or lower case. If several words have the same value, the first one is written.
        when: A function that returns True for layouts for which the setting is written.
        flags: See ``Key``.
        default: See ``Key``.
    """
    written: dict[object, object] = {}
    for word, value in values.items():
        written.setdefault(value, word)
    return Key(
        path=path,
        field=field,
        write=lambda layout: written.get(getattr(layout, field)) if when(layout) else None,
        read=lambda name, raw, layout: _read_word(name, raw, values),
        flags=flags,
        is_switch=isinstance(next(iter(values)), bool),
        default=default,
    )


def switch(
    path: str, field: str, when: Callable[[Layout], bool] = lambda layout: True, default: bool | None = None
) -> Key:
    """Return a key (a setting that holds one field of a layout) for a field that is either on or off.

    Args:
        path: The dotted name of the setting in the configuration.
        field: The name of the field of the layout.
        when: A function that returns True for layouts for which the setting is written.
        default: See ``Key``.
    """
    return words(path, field, {True: True, False: False}, when=when, default=default)


def _read_word(path: str, raw: object, values: Mapping[Any, object]) -> object:
    kind = type(next(iter(values)))
    word: object = read_flag(path, raw) if kind is bool else read_integer(path, raw) if kind is int else str(raw)
    word = next((known for known in values if str(known).lower() == str(word).lower()), word)
    if word not in values:
        raise InvalidInput(path, raw, f"must be one of {', '.join(map(str, values))}")
    return values[word]


def write_table(keys: Iterable[Key], layout: Layout) -> dict[str, object]:
    """Return the values that these keys write for a layout, by the path of the setting.

    A key that writes nothing for this layout is left out.
    """
    values = {key.path: key.write(layout) for key in keys}
    return {path: value for path, value in values.items() if value is not None}


def read_table(keys: Iterable[Key], config: Mapping[str, object], layout: Layout) -> Layout:
    """Return a layout in which every field that the configuration sets has the value from the configuration.

    Args:
        keys: The settings to read, in this order. The reader of a setting sees the fields that earlier settings have
            set.
        config: Values of the configuration, by path.
        layout: The layout from which all other fields are taken.

    Raises:
        InvalidInput: A value is not valid.
    """
    for key in keys:
        if key.path in config:
            layout = replace(layout, **{key.field: key.read(key.path, config[key.path], layout)})  # type: ignore[arg-type]
    return layout


@dataclass(slots=True, kw_only=True, eq=False)
class Reading(Notes):
    """The settings of a configuration, read one by one, with a note on each that was assumed, changed or ignored.

    A missing setting gets its default.
    """

    settings: Flags
    """Settings by the trainer's names."""
    num_ranks: int | None = None
    """Number of ranks in the text; None if the text has none."""
    asked_ranks: int | None = None
    """Number of ranks that the caller gives, which overrides the number in the text."""
    version: str = ""
    """Release of the trainer whose defaults apply."""

    def integer(self, name: str, default: int = 1, *, least: int | None = None, most: int = 10**9) -> int:
        """Return a setting that is a whole number; ``default`` if the setting is missing.

        Raises:
            InvalidInput: The value is not a whole number, is below ``least``, or exceeds ``most``. If ``least`` is
                None, the smaller of 1 and ``default`` takes its place.
        """
        value = self.settings.integer(name)
        if value is None:
            return default
        lowest = min(1, default) if least is None else least
        if value < lowest:
            raise InvalidInput(name, value, f"must be a whole number above {max(0, lowest - 1)}", max(1, lowest))
        if value > most:
            raise InvalidInput(name, value, f"must be at most {most:,}", most)
        return value

    def on(self, name: str, default: bool = False) -> bool:
        """Return True if a switch of the configuration is on, False if it is off; ``default`` if it is missing."""
        value = self.settings.switch(name)
        return default if value is None else value

    def word(self, name: str, default: str = "") -> str:
        """Return a setting that is a text, in lower case; ``default`` if the setting is missing."""
        return (self.settings.text(name) or default).lower()

    def meant(self, name: str, word: str, values: Mapping[str, _T], others: str = "", nearest: object = None) -> _T:
        """Return the value that a word of the trainer's configuration means, looked up in ``values``.

        Args:
            name: Name of the setting, for error messages.
            word: The word of the configuration in lower case, as ``Reading.word`` returns it.
            values: The value of each word.
            others: Further legal words to list in the error message.
            nearest: The word to suggest in the error message.

        Raises:
            InvalidInput: ``values`` does not contain the word.
        """
        if word not in values:
            raise InvalidInput(name, word, f"must be one of {', '.join(values)}{others}", nearest)
        return values[word]


def flat(config: Mapping[str, Any], parent: str = "") -> dict[str, object]:
    """Return the values of a nested configuration, by dotted path. An empty section counts as a value."""
    leaves: dict[str, object] = {}
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            leaves |= flat(value, f"{parent}{name}.")
        else:
            leaves[f"{parent}{name}"] = value
    return leaves


def nested(leaves: Mapping[str, object]) -> dict[str, Any]:
    """Return a nested configuration, built from values by dotted path; the reverse of ``flat``."""
    config: dict[str, Any] = {}
    for path, value in leaves.items():
        *parents, name = path.split(".")
        section = config
        for parent in parents:
            section = section.setdefault(parent, {})
        section[name] = value
    return config


def read_integer(path: str, raw: object, at_least: int = 0) -> int:
    """Return the whole number in a setting. The number may also be written as ``5e8`` or in quotes.

    Raises:
        InvalidInput: The value is not a whole number from ``at_least`` to 2^53.
    """
    try:
        value = math.nan if isinstance(raw, bool) or raw is None else float(str(raw))
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value == int(value) and at_least <= value <= _LARGEST):
        nearest = min(max(round(value), at_least), _LARGEST) if math.isfinite(value) else None
        raise InvalidInput(path, raw, f"must be a whole number from {at_least} to 2^53", nearest)
    return int(value)


def read_flag(path: str, raw: object) -> bool:
    """Return the value of a switch, in any spelling that JSON, YAML or a command line uses.

    Raises:
        InvalidInput: The value means neither true nor false.
    """
    word = str(raw).lower()
    if word not in _YES + _NO:
        raise InvalidInput(path, raw, "must be true or false")
    return word in _YES
