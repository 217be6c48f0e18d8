"""Mutations that keep JSON documents whole: a fuzzer of bytes would seldom get past the first bracket."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

_STRANGE: tuple[Any, ...] = (
    *(0, 1, -1, 2, 3, 7, 64, 255, 10**5, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 10**18, 10**30, 10**400),
    *(0.0, -0.0, 0.5, 1e-320, -1.5, 1e308, float("nan"), float("inf"), float("-inf")),
    *(True, False, None, [], {}, [[]], [{}], {"": None}, [0] * 300),
    *("", " ", "\0", "\n", "\ud800", "a" * 300, "１２", "²", "1e999", "-1", "None", "../..", "{0}", "%s", "h100", "é"),
)
"""What parsers forget that there is."""


def mutated(document: Any, rng: random.Random) -> Any:
    """The document with one to four of its values, names or members changed."""
    root = [copy.deepcopy(document)]
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        holder, key = rng.choice(list(_places(root)))
        match rng.randrange(6):
            case 0 | 1:
                holder[key] = copy.deepcopy(rng.choice(_STRANGE))
            case 2:
                holder[key] = _near(holder[key], rng)
            case 3 if holder is not root:
                del holder[key]
            case 4 if isinstance(holder, dict):
                holder[_renamed(key, rng)] = holder.pop(key)
            case _:
                donor, at = rng.choice(list(_places(root)))
                holder[key] = copy.deepcopy(donor[at])
    return root[0]


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Every value of a document, as what holds it and where."""
    members = list(node.items()) if isinstance(node, dict) else list(enumerate(node)) if isinstance(node, list) else []
    for key, value in members:
        yield node, key
        yield from _places(value)


def _near(value: Any, rng: random.Random) -> Any:
    """A value near another, of the same type."""
    match value:
        case bool():
            return not value
        case int() | float():
            return rng.choice((value + 1, value - 1, -value, value * 2, value * 10**6))
        case str():
            at = rng.randrange(len(value) + 1)
            return value[:at] + rng.choice(("", "-", "0", "9", ".", "\0", "é", " ")) + value[at + 1 :]
        case list():
            return value * 2
        case _:
            return [value]


def _renamed(name: str, rng: random.Random) -> str:
    return rng.choice((name + "s", name[:-1], "", "\ud800", "name", "base", "type", "x" * 200))
