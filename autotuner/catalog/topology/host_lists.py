"""Names as Slurm writes many at once: ``node[01-18,20],login1``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

from autotuner.core.errors import InvalidInput

__all__ = ["MOST_NAMES", "names_of"]

_PART = re.compile(r"(?:[^,\[\]\s]|\[[^\[\]]*\])+")
_PIECE = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?$")

MOST_NAMES = 200_000
"""Names of one list, and of one file; the largest clusters have a tenth of that."""


def names_of(text: str, where: str) -> tuple[str, ...]:
    """The names that a list stands for, in its order.

    Args:
        text: As in Slurm's configuration files.
        where: What an error says it was read from.

    Raises:
        InvalidInput: It is no such list, or stands for too many names.
    """
    parts = _PART.findall(text)
    if not parts or ",".join(parts) != text.strip(", \t"):
        raise InvalidInput(where, text, "must be names, with ranges in brackets", "node[01-18]")
    names: list[str] = []
    for part in parts:
        pieces = [_alternatives(found, where) for found in _PIECE.finditer(part)]
        for number, name in enumerate(product(*pieces), len(names)):
            if number >= MOST_NAMES:
                raise InvalidInput(where, text, f"must stand for {MOST_NAMES:,} names at most")
            names.append("".join(name))
    return tuple(names)


def _alternatives(found: re.Match[str], where: str) -> tuple[str, ...]:
    """What may stand at one place of a name: each number of the brackets, with as many digits, or the text itself."""
    inside, plain = found.groups()
    return (plain,) if plain is not None else tuple(_numbers(inside, where))


def _numbers(inside: str, where: str) -> Iterator[str]:
    for each in inside.split(","):
        found = _RANGE.match(each.strip())
        if found is None:
            raise InvalidInput(where, f"[{inside}]", "must be numbers and ranges of them", "[0-3,7]")
        first, last = found[1], found[2] or found[1]
        if not int(first) <= int(last) < int(first) + MOST_NAMES:
            raise InvalidInput(where, each, f"must rise, and by less than {MOST_NAMES:,}", f"{last}-{first}")
        yield from (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))
