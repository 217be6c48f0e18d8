"""Lengths of sequences as people write them down: counted ones, ``96 512 512``, or a histogram, ``1-128:6, 512:3``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import groupby

from autotuner.core.errors import InvalidInput
from autotuner.core.wire import from_dict
from autotuner.core.workload import LengthDistribution

__all__ = ["read_lengths", "written_lengths"]

_ITEM = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?(?::(\S+))?")
_EXAMPLE = "1-128:6, 512:3"
_MOST_LENGTHS = 1 << 20
"""Different lengths that are told apart: as many as the longest contexts have tokens."""


def read_lengths(text: str) -> LengthDistribution:
    """The distribution that a text says: numbers of tokens, each with how often it occurs where that is not once.

    ``1-128:6`` spreads 6 evenly over 1 to 128 tokens; what occurs in several places is added up. Spaces, commas and
    line ends part numbers, and ``#`` begins a remark; or a JSON object has ``lengths`` and ``weights``.

    Raises:
        InvalidInput: A part says no length, with that part; or there is none.
    """
    if text.lstrip().startswith("{"):
        return _of_json(text)
    weights: dict[int, float] = {}
    for line in text.splitlines():
        for item in line.partition("#")[0].replace(",", " ").split():
            first, last, weight = _item(item)
            for length in range(first, last + 1):
                weights[length] = weights.get(length, 0.0) + weight / (last + 1 - first)
    if not weights:
        raise InvalidInput("lengths", text[:60], "must name a number of tokens", _EXAMPLE)
    rising = sorted(weights)
    return LengthDistribution(lengths=tuple(rising), weights=tuple(weights[length] for length in rising))


def written_lengths(lengths: LengthDistribution) -> str:
    """What ``read_lengths`` reads as that distribution: a histogram, or JSON where that would round a weight."""
    text = ", ".join(_ranges(lengths))
    if read_lengths(text) == lengths:
        return text
    return json.dumps({"lengths": lengths.lengths, "weights": lengths.weights})


def _item(item: str) -> tuple[int, int, float]:
    """First and last length of a part, and how often those occur together."""
    found = _ITEM.fullmatch(item)
    if not found:
        raise InvalidInput("lengths", item[:60], "must be tokens, or tokens:weight, or first-last:weight", _EXAMPLE)
    first, last = int(found[1]), int(found[2] or found[1])
    if not 1 <= first <= last <= _MOST_LENGTHS:
        raise InvalidInput("lengths", item[:60], f"must be 1 to {_MOST_LENGTHS:,} tokens, rising", _EXAMPLE)
    try:
        return first, last, float(found[3] or last + 1 - first)
    except ValueError as error:
        raise InvalidInput("lengths", item[:60], "must have a number for its weight", _EXAMPLE) from error


def _ranges(lengths: LengthDistribution) -> Iterator[str]:
    """Lengths one after the other that occur as often, as one part each."""
    pairs = enumerate(zip(lengths.lengths, lengths.weights, strict=True))
    for (_, weight), group in groupby(pairs, key=lambda pair: (pair[1][0] - pair[0], pair[1][1])):
        among = [length for _, (length, _) in group]
        if len(among) == 1:
            yield f"{among[0]}:{weight:.12g}"
        else:
            yield f"{among[0]}-{among[-1]}:{weight * len(among):.12g}"


def _of_json(text: str) -> LengthDistribution:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("lengths", text[:60], f"must be a histogram or JSON ({error})", _EXAMPLE) from error
    return from_dict(LengthDistribution, document, "lengths")
