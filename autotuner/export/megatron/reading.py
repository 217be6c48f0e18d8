"""Reading: settings by the names of Megatron's namespace, and what is noted while they become a layout."""

from __future__ import annotations

from dataclasses import dataclass, field

from autotuner.core.errors import InvalidInput
from autotuner.export.flags import Flags
from autotuner.export.target import Note, NoteKind

Value = bool | int | float | str | tuple[str, ...]

Settings = dict[str, Value]
"""What is written, by the names of Megatron's namespace."""


@dataclass(slots=True, kw_only=True)
class Reading:
    """Settings that are read, and the notes of it.

    Attributes:
        settings: By the names of Megatron's namespace; what is not there has its default.
        num_ranks: As the text says.
        asked_ranks: As the caller says; it counts before the text.
        version: Release whose defaults hold.
        notes: What was assumed, changed and ignored so far.
    """

    settings: Flags
    num_ranks: int | None = None
    asked_ranks: int | None = None
    version: str = ""
    notes: list[Note] = field(default_factory=list)

    def assumed(self, setting: str, detail: str) -> None:
        """Note a value that nothing said."""
        self.notes.append(Note(kind=NoteKind.ASSUMED, setting=setting, detail=detail))

    def changed(self, setting: str, detail: str) -> None:
        """Note a value that a layout cannot have."""
        self.notes.append(Note(kind=NoteKind.CHANGED, setting=setting, detail=detail))

    def ignored(self, setting: str, detail: str) -> None:
        """Note a setting that a layout has no word for."""
        self.notes.append(Note(kind=NoteKind.IGNORED, setting=setting, detail=detail))

    def count(self, name: str, default: int = 1, most: int = 10**9) -> int:
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
