"""A layout read from the words that ``str(layout)`` writes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from autotuner.core.layouts.choice import Precision
from autotuner.core.layouts.layout import OPTIONS, SHARD_WORDS, Layout
from autotuner.core.layouts.option import Kind
from autotuner.errors import InvalidInput

__all__ = ["fields_said", "layout_of"]

_SHARDED = {word: level for level, word in SHARD_WORDS.items()}

_NUMBERS: Mapping[str, str] = {
    one.word.removesuffix("{}"): name for name, one in OPTIONS.items() if one.is_number and one.word
} | dict.fromkeys(_SHARDED, "data_parallel_shard_degree")
"""Fields by the word before their number."""

_WORDS: Mapping[str, Mapping[str, Any]] = {
    one.said(value): {name: one.plain(value)}
    for name, one in OPTIONS.items()
    for value in (one.values if one.kind == Kind.CHOICE else (not one.default,))
    if one.word and not one.is_number
}
"""Words without a number, and what they set; a switch has one for what it is not by default."""


def layout_of(text: str) -> Layout:
    """The layout that the words name, the one that ``str`` wrote them for; what they leave out has its default.

    Raises:
        InvalidInput: As for ``fields_said``.
    """
    return Layout(**{name: OPTIONS[name].from_plain(value, name) for name, value in fields_said(text).items()})  # type: ignore[arg-type]  # each field has its own type


def fields_said(text: str) -> dict[str, Any]:
    """The fields of a layout that words name, in the form of JSON.

    The words are those of ``Layout``: ``fsdp8 tp4 pp2 1f1b mb1 sp recompute-full every2 flash bf16``. ``zero8`` shards
    the optimizer over 8 ranks, ``shardgrad8`` gradients too, ``fsdp8`` all. Upper case is read as lower case.

    Raises:
        InvalidInput: A word is unknown, with the nearest that is known; or a field is said twice.
    """
    fields: dict[str, Any] = {}
    for word in text.lower().split():
        for name, value in _fields(word).items():
            if name in fields:
                raise InvalidInput("layout", word, f"says {name} again")
            fields[name] = value
    if "fp8_recipe" in fields:  # a recipe says that there is something to scale
        fields.setdefault("precision", Precision.FP8.label)
    return fields


def _fields(word: str) -> Mapping[str, Any]:
    if word in _WORDS:
        return _WORDS[word]
    found = re.fullmatch(r"([a-z]+)(0|[1-9][0-9]{0,11})", word)
    if found is None or found[1] not in _NUMBERS or int(found[2]) < OPTIONS[_NUMBERS[found[1]]].lowest:
        rule = "is no word of a layout; the tables of predict print layouts in them, and docs/layouts.md lists all"
        raise InvalidInput("layout", word, rule, _nearest(word))
    level = {"shard_level": _SHARDED[found[1]].label} if found[1] in _SHARDED else {}
    return {_NUMBERS[found[1]]: int(found[2]), **level}


def _nearest(word: str) -> str:
    """The closest word there is, however far; with the number that was given, if one was."""
    number = "".join(re.findall("[1-9][0-9]{0,11}$", word))
    numbered = [f"{name}{number or 1}" for name in _NUMBERS]
    near = get_close_matches(word, (*_WORDS, *numbered), 1) or get_close_matches(
        word, numbered if number else (*_WORDS,), 1, 0.0
    )
    return near[0]
