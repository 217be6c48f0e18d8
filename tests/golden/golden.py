"""Golden outputs: what the product answered before its code was changed, kept as JSON and compared value by value.

`make golden` records them anew. A field that gets another name goes through ``RENAMED`` until then, so that a reviewer
reads one line for it and not every output that holds it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

RENAMED: Mapping[str, Mapping[str, str]] = {}
"""New names of fields by their old ones, for outputs whose name fits a pattern (``rest/*``)."""

_OUTPUTS = Path(__file__).parent / "outputs"

_ABSOLUTE = 1e-12
"""A small chance is 1 less another, and keeps the rounding of that; processors round differently."""

_RELATIVE = 1e-9
"""Processors differ in the last digits of what sums and exponentials round to."""

_MOST_SHOWN = 20

_DECIMAL = re.compile(r"\d+(?:\.\d+)?")

_LONG = 110
"""Characters of an object that stands on one line."""


class Golden:
    """Compares with what was recorded, or records it.

    Args:
        records: Whether to record.
    """

    def __init__(self, *, records: bool) -> None:
        self.records = records

    def check(self, name: str, found: Any, *, relative: float = _RELATIVE) -> None:
        """Compare with the output of that name.

        Args:
            name: Path below ``outputs``, without its ending.
            found: Anything that JSON can hold; NaN and infinity are written as words.
            relative: By how much numbers may differ.

        Raises:
            AssertionError: It differs; the message names the places.
        """
        path = _OUTPUTS / f"{name}.json"
        document = json.loads(json.dumps(_plain(found)))
        if self.records:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_written(document) + "\n")
            return
        assert path.exists(), f"nothing is recorded as {path.name}; `make golden` records it"
        recorded = _renamed(json.loads(path.read_text()), name)
        differing = list(differences(recorded, document, relative=relative))
        shown = "\n".join(differing[:_MOST_SHOWN])
        assert not differing, f"{name} differs in {len(differing)} places:\n{shown}"


def differences(recorded: Any, found: Any, path: str = "", *, relative: float = _RELATIVE) -> Iterator[str]:
    """Places where two documents differ, in words; numbers may differ by what rounding leaves."""
    match recorded, found:
        case dict(), dict():
            for key in [*recorded, *(key for key in found if key not in recorded)]:
                here = f"{path}.{key}" if path else key
                if key not in found:
                    yield f"{here}: gone, it was {_short(recorded[key])}"
                elif key not in recorded:
                    yield f"{here}: new, it is {_short(found[key])}"
                else:
                    yield from differences(recorded[key], found[key], here, relative=relative)
        case list(), list():
            if len(recorded) != len(found):
                yield f"{path}: {len(found)} items, there were {len(recorded)}"
            for place, (old, new) in enumerate(zip(recorded, found, strict=False)):
                yield from differences(old, new, f"{path}[{place}]", relative=relative)
        case _:
            if not _is_same(recorded, found, relative):
                yield f"{path}: {_short(found)}, it was {_short(recorded)}"


def _is_same(recorded: Any, found: Any, relative: float) -> bool:
    if isinstance(recorded, float) or isinstance(found, float):
        are_numbers = isinstance(recorded, (int, float)) and isinstance(found, (int, float))
        return are_numbers and math.isclose(recorded, found, rel_tol=relative, abs_tol=_ABSOLUTE)
    if isinstance(recorded, str) and isinstance(found, str):
        return recorded == found or _rounds_to_the_same(recorded, found)
    return type(recorded) is type(found) and bool(recorded == found)


def _rounds_to_the_same(recorded: str, found: str) -> bool:
    """Whether two texts differ by one unit of the last decimal alone: a number on the border may round either way."""
    if _DECIMAL.sub("#", recorded) != _DECIMAL.sub("#", found):
        return False
    for old, new in zip(_DECIMAL.findall(recorded), _DECIMAL.findall(found), strict=True):
        decimals = max(len(text.partition(".")[2]) for text in (old, new))
        if abs(float(old) - float(new)) > (1.01 * 10.0**-decimals if decimals else 0.0):
            return False
    return True


def _plain(value: Any) -> Any:
    """The value as strict JSON has it."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value


def _renamed(recorded: Any, name: str) -> Any:
    names: dict[str, str] = {}
    for pattern, given in RENAMED.items():
        if fnmatch(name, pattern):
            names |= given
    return _with_names(recorded, names) if names else recorded


def _with_names(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {names.get(key, key): _with_names(one, names) for key, one in value.items()}
    if isinstance(value, list):
        return [_with_names(one, names) for one in value]
    return value


def _written(document: Any) -> str:
    """JSON with a line for each item of long objects and texts: what git compares should be lines, and not too many."""
    is_long = len(json.dumps(document, ensure_ascii=False)) > _LONG
    if isinstance(document, dict) and is_long:
        inner = ",\n".join(f"{json.dumps(key, ensure_ascii=False)}: {_written(one)}" for key, one in document.items())
        return "{\n" + inner + "\n}"
    if isinstance(document, list) and (
        _holds_more(document) or (is_long and all(isinstance(x, str) for x in document))
    ):
        return "[\n" + ",\n".join(map(_written, document)) + "\n]"
    return json.dumps(document, ensure_ascii=False)


def _holds_more(items: list[Any]) -> bool:
    return any(isinstance(one, (dict, list)) for one in items)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else f"{text[:117]}..."
