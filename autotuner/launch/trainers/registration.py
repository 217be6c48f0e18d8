"""Trainers as their operator registered them, in a TOML file that only the operator writes."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from autotuner.catalog.software import load_stack, stacks
from autotuner.core import documents
from autotuner.core.errors import InvalidInput
from autotuner.core.trial_spec import ExportFormat, Trainer, TrialSpec
from autotuner.export.registry import TARGETS
from autotuner.export.target import Target
from autotuner.launch.trainers.command import check_command
from autotuner.launch.trainers.log_readers.registry import READERS, NewReader
from autotuner.launch.trainers.reported import LogReader

REPORTER = "reporter"
"""The trainer itself says what its steps took, by ``autotuner_report``."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_SET_BY_THE_LAUNCHER = ("AUTOTUNER_", "CUDA_VISIBLE_DEVICES")
"""Beginnings of names that belong to the launcher, or hold what a trainer has no business with (a database's URL)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A trainer, and how it is run here.

    Attributes:
        trainer: What sweeps know of it.
        command: Argument vector with placeholders.
        working_directory: Where it is started.
        environment: Names of variables that it gets as the service has them, beside a few that any program needs.
        variables: Variables of its own.
        reports: ``reporter``, or the log that it prints.
        readers: The logs that are understood.
    """

    trainer: Trainer
    command: tuple[str, ...]
    working_directory: Path
    environment: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    reports: str = REPORTER
    readers: Mapping[str, NewReader] = field(default_factory=lambda: READERS)

    def __post_init__(self) -> None:
        check_command(self.command)
        for index, name in enumerate(self.environment):
            _require_variable(name, f"environment.{index}")
        for name, value in self.variables.items():
            _require_variable(name, f"variables.{name}")
            if "\0" in value:
                raise InvalidInput(f"variables.{name}", value, "must not hold a NUL")
        _require_word("reports", self.reports, (REPORTER, *self.readers))

    def new_reader(self, spec: TrialSpec) -> LogReader | None:
        """What finds the steps of a trial in what it prints; None where it reports them itself."""
        return None if self.reports == REPORTER else self.readers[self.reports](spec)


def refuses_trainer(registered: Mapping[str, Registration], trainer: Trainer) -> str | None:
    """Why a sweep's trainer cannot run here, as a sentence: it is not registered, or not as the sweep knows it."""
    found = registered.get(trainer.name)
    if found is None:
        names = ", ".join(registered) or "none"
        return f"the trainer {trainer.name} is not registered where trials run (registered there: {names})"
    if found.trainer != trainer:
        return f"the trainer {trainer.name} is registered otherwise where trials run than where the sweep was made"
    return None


def read_trainers(
    path: Path,
    targets: Mapping[ExportFormat, Target] = TARGETS,
    readers: Mapping[str, NewReader] = READERS,
) -> dict[str, Registration]:
    """Every trainer of a file, by name, in the file's order; each is a table of its own.

    Args:
        path: A relative working directory is relative to its folder.
        targets: Formats that a layout can be written in.
        readers: Logs that are understood.

    Raises:
        InvalidInput: With the file, the trainer and the key, and the nearest that is legal.
    """
    try:
        document = tomllib.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        rule = f"must be a TOML file that can be read ({error})"
        raise InvalidInput("AUTOTUNER_TRAINERS", str(path), rule) from error
    return {name: _registration(name, table, path, targets, readers) for name, table in document.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """A trainer's table in the file."""

    format: str
    command: tuple[str, ...]
    working_directory: str = "."
    environment: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    reports: str = REPORTER
    stack: str = "torch"
    options: tuple[str, ...] = ()
    fixed: dict[str, object] = field(default_factory=dict)
    values: dict[str, tuple[object, ...]] = field(default_factory=dict)


def _registration(
    name: str,
    table: Any,
    path: Path,
    targets: Mapping[ExportFormat, Target],
    readers: Mapping[str, NewReader],
) -> Registration:
    try:
        said = documents.read(_Table, table)
        _require_word("format", said.format, tuple(target for target in targets if target.is_of_a_trainer))
        _require_word("stack", said.stack, stacks())
        load_stack(said.stack)
        return Registration(
            trainer=Trainer(
                name=name,
                format=ExportFormat(said.format),
                stack=said.stack,
                options=said.options,
                fixed=said.fixed,
                values=said.values,
            ),
            command=said.command,
            working_directory=(path.parent / said.working_directory).absolute(),
            environment=said.environment,
            variables=said.variables,
            reports=said.reports,
            readers=readers,
        )
    except InvalidInput as error:
        raise error.under(f"{path}: {name}") from error


def _require_variable(name: str, path: str) -> None:
    if not _VARIABLE.fullmatch(name):
        raise InvalidInput(path, name, "must be the name of an environment variable")
    if name.startswith(_SET_BY_THE_LAUNCHER):
        raise InvalidInput(path, name, "is the launcher's own, and no trainer's to be given")


def _require_word(field_name: str, word: str, legal: tuple[str, ...]) -> None:
    if word not in legal:
        near = get_close_matches(word, legal, 1, cutoff=0.0)
        raise InvalidInput(field_name, word, f"must be one of {', '.join(legal)}", near[0] if near else None)
