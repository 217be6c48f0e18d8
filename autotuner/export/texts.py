"""Configuration files as nested mappings; whatever text is given, the end is a mapping or ``InvalidInput``."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from autotuner.core.errors import InvalidInput

_STRING = r'"(?:\\.|[^"\\])*(?:"|\Z)'
_COMMENT = re.compile(rf"({_STRING})|/\*.*?(?:\*/|\Z)|(?://|#)[^\n]*", re.DOTALL)
_LAST_COMMA = re.compile(rf"({_STRING})|,(?=\s*[}}\]])")

_BRACKET = re.compile(rf"{_STRING}|/\*.*?(?:\*/|\Z)|(?://|#)[^\n]*|[{{}}]", re.DOTALL)

_YAML_LINE = re.compile(r"\s*(?:-\s|---|[A-Za-z_]\w*\s*:(?:\s|$))")

_LONGEST = 1_000_000
"""Characters of a configuration; none is a tenth as long."""

_LONGEST_YAML, _DEEPEST_YAML = 50_000, 8
"""What is read of YAML, whose parser takes seconds for a megabyte and for brackets in brackets; accelerate's own files
have 2,000 characters and no brackets."""


def json_document(text: str) -> dict[str, Any]:
    """A JSON object, which may hold comments and commas before a bracket, as HJSON does.

    Raises:
        InvalidInput: It is none.
    """
    plain = _LAST_COMMA.sub(r"\1", _COMMENT.sub(r"\1", _short(text)))
    try:
        value = json.loads(plain)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("config", text[:60], f"must be a JSON object: {first_line(error)}") from error
    return _mapping(text, value)


def yaml_document(text: str) -> dict[str, Any]:
    """A mapping of plain values in YAML.

    Raises:
        InvalidInput: It is none.
    """
    if len(text) > _LONGEST_YAML:
        raise InvalidInput("config", text[:60], f"must have {_LONGEST_YAML:,} characters at most, as YAML")
    if re.search(r"[\[{]\s*" * _DEEPEST_YAML, text):
        raise InvalidInput("config", text[:60], "is nested too deep")
    if re.search(r"(^|[\s\[{,])[&*]\w", text):  # repeated anchors would grow without bound
        raise InvalidInput("config", text[:60], "must name no anchors of YAML (&, *)")
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInput("config", text[:60], f"must be a mapping in YAML: {first_line(error)}") from error
    return _mapping(text, value)


def split_document(text: str) -> tuple[str, str]:
    """Return the text around the first JSON object that begins a line, and that object; empty where there is none."""
    start = re.search(r"^[ \t]*\{", _short(text), re.MULTILINE)
    if start is None:
        return text, ""
    depth = 0
    for token in _BRACKET.finditer(text, start.start()):
        depth += {"{": 1, "}": -1}.get(token.group(), 0)
        if depth == 0 and token.group() == "}":
            return text[: start.start()] + text[token.end() :], text[start.start() : token.end()]
    return text[: start.start()], text[start.start() :]


def split_yaml(text: str) -> tuple[str, str]:
    """The lines of a text that are YAML, and those that are a command."""
    lines = _short(text).splitlines(keepends=True)
    return (
        "".join(line for line in lines if _YAML_LINE.match(line)),
        "".join(line for line in lines if not _YAML_LINE.match(line)),
    )


def _short(text: str) -> str:
    if len(text) > _LONGEST:
        raise InvalidInput("config", text[:60], f"must have {_LONGEST:,} characters at most")
    return text


def _mapping(text: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise InvalidInput("config", text[:60], "must hold names with values")
    return value


def first_line(error: Exception) -> str:
    """The first line of what an error says, or its type."""
    return next(iter(str(error).splitlines()), type(error).__name__)
