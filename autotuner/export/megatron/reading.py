"""Reading: settings by the names of Megatron's namespace, and what is noted while they become a layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from autotuner.core.errors import InvalidInput
from autotuner.export.command import Flags
from autotuner.export.target import Notes

Value = bool | int | float | str | tuple[str, ...]

Settings = dict[str, Value]
"""What is written, by the names of Megatron's namespace."""

_T = TypeVar("_T")


@dataclass(slots=True, kw_only=True, eq=False)
class Reading(Notes):
    """Settings that are read, and the notes of it so far."""

    settings: Flags
    """By the names of Megatron's namespace; what is not there has its default."""
    num_ranks: int | None = None
    """As the text says."""
    asked_ranks: int | None = None
    """As the caller says; it counts before the text."""
    version: str = ""
    """Release whose defaults hold."""

    def integer(self, name: str, default: int = 1, most: int = 10**9) -> int:
        """A whole number above 0; 0 is one where it is the default.

        Raises:
            InvalidInput: It is none.
        """
        value = self.settings.integer(name)
        if value is None:
            return default
        if value < min(1, default):
            raise InvalidInput(name, value, "must be a whole number above 0", 1)
        if value > most:
            raise InvalidInput(name, value, f"must not exceed {most:,}", most)
        return value

    def on(self, name: str, default: bool = False) -> bool:
        """Whether a switch is on."""
        value = self.settings.switch(name)
        return default if value is None else value

    def word(self, name: str, default: str = "") -> str:
        """A word, in small letters."""
        return (self.settings.text(name) or default).lower()

    def meant(self, name: str, word: str, values: Mapping[str, _T], others: str = "", nearest: str | None = None) -> _T:
        """What a word stands for.

        Args:
            name: The setting that has it.
            word: As ``word`` has it.
            values: By word.
            others: Words that are read too, for complaints.
            nearest: A word that is meant perhaps.

        Raises:
            InvalidInput: It is none of them.
        """
        if word not in values:
            raise InvalidInput(name, word, f"must be one of {', '.join(values)}{others}", nearest)
        return values[word]
