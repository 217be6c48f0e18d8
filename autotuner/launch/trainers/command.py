"""The command of a trainer: an argument vector with placeholders that only the launcher fills in; no shell reads it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from string import Formatter

from autotuner.domain.runs.trial import TrialSettings, TrialSpec
from autotuner.errors import InvalidInput

__all__ = ["ARGUMENTS", "PLACEHOLDERS", "check_command", "num_steps", "rendered"]

ARGUMENTS = "arguments"
"""The placeholder that stands alone and becomes as many arguments as the exported layout has."""

PLACEHOLDERS = (
    ARGUMENTS,
    "file",
    "global_batch_size",
    "micro_batch_size",
    "num_micro_batches",
    "python",
    "seed",
    "seq_len",
    "spec",
    "steps",
    "world_size",
)

_SPARE_STEP = 1
"""A log that says no times gives none for its first line, which is one step more that a trainer has to make."""


def check_command(command: Sequence[str]) -> None:
    """Return if every placeholder is known and stands where it may.

    Raises:
        InvalidInput: With the nearest placeholder; the field is the argument's place in the command.
    """
    if not command:
        raise InvalidInput("command", [], "must be a list of arguments, the program first")
    for index, argument in enumerate(command):
        if "\0" in argument:
            raise InvalidInput(f"command.{index}", argument, "must not hold a NUL")
        for name in _placeholders(argument, f"command.{index}"):
            if name not in PLACEHOLDERS:
                near = get_close_matches(name, PLACEHOLDERS, 1, cutoff=0.0)[0]
                rule = "has an unknown placeholder; a brace that is meant is written twice"
                raise InvalidInput(f"command.{index}", argument, rule, f"{{{near}}}")
            if name == ARGUMENTS and argument != f"{{{ARGUMENTS}}}":
                rule = "must hold nothing else, since it becomes several arguments"
                raise InvalidInput(f"command.{index}", argument, rule, f"{{{ARGUMENTS}}}")
    if f"{{{ARGUMENTS}}}" == command[0]:
        raise InvalidInput("command.0", command[0], "must be a program")


def num_steps(settings: TrialSettings) -> int:
    """The most steps that a trial asks a trainer for."""
    warmup = max(settings.warmup_steps, settings.max_warmup_steps)
    return warmup + max(settings.measured_steps, settings.max_measured_steps) + _SPARE_STEP


def rendered(
    command: Sequence[str], spec: TrialSpec, *, arguments: Sequence[str], file: Path | None, spec_file: Path
) -> list[str]:
    """The argument vector of a trial.

    Args:
        command: As registered.
        spec: The trial.
        arguments: Of the exported layout.
        file: The first file of the exported layout, where it has one; else ``{file}`` is empty.
        spec_file: The trial as JSON.
    """
    values: Mapping[str, object] = {
        "file": "" if file is None else file,
        "spec": spec_file,
        "python": sys.executable,
        "seed": spec.seed,
        "steps": num_steps(spec.settings),
        "world_size": spec.layout.world_size,
        "seq_len": spec.workload.seq_len,
        "global_batch_size": spec.workload.global_batch_size,
        "micro_batch_size": spec.layout.micro_batch_size,
        "num_micro_batches": spec.workload.num_micro_batches(spec.layout),
    }
    vector: list[str] = []
    for argument in command:
        if argument == f"{{{ARGUMENTS}}}":
            vector += arguments
        else:
            vector.append(argument.format_map(values))
    return vector


def _placeholders(argument: str, field: str) -> list[str]:
    """Names between single braces; what Python's formatting knows beyond names is refused.

    Raises:
        InvalidInput: A brace is left open, or a name is followed by what formats or looks into a value.
    """
    try:
        pieces = list(Formatter().parse(argument))
    except ValueError as error:
        rule = f"is no template ({error}); a brace that is meant is written twice"
        raise InvalidInput(field, argument, rule) from error
    names = []
    for _, name, form, conversion in pieces:
        if name is None:
            continue
        if form or conversion:
            raise InvalidInput(field, argument, "must hold names alone between its braces", f"{{{name}}}")
        names.append(name)
    return names
