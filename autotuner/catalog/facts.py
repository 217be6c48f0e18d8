"""Reads the tables of this folder.

Each table is parsed once, when it is first read, and each value comes with its source.
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from itertools import pairwise
from types import MappingProxyType
from typing import Any, TypeVar

from autotuner.core.errors import NotFound


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A value of the catalog, with the source that states it and the ISO date of that source."""

    value: Any
    source: str
    date: str
    borrowed: str = ""
    """Name of the other device or link that the value was measured on; empty if it was measured on this one."""


_HEAD = re.compile(r"""^\[+ *(?:"([^"\n]+)"|([\w-]+))""", re.MULTILINE)
"""Pattern of the header of a TOML table, with the first part of its name."""

T = TypeVar("T")


class _WhenAsked(Mapping[str, T]):
    """A mapping that makes each value when it is first read, because a request needs only a few of hundreds."""

    def __init__(self, names: Iterable[str], make: Callable[[str], T]) -> None:
        self._names, self._make = dict.fromkeys(names), cache(make)

    def __getitem__(self, name: str) -> T:
        if name not in self._names:
            raise KeyError(name)
        return self._make(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@cache
def read_tables(file_name: str) -> Mapping[str, Any]:
    """Return the top-level tables of a TOML file of the catalog; a table is parsed when it is first read.

    The file is read once, and all callers share the result. So callers must not change it.

    Args:
        file_name: Name of a file in the folder of the catalog, such as ``links.toml``.
    """
    text = files("autotuner.catalog").joinpath(file_name).read_text(encoding="utf-8")
    parts: dict[str, str] = defaultdict(str)
    starts = [(head.start(), head[1] or head[2]) for head in _HEAD.finditer(text)]
    for (start, name), (end, _) in pairwise([*starts, (len(text), "")]):
        parts[name] += text[start:end]
    return _WhenAsked(parts, lambda name: tomllib.loads(parts[name])[name])


@cache
def read_facts(file_name: str) -> Mapping[str, Mapping[str, Fact]]:
    """Return every value of a TOML file of the catalog as a ``Fact``, by table name and field name.

    Args:
        file_name: Name of a file in the folder of the catalog. Its table ``[sources]`` describes the sources that the
            values of the other tables name.
    """
    tables = read_tables(file_name)

    def facts_of(name: str) -> Mapping[str, Fact]:
        return MappingProxyType({field: _fact(entry, tables["sources"]) for field, entry in tables[name].items()})

    return _WhenAsked((name for name in tables if name != "sources"), facts_of)


def find_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Return a name in lower case, as the catalog's tables spell it, after a check that the catalog has the name.

    Args:
        kind: Kind of the named entry, for the error message: ``link``.
        name: Name in upper or lower case.
        known: All names that the catalog has.

    Raises:
        NotFound: ``known`` does not contain the name. The error suggests the most similar known name.
    """
    known = tuple(known)
    if name.lower() not in known:
        raise not_found(kind, name, known)
    return name.lower()


def not_found(kind: str, name: str, known: Iterable[str]) -> NotFound:
    """Return the error for a name that the catalog lacks; it suggests a similar known name, if there is one."""
    near = get_close_matches(name.lower(), tuple(known), 1, cutoff=0.4)
    return NotFound(kind, name, near[0] if near else None)


def _fact(entry: Any, sources: Mapping[str, Mapping[str, str]]) -> Fact:
    if not isinstance(entry, dict):
        return Fact(value=entry, source="", date="")
    source = sources[entry["source"]]
    borrowed = source.get("borrowed", "")
    return Fact(value=entry["value"], source=source["title"], date=source["date"], borrowed=borrowed)
