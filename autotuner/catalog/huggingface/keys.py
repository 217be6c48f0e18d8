"""Config: typed access to a ``config.json`` that somebody else wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotuner.core.errors import InvalidInput

__all__ = ["Config"]

_LARGEST = 2**40
"""No shape of a model is larger."""

_MOST_LAYERS = 100_000
"""No list of layers is longer."""


@dataclass(frozen=True, slots=True)
class Config:
    """A parsed document, read key by key; of several spellings of a key the first one that is there counts.

    ``null`` counts as missing.
    """

    document: Mapping[str, Any]

    @property
    def model_type(self) -> object:
        """What the document calls its kind of model."""
        return self.document.get("model_type")

    def has(self, key: str) -> bool:
        """Whether the key is there and not null."""
        return self.document.get(key) is not None

    def integer(self, *keys: str, default: int | None = None) -> int:
        """A whole number above zero."""
        key, value = self._first(keys)
        if value is None:
            if default is None:
                raise InvalidInput(key, None, f"is required for model_type {self.model_type}")
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= _LARGEST:
            raise InvalidInput(key, value, f"must be a whole number above 0, and at most {_LARGEST:,}", 1)
        return value

    def count(self, *keys: str, default: int = 0) -> int:
        """A whole number, zero allowed."""
        _, value = self._first(keys)
        if value is None:
            return default
        return 0 if value == 0 and type(value) is int else self.integer(*keys)

    def stated(self, *keys: str) -> int:
        """A whole number, where null means zero and the key has to be there: its default is another."""
        if not any(key in self.document for key in keys):
            raise InvalidInput(keys[0], None, f"is required for model_type {self.model_type}, and may be null")
        return self.count(*keys)

    def flag(self, *keys: str, default: bool) -> bool:
        """True or false."""
        key, value = self._first(keys)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise InvalidInput(key, value, "must be true or false")
        return value

    def words(self, key: str) -> tuple[str, ...] | None:
        """A list of words, such as the kind of each layer; None where there is none."""
        value = self.document.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) > _MOST_LAYERS or not all(isinstance(word, str) for word in value):
            raise InvalidInput(key, value, "must be a list of words")
        return tuple(value)

    def numbers(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers, such as those of some layers; empty where there is none."""
        value = self.document.get(key)
        if value is None:
            return ()
        whole = isinstance(value, list) and all(isinstance(n, int) and not isinstance(n, bool) for n in value)
        if not whole or len(value) > _MOST_LAYERS:
            raise InvalidInput(key, value, "must be a list of whole numbers")
        return tuple(value)

    def inner(self, key: str) -> Config | None:
        """The document inside the document, such as that of the language model; None where there is none."""
        value = self.document.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise InvalidInput(key, value, "must be an object")
        return Config(value)

    def _first(self, keys: tuple[str, ...]) -> tuple[str, Any]:
        present = next((key for key in keys if self.has(key)), keys[0])
        return present, self.document.get(present)
