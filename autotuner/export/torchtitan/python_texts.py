"""Texts that hold a configuration of torchtitan 0.3: a Python module, flags, or both."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from autotuner.core.errors import InvalidInput
from autotuner.export.flags import Flags
from autotuner.export.launched import launched
from autotuner.export.target import Note, NoteKind
from autotuner.export.torchtitan.catalog import preset
from autotuner.export.torchtitan.python_reading import UNKNOWN, Made, Module, read_module
from autotuner.export.torchtitan.settings import Settings
from autotuner.export.torchtitan.texts import overrides

_PYTHON = re.compile(r"^(def \w+\(|from torchtitan\b|import torchtitan\b)", re.MULTILINE)
_CALLS = re.compile(r"\b(Trainer\.Config\(|model_registry\(|ParallelismConfig\(|config_registry import\b)")
_MODULE_FLAG = re.compile(r"--module[= ]\S")
_CONFIG_FLAG = re.compile(r"--config[= ]\w")
_NEW_FLAG = re.compile(r"\bactivation[-_]checkpoint:[a-z]|--compile\.enable[-_]async|--parallelism\.enable[-_]sequence")
_COMMAND = re.compile(r"(--[A-Za-z]|(?:[A-Z_]+=\S*\s+)*(?:torchrun|python\d?|srun|bash|sh|\S*run_train\.sh)\s)")
_CHECKPOINT = re.compile(r"\bactivation[-_]checkpoint:([a-z][a-z_-]*)")

_FAMILIES = ("llama3", "qwen3", "deepseek_v3", "gpt_oss")
_AC = {"FullAC": "full", "SelectiveAC": "selective", "MemoryBudgetAC": "memory_budget"}
"""Classes of ``torchtitan/distributed/activation_checkpoint.py`` (0.3.0)."""

_SECTIONS = ("training", "parallelism", "compile", "optimizer")


def is_configuration(text: str) -> bool:
    """Whether it is Python that makes a configuration, or flags that only 0.3 has."""
    names_function = _MODULE_FLAG.search(text) and _CONFIG_FLAG.search(text)
    return bool((_PYTHON.search(text) and _CALLS.search(text)) or names_function or _NEW_FLAG.search(text))


def settings_of(text: str) -> Settings:
    """What the text says, flags above the function.

    Raises:
        InvalidInput: It is neither Python nor a command with flags.
    """
    module_text, command_text = _parts(text)
    command = launched(command_text) if command_text.strip() else None
    flags = command.arguments if command else Flags()
    notes = list(command.notes) if command else []
    function = flags.text("config") or ""
    if module_text.strip():
        values = _of_module(read_module(module_text), function, notes)
    else:
        values = _of_preset(function, notes)
    checkpoint = _CHECKPOINT.findall(command_text)
    values |= overrides(flags)
    if checkpoint:
        values["activation_checkpoint"] = checkpoint[-1]
    is_partial = "model.flavor" not in values
    return Settings(values, command.num_ranks if command else None, notes, is_partial=is_partial)


def _parts(text: str) -> tuple[str, str]:
    """The module, and commands: lines that begin as one does, with those that they are continued on."""
    if not _PYTHON.search(text):
        return "", text
    parts: tuple[list[str], list[str]] = ([], [])
    is_command = False
    for line in text.splitlines():
        is_command = bool(_COMMAND.match(line)) or (is_command and parts[1][-1].endswith("\\"))
        parts[is_command].append(line)
    return "\n".join(parts[0]), "\n".join(parts[1])


def _of_preset(function: str, notes: list[Note]) -> dict[str, object]:
    known = preset(function)
    if known is None:
        detail = "what it sets is not known here; torchtitan's defaults stand in for it"
        notes.append(Note(kind=NoteKind.ASSUMED, setting=f"--config {function}".strip(), detail=detail))
    return dict(known or {})


# ---------------------------------------------------------------- modules
def _of_module(module: Module, function: str, notes: list[Note]) -> dict[str, object]:
    if not module.functions:
        raise InvalidInput("config", "", "has no function that makes a configuration")
    name = function if function in module.functions else [*module.functions][-1]
    made = module.result(name)
    if not isinstance(made, Made):
        raise InvalidInput("config", name, "returns nothing that could be followed without running it")
    values = {} if made.name.endswith(".Config") else _of_preset(made.name, notes)
    values |= dict(_settings(made))
    family = _family(module, made.name)
    if family:
        values["model.name"] = family
    for said in [name for name, value in values.items() if value is UNKNOWN]:
        detail = "its value is computed, and nothing is run to read it"
        notes.append(Note(kind=NoteKind.IGNORED, setting=said, detail=detail))
        del values[said]
    notes += [Note(kind=NoteKind.IGNORED, setting=line[:60], detail="is not followed") for line in module.skipped]
    return values


def _family(module: Module, function: str) -> str:
    """Of the registry that is imported, or the one that the function's name begins with."""
    imported = module.imports.get("model_registry", "").rpartition(".")[2]
    return imported or next((family for family in _FAMILIES if function.startswith(f"{family}_")), "")


def _settings(made: Made) -> Iterator[tuple[str, object]]:
    for name, value in made.fields.items():
        if name == "activation_checkpoint":
            yield name, _checkpoint(value)
        elif name == "model_spec" and isinstance(value, Made):
            yield from _model(value)
        elif name in _SECTIONS and isinstance(value, Made):
            for key, inner in value.fields.items():
                yield f"{name}.{key}", UNKNOWN if isinstance(inner, Made) else inner


def _checkpoint(value: object) -> object:
    if isinstance(value, Made):
        return _AC.get(_class(value), UNKNOWN)
    return "none" if value is None else UNKNOWN


def _class(made: Made) -> str:
    """The class whose ``Config`` it is."""
    return made.name.removesuffix(".Config").rpartition(".")[2]


def _model(registry: Made) -> Iterator[tuple[str, object]]:
    flavor = registry.fields.get("flavor", registry.arguments[0] if registry.arguments else UNKNOWN)
    yield "model.flavor", flavor
    if "attn_backend" in registry.fields:
        yield "model.attn_backend", registry.fields["attn_backend"]
    converters = registry.fields.get("converters")
    if isinstance(converters, list):
        made = [converter for converter in converters if isinstance(converter, Made)]
        yield "model.converters", [_class(converter) for converter in made]
        for converter in made:
            yield from _float8(converter.fields)


def _float8(fields: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for name in ("recipe_name", "emulate"):
        if name in fields:
            yield f"model.float8.{name}", fields[name]
