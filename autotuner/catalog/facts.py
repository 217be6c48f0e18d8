"""The tables of this folder: each file is parsed once, and a value comes with its source and date."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from autotuner.core.errors import NotFound


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One value of the catalog, with its source and the ISO date of that source.

    Attributes:
        borrowed: The thing that the value was read of, where that is another one; else empty.
    """

    value: Any
    source: str
    date: str
    borrowed: str = ""


@cache
def read_tables(file_name: str) -> Mapping[str, Any]:
    """Return the parsed TOML file. All callers share it and must not change it."""
    text = files("autotuner.catalog").joinpath(file_name).read_text(encoding="utf-8")
    return MappingProxyType(tomllib.loads(text))


@cache
def read_facts(file_name: str) -> Mapping[str, Mapping[str, Fact]]:
    """Return the facts of a file whose tables name entries of ``[sources]``, by table and field."""
    tables = read_tables(file_name)
    return MappingProxyType(
        {
            name: MappingProxyType({field: _fact(entry, tables["sources"]) for field, entry in table.items()})
            for name, table in tables.items()
            if name != "sources"
        }
    )


def find_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Return a name as the tables spell it, in lower case.

    Raises:
        NotFound: With the nearest name.
    """
    known = tuple(known)
    if name.lower() not in known:
        raise not_found(kind, name, known)
    return name.lower()


def not_found(kind: str, name: str, known: Iterable[str]) -> NotFound:
    """Return the error for a name that no table has, with the nearest name."""
    near = get_close_matches(name.lower(), tuple(known), 1, cutoff=0.4)
    return NotFound(kind, name, near[0] if near else None)


def _fact(entry: Any, sources: Mapping[str, Mapping[str, str]]) -> Fact:
    if not isinstance(entry, dict):
        return Fact(value=entry, source="", date="")
    source = sources[entry["source"]]
    borrowed = source.get("borrowed", "")
    return Fact(value=entry["value"], source=source["title"], date=source["date"], borrowed=borrowed)
