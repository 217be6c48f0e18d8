"""An export's remarks, and a configuration that was read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text


def export_notes(answer: Mapping[str, Any]) -> RenderableType:
    """How to use what was exported, what it cannot say, and what was left as the trainer has it."""
    release = f" {answer['version']}" if answer["version"] else ""
    head = Text.assemble((f"{answer['format']}{release}", "bold"), f": {answer['label']}")
    return Group(head, *map(Text, _lines(answer)))


def _lines(answer: Mapping[str, Any]) -> Iterator[str]:
    if answer["usage"]:
        yield f"use: {answer['usage']}"
    if len(answer["files"]) + bool(answer["arguments"]) > 1:
        names = ", ".join(file["name"] for file in answer["files"])
        yield f"one after the other: {'arguments, ' if answer['arguments'] else ''}{names}; --output FOLDER parts them"
    if answer["unsaid"]:
        yield "what it cannot say:"
        yield from (f"  {reason['message']}" for reason in answer["unsaid"])
    if answer["defaults"]:
        yield "left as it is there:"
        yield from (f"  {default}" for default in answer["defaults"])
