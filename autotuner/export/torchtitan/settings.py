"""Settings: what a configuration of torchtitan says, by dotted names, and what was made of each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from autotuner.core.errors import InvalidInput
from autotuner.core.layout import OPTIONS
from autotuner.export.command import whole_number
from autotuner.export.table import Key
from autotuner.export.target import Note, NoteKind, Notes

_MOST = 10**9
"""No degree, batch or number of layers comes near it."""


class Settings(Notes):
    """Settings that are read one by one, and the notes of it; what is left over says nothing of a layout.

    Attributes:
        values: By dotted names.
        num_ranks: As a launcher beside the configuration says; None: none does.
        is_partial: They override a configuration that was not given with them.
    """

    def __init__(
        self,
        values: Mapping[str, object],
        num_ranks: int | None = None,
        notes: Iterable[Note] = (),
        *,
        is_partial: bool = False,
    ) -> None:
        super().__init__(notes)
        self.values, self.num_ranks, self.is_partial = values, num_ranks, is_partial
        self._read: set[str] = set()

    def add(self, kind: NoteKind, setting: str, detail: str) -> None:
        """Note what became of a setting, with its value."""
        said = f"{setting} = {_shown(self.values[setting])}" if setting in self.values else setting
        super().add(kind, said, detail)

    def assume(self, name: str, default: object, detail: str = "") -> None:
        """Note a default of torchtitan's that was taken, unless the setting is there."""
        if name not in self.values:
            self.assumed(name, detail or f"torchtitan takes {_shown(default)} where nothing is said")

    def of(self, key: Key) -> object:
        """What is said for a key, or its default.

        Raises:
            InvalidInput: It is of another type than the default.
        """
        if isinstance(key.default, bool):
            return self.switch(key.path, key.default)
        if isinstance(key.default, int):
            return self.integer(key.path, key.default, least=OPTIONS[key.field].lowest)
        return self.word(key.path, str(key.default))

    def integer(self, name: str, default: int, *, least: int = 1) -> int:
        """A whole number.

        Raises:
            InvalidInput: It is none, or out of range.
        """
        value = self._taken(name, default)
        if isinstance(value, str):
            value = whole_number(name, value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidInput(name, value, "must be a whole number")
        if not least <= value <= _MOST:
            raise InvalidInput(name, value, f"must be a whole number of {least} or more", least)
        return value

    def switch(self, name: str, default: bool) -> bool:
        """On or off.

        Raises:
            InvalidInput: It is neither.
        """
        value = self._taken(name, default)
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if not isinstance(value, bool):
            raise InvalidInput(name, value, "must be true or false")
        return value

    def word(self, name: str, default: str) -> str:
        """A text.

        Raises:
            InvalidInput: It is none.
        """
        value = self._taken(name, default)
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)  # selective_ac_option = 2
        if not isinstance(value, str):
            raise InvalidInput(name, value, "must be a text")
        return value

    def words(self, name: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """A list of texts; flags write one with commas.

        Raises:
            InvalidInput: It is none.
        """
        value = self._taken(name, default)
        if isinstance(value, str):
            value = [word for word in value.split(",") if word]
        if not isinstance(value, (list, tuple)) or not all(isinstance(word, str) for word in value):
            raise InvalidInput(name, value, "must be a list of texts")
        return tuple(value)

    def lists(self, name: str) -> tuple[tuple[str, ...], ...]:
        """A list of lists of texts; empty where the setting is not there.

        Raises:
            InvalidInput: It is none.
        """
        value = self._taken(name, ())
        if value in (None, "None", ""):
            return ()
        rows: Sequence[Any] = value if isinstance(value, (list, tuple)) else [value]
        if not all(isinstance(row, (list, tuple)) and all(isinstance(word, str) for word in row) for row in rows):
            raise InvalidInput(name, value, "must be a list of lists of texts")
        return tuple(tuple(row) for row in rows)

    def optional(self, name: str) -> int | None:
        """A whole number of 1 or more, or nothing."""
        return None if self._taken(name, None) in (None, "None") else self.integer(name, 1)

    def ignore(self, name: str, detail: str) -> None:
        """Note a setting that is there and that a layout has no field for."""
        if name in self.values:
            self._read.add(name)
            self.ignored(name, detail)

    def leave(self, sections: Iterable[str], known: Iterable[str]) -> None:
        """Note what was not read: sections about other things together, settings beside those that count by name."""
        rest = [name for name in self.values if name not in self._read]
        read = {_section(name) for name in self.values if name in self._read}
        told = {_section(name) for name in rest} - read - set(sections)
        if others := sorted(told & _OTHER_SECTIONS):
            super().add(NoteKind.IGNORED, ", ".join(others), _SAYS_NOTHING)
        for section in sorted(told - _OTHER_SECTIONS):
            super().add(NoteKind.UNKNOWN, section, "is no section that is known of torchtitan")
        for name in rest:
            if _section(name) in sections and _OTHER_SETTINGS.fullmatch(name):
                self.ignored(name, _SAYS_NOTHING)
            elif _section(name) in sections:
                near = get_close_matches(name, known, 1, 0.85)
                self.unknown(name, "is no setting that is known" + (f"; {near[0]} is" if near else ""))

    def _taken(self, name: str, default: object) -> object:
        self._read.add(name)
        return self.values.get(name, default)


_SAYS_NOTHING = "says nothing of a layout"

_OTHER_SECTIONS = frozenset(
    (
        *("job", "profiling", "profiler", "metrics", "model", "optimizer", "lr_scheduler", "checkpoint", "comm"),
        *(
            "debug",
            "memory_estimation",
            "fault_tolerance",
            "experimental",
            "validation",
            "dataloader",
            "tokenizer",
            "loss",
        ),
        *("hf_assets_path", "dump_folder", "activation_checkpoint", "compile", "quantize", "model_spec", "float8"),
    )
)
"""Sections of torchtitan 0.2.2 and 0.3.0 about other things than layouts, and sections of which nothing was read."""

_OTHER_SETTINGS = re.compile(
    r"training\.(dataset(_path)?|max_norm|steps|dtype|gc_.*|dataloader.*|seed|deterministic|debug_.*|warmup_steps)"
    r"|activation_checkpoint\.(early_stop|per_op_sac_.*|memory_budget|visualize_.*|preserve_rng_state|determinism_check|debug)"
    r"|compile\.backend|quantize\..*"
)
"""Settings that no layout has a field for, of the sections that are read: torchtitan 0.2.2, config/job_config.py."""


def _section(name: str) -> str:
    return name.partition(".")[0]


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
