"""Flags: the settings of a command line, by their names."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from autotuner.core.errors import InvalidInput

_FLAG = re.compile(r"--?[A-Za-z]")
_OFF = ("false", "0", "no", "off", "none", "null", "")


def canonical(name: str) -> str:
    """A flag's name without dashes in front, and with underscores for those inside."""
    return name.lstrip("-").replace("-", "_")


@dataclass(frozen=True, slots=True)
class Flags:
    """What stands behind each flag; the last of equal ones counts, as for argparse."""

    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By ``canonical`` name; a switch has none."""
    asked: set[str] = field(default_factory=set, compare=False, repr=False)
    """Names that a reader asked for; every other flag is one that it does not use."""

    def __contains__(self, name: str) -> bool:
        self.asked.add(canonical(name))
        return canonical(name) in self.values

    def __bool__(self) -> bool:
        return bool(self.values)

    def __or__(self, other: Flags) -> Flags:
        return Flags({**self.values, **other.values})

    def text(self, *names: str) -> str | None:
        """The first value of the first of the flags that is there; None: none is, or it has no value."""
        self.asked.update(map(canonical, names))
        for name in names:
            values = self.values.get(canonical(name))
            if values:
                return values[0]
        return None

    def words(self, name: str) -> tuple[str, ...] | None:
        """Return every value of a flag; None: it is not there."""
        self.asked.add(canonical(name))
        return self.values.get(canonical(name))

    def integer(self, *names: str) -> int | None:
        """A whole number.

        Raises:
            InvalidInput: It is none, or a variable that nothing in the text sets.
        """
        text = self.text(*names)
        if text is None:
            return None
        return whole_number(self._name_of(names), text)

    def number(self, *names: str) -> float | None:
        """A finite number.

        Raises:
            InvalidInput: It is none, or a variable that nothing in the text sets.
        """
        text = self.text(*names)
        return None if text is None else _finite(self._name_of(names), text)

    def switch(self, *names: str) -> bool | None:
        """Whether a switch is on; None: it is not there. A word behind it may turn it off (``--bf16 false``)."""
        self.asked.update(map(canonical, names))
        for name in names:
            if canonical(name) in self.values:
                values = self.values[canonical(name)]
                return not values or values[0].lower() not in _OFF
        return None

    def _name_of(self, names: Sequence[str]) -> str:
        return next((name for name in names if self.values.get(canonical(name))), names[0])


def whole_number(name: str, text: str) -> int:
    """A whole number as a person or a program writes it; ``4e8`` is one.

    Raises:
        InvalidInput: It is none, or a variable that nothing in the text sets.
    """
    plain = text.replace("_", "").strip()
    if re.fullmatch(r"[+-]?\d{1,18}", plain):
        return int(plain)
    value = _finite(name, text, "must be a whole number")
    if value != int(value) or abs(value) >= 1e18:
        raise InvalidInput(name, text, "must be a whole number", None if abs(value) >= 1e18 else round(value))
    return int(value)


def _finite(name: str, text: str, rule: str = "must be a number") -> float:
    if "$" in text or "`" in text:
        rule = "is a variable that nothing in the text sets; put its value there, or give the arguments of a run"
        raise InvalidInput(name, text, rule)
    try:
        value = float(text)
    except ValueError:
        raise InvalidInput(name, text, rule) from None
    if not math.isfinite(value):
        raise InvalidInput(name, text, rule)
    return value


def flags_of(words: Iterable[str]) -> Flags:
    """Flags of words: ``--name value``, ``--name=value``, ``--name value value``, ``--switch``."""
    values: dict[str, tuple[str, ...]] = {}
    name = ""
    for word in words:
        if _FLAG.match(word):
            spelled, equals, value = word.partition("=")
            name = canonical(spelled)
            values[name] = (value,) if equals else ()
        elif name:
            values[name] = (*values[name], word)
    return Flags(values)
