"""What a user writes after --layout: the words that tables print, or JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from autotuner.domain.layouts.choice import Precision, ShardLevel
from autotuner.domain.layouts.layout import OPTIONS, Layout
from autotuner.domain.layouts.option import Kind
from autotuner.domain.wire import from_dict
from autotuner.errors import InvalidInput

__all__ = ["read_layout"]

_SHARDED: Mapping[str, ShardLevel] = {"zero": ShardLevel.OPTIMIZER, "fsdp": ShardLevel.PARAMETERS}
"""Words of the shard degree, which say what is sharded too."""

_NUMBERS: Mapping[str, str] = {
    one.word.removesuffix("{}"): name for name, one in OPTIONS.items() if one.is_number
} | dict.fromkeys(_SHARDED, "data_parallel_shard_degree")
"""Fields by the word before their number."""

_WORDS: Mapping[str, Mapping[str, Any]] = {
    one.said(value): {name: one.plain(value)}
    for name, one in OPTIONS.items()
    for value in (one.values if one.kind == Kind.CHOICE else (not one.default,))
    if one.word and not one.is_number
}
"""Words without a number, and what they set; a switch has one for what it is not by default."""


def read_layout(text: str) -> dict[str, Any]:
    """The fields of a layout that the text names, as the service takes them; others take their defaults.

    The words are those of ``Layout``: ``fsdp8 tp4 pp2 1f1b mb1 sp recompute-full every2 flash bf16``. ``zero8`` shards
    the optimizer over 8 ranks; other shard levels are written as JSON.

    Raises:
        InvalidInput: A word or a field is unknown; with the nearest that is known. Or one is given twice.
    """
    is_file = text.endswith(".json")
    if is_file or text.lstrip().startswith("{"):
        return _document(_read(text) if is_file else text)
    fields: dict[str, Any] = {}
    for word in text.split():
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
    found = re.fullmatch(r"([a-z]+)([1-9][0-9]{0,11})", word)
    if found is None or found[1] not in _NUMBERS:
        rule = "is no word of a layout; the tables of predict print layouts in them, and docs/layouts.md lists all"
        raise InvalidInput("layout", word, rule, _nearest(word))
    level = {"shard_level": _SHARDED[found[1]].label} if found[1] in _SHARDED else {}
    return {_NUMBERS[found[1]]: int(found[2]), **level}


def _nearest(word: str) -> str:
    """The closest word there is, however far; with the number that was given, if one was."""
    number = "".join(re.findall("[1-9][0-9]*$", word))
    numbered = [f"{name}{number or 1}" for name in _NUMBERS]
    near = get_close_matches(word, (*_WORDS, *numbered), 1) or get_close_matches(
        word, numbered if number else (*_WORDS,), 1, 0.0
    )
    return near[0]


def _document(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise InvalidInput("layout", text[:60], f"must be words or JSON ({error})") from error
    from_dict(Layout, document, "layout")
    return document  # type: ignore[no-any-return]  # from_dict refuses what is no object


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError as error:
        raise InvalidInput("layout", path, f"cannot be read: {error.strerror}") from error
