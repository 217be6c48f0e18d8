"""The examples of OpenAPI, made short."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from autotuner.api.openapi import EXAMPLES

_MOST_ITEMS = (2, 1)
"""Of a list of objects, and of one inside another."""

_MOST_NUMBERS = 8
"""Of a list of anything else."""

_MOST_LINES = 40
"""Of a text."""

_SECRETS = (
    (re.compile(r"whsec_[A-Za-z0-9+/=]+"), "whsec_" + "EXAMPLE" * 4 + "EXAM"),
    (re.compile(r"\bat_([a-z0-9]{10})_[A-Za-z0-9_-]{43}"), r"at_\1_" + "E" * 43),
)


def write_examples(examples: Mapping[str, Mapping[str, Any]]) -> None:
    """Write them where the service reads them, one operation a line."""
    lines = (f"{json.dumps(name)}: {_written(example)}" for name, example in sorted(examples.items()))
    EXAMPLES.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _written(example: Mapping[str, Any]) -> str:
    text = json.dumps({**example, "answer": _short(example["answer"])}, ensure_ascii=False)
    for secret, word in _SECRETS:
        text = secret.sub(word, text)
    return text


def _short(value: Any, depth: int = 0) -> Any:
    if isinstance(value, dict):
        return {name: _short(one, depth) for name, one in value.items()}
    if isinstance(value, list):
        most = _MOST_ITEMS[min(depth, 1)] if value and isinstance(value[0], dict) else _MOST_NUMBERS
        return [_short(one, depth + 1) for one in value[:most]]
    if isinstance(value, str) and value.count("\n") > _MOST_LINES and not value.startswith("<"):
        return "\n".join(value.split("\n")[:_MOST_LINES]) + "\n"
    return value
