"""Texts that hold a job file of torchtitan 0.2: TOML, flags, both, or the configuration that it prints as JSON."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence

from autotuner.core.errors import InvalidInput
from autotuner.export.flags import Flags
from autotuner.export.launched import launched
from autotuner.export.target import Note, NoteKind
from autotuner.export.torchtitan.settings import Settings

_SECTIONS = "parallelism|training|activation_checkpoint|compile"
_RENAMED = {
    "training.batch_size": "training.local_batch_size",
    "training.compile": "compile.enable",
    "training.data_parallel_degree": "parallelism.data_parallel_shard_degree",
    "training.data_parallel_replicate_degree": "parallelism.data_parallel_replicate_degree",
    "training.data_parallel_shard_degree": "parallelism.data_parallel_shard_degree",
    "training.tensor_parallel_degree": "parallelism.tensor_parallel_degree",
    "training.enable_async_tensor_parallel": "parallelism.enable_async_tensor_parallel",
    "experimental.context_parallel_degree": "parallelism.context_parallel_degree",
    "experimental.context_parallel_rotate_method": "parallelism.context_parallel_rotate_method",
    "experimental.enable_async_tensor_parallel": "parallelism.enable_async_tensor_parallel",
    "experimental.pipeline_parallel_degree": "parallelism.pipeline_parallel_degree",
    "experimental.pipeline_parallel_schedule": "parallelism.pipeline_parallel_schedule",
    "float8.enable_fsdp_float8_all_gather": "quantize.linear.float8.enable_fsdp_float8_all_gather",
    "float8.filter_fqns": "quantize.linear.float8.filter_fqns",
    "float8.precompute_float8_dynamic_scale_for_fsdp": (
        "quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp"
    ),
    "float8.recipe_name": "quantize.linear.float8.recipe_name",
    "mx.recipe_name": "quantize.linear.mx.recipe_name",
}
"""Settings of earlier releases (0.0.2 and 0.1.0, ``torchtitan/config_manager.py``) by the names that they have now."""

_TABLE = re.compile(r"^[ \t]*\[[A-Za-z_][\w.]*\][ \t\r]*(#.*)?$", re.MULTILINE)
_OWN_TABLE = re.compile(rf"^[ \t]*\[({_SECTIONS})\][ \t\r]*(#.*)?$", re.MULTILINE)
_OWN_FLAG = re.compile(rf"--({_SECTIONS})\.\w")
_FLAG = re.compile(r"(?:^|\s)--[A-Za-z]")
_SUBCOMMAND = re.compile(r"[a-z]+[-_][a-z]+:[a-z]")
_PRINTED = re.compile(r'\{\s{0,20}"job"\s{0,20}:\s{0,20}\{')
_COMMAND = re.compile(r"\s*(--\w|(?:\w+=\S*\s+)*(?:torchrun|python\d?|srun|bash|sh|exec|\S*run_train\.sh)\b)")
_OF_SHELL = re.compile(
    r"#!|#SBATCH|\s*(?:[A-Z_][A-Z0-9_]*\+?=|[A-Z]+$|(?:set|export|if|for|while|case|cd|source|cat|sbatch|module|mkdir|echo)\s)"
)
"""Lines that begin a script beside tables; TOML sets small names, and has blanks where a shell has none."""


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
        return _named_as_now(flattened(_json(text[printed.start() :])))
    table, commands = _parts(text)
    if not commands.strip():
        return _named_as_now(flattened(_toml(table)))
    command = launched(commands)
    values = {**flattened(_toml(table)), **overrides(command.arguments)}
    notes = list(command.notes)
    if not table.strip():
        detail = (
            "the file that the command reads was not given with it; torchtitan's defaults stand in for what it says"
        )
        notes.append(Note(kind=NoteKind.ASSUMED, setting="job.config_file", detail=detail))
    return _named_as_now(values, command.num_ranks, notes, is_partial=not table.strip())


def _named_as_now(
    values: Mapping[str, object], num_ranks: int | None = None, notes: Sequence[Note] = (), *, is_partial: bool = False
) -> Settings:
    """The settings, those of earlier releases by the names of today; a name of today wins."""
    old = [name for name in values if name in _RENAMED]
    detail = "of an earlier release; it is read as {}"
    told = [Note(kind=NoteKind.CHANGED, setting=name, detail=detail.format(_RENAMED[name])) for name in old]
    today = {name: value for name, value in values.items() if name not in _RENAMED}
    moved = {_RENAMED[name]: values[name] for name in old}
    return Settings({**moved, **today}, num_ranks, (*notes, *told), is_partial=is_partial)


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


_MAX_PARTS = 32
"""Of a dotted key; torchtitan's have four, and what a long one costs grows with its square."""

_PIECES, _DOT = re.compile(r"[=,{}\[\]\n]"), re.compile(r"[^.\s]\s*\.")
"""What ends a key, and a dot behind a part of one."""


def _parts(text: str) -> tuple[str, str]:
    """Return the tables and the commands of a text.

    Commands are lines that begin as one does, with those that they are continued on. A script ends at the next table.
    """
    if not _TABLE.search(text):
        return ("", text) if _FLAG.search(text) else (text, "")
    parts: tuple[list[str], list[str]] = ([], [])
    is_command = is_script = False
    for line in text.splitlines():
        is_script = (is_script or bool(_OF_SHELL.match(line))) and not _TABLE.match(line)
        is_command = bool(_COMMAND.match(line)) or (is_command and bool(parts[1]) and parts[1][-1].endswith("\\"))
        parts[is_command or is_script].append(line)
    return "\n".join(parts[0]), "\n".join(parts[1])


def _toml(text: str) -> Mapping[str, object]:
    if any(len(_DOT.findall(piece)) >= _MAX_PARTS for piece in _PIECES.split(text)):
        raise InvalidInput("config", text[:60], f"must have keys of at most {_MAX_PARTS} parts between dots")
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
