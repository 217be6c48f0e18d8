"""A target: a parser of what somebody else wrote, fed with bytes that nobody would."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from autotuner.core.errors import AutotunerError, Conflict, InvalidInput, NotFound

GROUPS = (
    *("codec", "models", "imports", "operators", "words", "logs", "reports", "engines", "tables", "edge"),
    "topologies",
)
"""Modules with ``TARGETS``; a target is called by its group and its name: ``words.cron``."""

_LONGEST_MESSAGE = 5_000
"""Characters: rules list what is known, values are quoted with a line at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One parser, or a few that are given the same text."""

    name: str
    """Unique in its group."""
    check: Callable[[bytes], object]
    """Reads the bytes. Whatever it raises but a refusal is a failure, an ``AssertionError`` of a property too."""
    seeds: tuple[bytes, ...]
    """Real examples, cheap enough to be read by every run of the tests."""
    is_json: bool = False
    """Whether mutations keep the bytes a JSON document, most of the time."""
    words: tuple[str, ...] = ()
    """What the parser looks for, which mutations insert."""
    refusals: tuple[type[AutotunerError], ...] = (InvalidInput, NotFound, Conflict)
    """How it may refuse what it is given."""

    def run(self, data: bytes) -> None:
        """Feed it once; what is refused must be told in words that can be sent."""
        try:
            self.check(data)
        except self.refusals as refusal:
            told = str(refusal).encode()  # no half of a surrogate pair, which neither JSON nor a terminal takes
            assert len(told) <= _LONGEST_MESSAGE, f"a message of {len(told)} bytes: {told[:200]!r}"


def text_of(data: bytes) -> str:
    """As files are read whose bytes may be anything."""
    return data.decode("utf-8", "replace")


def json_of(data: bytes) -> Any:
    """The document that bytes spell, as a body is parsed before our own code sees it: its numbers are finite.

    Raises:
        InvalidInput: They spell none.
    """
    try:
        return json.loads(data, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("document", data[:60], "must be JSON") from error


def _refuse(word: str) -> float:
    raise ValueError(word)


def _finite(text: str) -> float:
    return value if math.isfinite(value := float(text)) else _refuse(text)


def target_of(name: str) -> Target:
    """The target of that name; only its group is imported."""
    group, _, own = name.partition(".")
    return next(target for target in _targets(group) if target.name == own)


def names() -> list[str]:
    """Of all of them."""
    return [f"{group}.{target.name}" for group in GROUPS for target in _targets(group)]


def _targets(group: str) -> tuple[Target, ...]:
    targets: tuple[Target, ...] = import_module(f"tests.fuzz.{group}").TARGETS
    return targets
