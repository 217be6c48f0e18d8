"""Texts that hold a job file of torchtitan 0.2: TOML, flags, both, or the configuration that it prints as JSON."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping

from autotuner.errors import InvalidInput
from autotuner.export.flags import Flags
from autotuner.export.launched import launched
from autotuner.export.target import Note, NoteKind
from autotuner.export.torchtitan.settings import Settings

__all__ = ["flattened", "is_job_file", "overrides", "settings_of"]

_SECTIONS = "parallelism|training|activation_checkpoint|compile"
_TABLE = re.compile(r"^\s*\[[A-Za-z_][\w.]*\]\s*(#.*)?$", re.MULTILINE)
_OWN_TABLE = re.compile(rf"^\s*\[({_SECTIONS})\]\s*(#.*)?$", re.MULTILINE)
_OWN_FLAG = re.compile(rf"--({_SECTIONS})\.\w")
_FLAG = re.compile(r"(?:^|\s)--[A-Za-z]")
_SUBCOMMAND = re.compile(r"[a-z]+[-_][a-z]+:[a-z]")
_PRINTED = re.compile(r'\{\s*"job"\s*:\s*\{')
_COMMAND = re.compile(r"\s*(--\w|(?:\w+=\S*\s+)*(?:torchrun|python\d?|srun|bash|sh|exec|\S*run_train\.sh)\b)")


def is_job_file(text: str) -> bool:
    """Whether it has a table, a flag or a printed configuration of torchtitan 0.2's."""
    return any(pattern.search(text) for pattern in (_OWN_TABLE, _OWN_FLAG, _PRINTED))


def settings_of(text: str) -> Settings:
    """What the text says, flags above tables.

    Raises:
        InvalidInput: It is neither TOML, nor JSON, nor a command with flags.
    """
    printed = _PRINTED.search(text)
    if printed:
        return Settings(flattened(_json(text[printed.start() :])))
    table, commands = _parts(text)
    if not commands.strip():
        return Settings(flattened(_toml(table)))
    command = launched(commands)
    values = {**flattened(_toml(table)), **overrides(command.arguments)}
    notes = [Note(kind=NoteKind.IGNORED, setting="command", detail=note) for note in command.notes]
    if not table.strip():
        detail = (
            "the file that the command reads was not given with it; torchtitan's defaults stand in for what it says"
        )
        notes.append(Note(kind=NoteKind.ASSUMED, setting="job.config_file", detail=detail))
    return Settings(values, command.num_ranks, notes, is_partial=not table.strip())


def overrides(flags: Flags) -> Mapping[str, object]:
    """Flags with a section, as tyro reads them: ``--compile.enable``, ``--compile.no_enable``, ``--a.b value``."""
    values: dict[str, object] = {}
    for name, words in flags.values.items():
        given = [word for word in words if not _SUBCOMMAND.match(word)]
        section, dot, key = name.rpartition(".")
        if dot and not given and key.startswith("no_"):
            values[f"{section}.{key.removeprefix('no_')}"] = False
        elif dot:
            values[name] = given[0] if given else True
    return values


def flattened(document: Mapping[str, object]) -> dict[str, object]:
    """Nested tables by dotted names."""
    values: dict[str, object] = {}
    waiting: list[tuple[str, object]] = list(document.items())[::-1]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [(f"{name}.{key}", inner) for key, inner in reversed(value.items())]
        else:
            values[name] = value
    return values


def _parts(text: str) -> tuple[str, str]:
    """Tables, and commands: lines that begin as one does, with those that they are continued on."""
    if not _TABLE.search(text):
        return ("", text) if _FLAG.search(text) else (text, "")
    parts: tuple[list[str], list[str]] = ([], [])
    is_command = False
    for line in text.splitlines():
        is_command = bool(_COMMAND.match(line)) or (is_command and bool(parts[1]) and parts[1][-1].endswith("\\"))
        parts[is_command].append(line)
    return "\n".join(parts[0]), "\n".join(parts[1])


def _toml(text: str) -> Mapping[str, object]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # its integers may have too many digits, which is no error of its own
        raise InvalidInput("config", text[:60], f"must be TOML ({_one_line(error)})") from error


def _json(text: str) -> Mapping[str, object]:
    try:
        document, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("config", text[:60], f"must be JSON ({_one_line(error)})") from error
    return document  # type: ignore[no-any-return]  # it begins with a brace


def _one_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
