"""Trainers that an operator registered, and the commands that start them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from string import Formatter
from typing import Any

from autotuner.catalog.software import load_stack, stacks
from autotuner.core import documents
from autotuner.core.choices import ExportFormat
from autotuner.core.errors import InvalidInput
from autotuner.core.trial_spec import Trainer, TrialSettings, TrialSpec
from autotuner.core.value import require_one_of
from autotuner.exports.formats import FORMATS
from autotuner.exports.shared.target import Target
from autotuner.launch.trainers.logs import READERS, NewReader
from autotuner.launch.trainers.progress import LogReader

# The command of a trainer: an argument vector with placeholders that only the launcher fills in; no shell reads it.

ARGUMENTS = "arguments"
"""Placeholder that stands alone in the command; it is replaced by all arguments of the exported layout."""

TORCHRUN = "torchrun"
"""Placeholder that stands alone in the command; it is replaced by torchrun with the trial's ranks and nodes."""

_OF_NODES = ("master_address", "master_port", "node_rank", "num_nodes", "ranks_per_node")

PLACEHOLDERS = (
    ARGUMENTS,
    TORCHRUN,
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
    *_OF_NODES,
)

_SPARE_STEP = 1
"""Number of extra steps for a log without times: the time of a step is the time between two lines, so the first line
gives none."""


def check_command(command: Sequence[str]) -> None:
    """Raise an error unless every placeholder in the command is known and stands in a legal position.

    Raises:
        InvalidInput: A placeholder is wrong. The field is the position of the argument; the error suggests a similar
            placeholder.
    """
    if not command:
        raise InvalidInput("command", [], "must be a list of arguments that begins with the program")
    for index, argument in enumerate(command):
        if "\0" in argument:
            raise InvalidInput(f"command.{index}", argument, "must not contain a NUL character")
        for name in _placeholders(argument, f"command.{index}"):
            if name not in PLACEHOLDERS:
                near = get_close_matches(name, PLACEHOLDERS, 1, cutoff=0.0)[0]
                rule = "has an unknown placeholder; to write a literal brace, write it twice"
                raise InvalidInput(f"command.{index}", argument, rule, argument.replace(f"{{{name}}}", f"{{{near}}}"))
            if name in (ARGUMENTS, TORCHRUN) and argument != f"{{{name}}}":
                rule = "must contain only this placeholder, because it becomes several arguments"
                raise InvalidInput(f"command.{index}", argument, rule, f"{{{name}}}")
    if f"{{{ARGUMENTS}}}" == command[0]:
        raise InvalidInput("command.0", command[0], "must be the name of a program")


def knows_nodes(command: Sequence[str]) -> bool:
    """Return True if a trainer's command has a placeholder for the number of the node on which it runs.

    Without this number, the processes on several nodes do not find each other, and each node would train alone.
    """
    return any(name in (TORCHRUN, "node_rank") for argument in command for name in _placeholders(argument, "command"))


_ON_A_NODE = {name: f"{{{name}}}" for name in ("python", *_OF_NODES)}
"""Placeholders that stay in the command because only the node can fill them in (``NodeTask.command``)."""

_TORCHRUN = (
    *("{python}", "-m", "torch.distributed.run", "--nnodes", "{num_nodes}", "--node-rank", "{node_rank}"),
    *("--nproc-per-node", "{ranks_per_node}", "--max-restarts", "0"),
    *("--master-addr", "{master_address}", "--master-port", "{master_port}"),
)


def num_steps(settings: TrialSettings) -> int:
    """Return the number of steps that a trial asks a trainer to run: the most that it may need, plus one spare step."""
    warmup = max(settings.warmup_steps, settings.max_warmup_steps)
    return warmup + max(settings.measured_steps, settings.max_measured_steps) + _SPARE_STEP


def rendered(
    command: Sequence[str],
    spec: TrialSpec,
    *,
    arguments: Sequence[str],
    file: Path | None,
    spec_file: Path,
) -> list[str]:
    """Return the command of a trial, with every placeholder replaced whose value is known before the nodes start.

    Each node replaces the others, such as its own number.

    Args:
        command: The command in the trainer's registration.
        spec: The trial.
        arguments: Arguments of the exported layout.
        file: The first file of the exported layout; None: the layout has no file, and ``{file}`` becomes empty.
        spec_file: Path of the trial's specification as JSON.
    """
    values: Mapping[str, object] = {
        "file": "" if file is None else file,
        "spec": spec_file,
        "seed": spec.seed,
        "steps": num_steps(spec.settings),
        "world_size": spec.layout.world_size,
        "seq_len": spec.workload.seq_len,
        "global_batch_size": spec.workload.global_batch_size,
        "micro_batch_size": spec.layout.micro_batch_size,
        "num_micro_batches": spec.workload.num_micro_batches(spec.layout),
        **_ON_A_NODE,
    }
    vector: list[str] = []
    for argument in command:
        if argument == f"{{{ARGUMENTS}}}":
            vector += arguments
        elif argument == f"{{{TORCHRUN}}}":
            vector += _TORCHRUN
        else:
            vector.append(argument.format_map(values))
    return vector


def _placeholders(argument: str, field: str) -> list[str]:
    """Return the names between single braces in an argument of the command.

    Raises:
        InvalidInput: A brace is left open, or a name is followed by a conversion, a format, an index or an attribute.
    """
    try:
        pieces = list(Formatter().parse(argument))
    except ValueError as error:
        rule = f"is not a template ({error}); to write a literal brace, write it twice"
        raise InvalidInput(field, argument, rule) from error
    names = []
    for _, name, form, conversion in pieces:
        if name is None:
            continue
        if form or conversion:
            raise InvalidInput(
                field,
                argument,
                "must contain only names of placeholders between its braces; to write a literal brace, write it twice",
                f"{{{name}}}",
            )
        names.append(name)
    return names


# Trainers as their operator registered them, in a TOML file that only the operator writes.

REPORTER = "reporter"
"""Value of ``reports`` for a trainer that reports its own steps through ``autotuner_report``."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_SET_BY_THE_LAUNCHER = ("AUTOTUNER_", "CUDA_VISIBLE_DEVICES")
"""Prefixes of variables that a registration must not set, since the launcher sets them or they may hold secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredTrainer:
    """A training program that an operator registered, with the command that runs it in trials."""

    trainer: Trainer
    """The part of the registration that sweeps use."""
    command: tuple[str, ...]
    """Command as an argument vector with placeholders."""
    working_directory: Path
    """Folder in which the command is started."""
    environment: tuple[str, ...] = ()
    """Names of variables that the trainer gets with the service's values, beside a few that any program needs."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables that the registration sets, with their values."""
    reports: str = REPORTER
    """``reporter``, or the name of the log format that the trainer prints."""
    readers: Mapping[str, NewReader] = field(default_factory=lambda: READERS)
    """Log readers by the name of their format."""

    def __post_init__(self) -> None:
        check_command(self.command)
        for index, name in enumerate(self.environment):
            _require_variable(name, f"environment.{index}")
        for name, value in self.variables.items():
            _require_variable(name, f"variables.{name}")
            if "\0" in value:
                raise InvalidInput(f"variables.{name}", value, "must not contain a NUL character")
        require_one_of("reports", self.reports, (REPORTER, *self.readers))

    def new_reader(self, spec: TrialSpec) -> LogReader | None:
        """Return a reader that finds the trial's steps in the trainer's output.

        It is None if the trainer writes step reports itself, so that its log need not be read.
        """
        return None if self.reports == REPORTER else self.readers[self.reports](spec)


def refuses_trainer(registered: Mapping[str, RegisteredTrainer], trainer: Trainer) -> str | None:
    """Return the reason why this service cannot run the trainer of a sweep, as a sentence; None if it can.

    It can run a trainer that the operator has registered.
    """
    found = registered.get(trainer.name)
    if found is None:
        names = ", ".join(registered) or "none"
        return (
            f"the trainer {trainer.name} is not registered on the machine that runs trials; registered "
            f"trainers: {names}"
        )
    if found.trainer != trainer:
        return (
            f"the trainer {trainer.name} is registered differently on the machine that runs trials and on the machine "
            "that made the sweep; use the same AUTOTUNER_TRAINERS file on both"
        )
    return None


def read_trainers(
    path: Path,
    targets: Mapping[ExportFormat, Target] = FORMATS,
    readers: Mapping[str, NewReader] = READERS,
) -> dict[str, RegisteredTrainer]:
    """Read a TOML file in which an operator registers trainers, one per table; return them by name, in file order.

    Args:
        path: Path of the file. A working directory in it is relative to the folder of the file.
        targets: Formats in which a layout can be written.
        readers: Readers of logs, by name.

    Raises:
        InvalidInput: A value is not legal. The error names the file, the trainer, the key and the most similar legal
            value.
    """
    try:
        document = tomllib.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        rule = f"must be a TOML file that can be read ({error})"
        raise InvalidInput("AUTOTUNER_TRAINERS", str(path), rule) from error
    return {name: _registration(name, table, path, targets, readers) for name, table in document.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerTable:
    """The keys of the TOML table in which an operator registers a trainer, such as its command and its format."""

    format: str
    """Export format in which layouts are written for the trainer."""
    command: tuple[str, ...]
    """Argument vector with placeholders, the program first; no shell reads it."""
    working_directory: str = "."
    """Folder in which the trainer starts, relative to the folder of the TOML file."""
    environment: tuple[str, ...] = ()
    """Names of variables that the trainer gets with the service's values, beside ``PATH``, ``HOME``, ``LANG``,
    ``TMPDIR`` and ``LD_LIBRARY_PATH``."""
    variables: dict[str, str] = field(default_factory=dict)
    """Variables that are set for the trainer, with their values."""
    reports: str = REPORTER
    """``reporter``, or the format of the log that the trainer prints: ``megatron-lm``, ``torchtitan``, ``deepspeed`` or
    ``transformers``."""
    stack: str = "torch"
    """Software stack whose speed predictions assume for this trainer."""
    options: tuple[str, ...] = ()
    """Options of a layout that the trainer reads; empty: all options that the export format has."""
    fixed: dict[str, object] = field(default_factory=dict)
    """Options that the trainer's own code fixes, with their values; every other option that it does not read keeps its
    default."""
    values: dict[str, tuple[object, ...]] = field(default_factory=dict)
    """Values that the trainer supports, by option; empty: all values."""


def _registration(
    name: str,
    table: Any,
    path: Path,
    targets: Mapping[ExportFormat, Target],
    readers: Mapping[str, NewReader],
) -> RegisteredTrainer:
    try:
        said = documents.read(TrainerTable, table)
        require_one_of("format", said.format, tuple(target for target in targets if target.is_of_a_trainer))
        require_one_of("stack", said.stack, stacks())
        load_stack(said.stack)
        return RegisteredTrainer(
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
        raise InvalidInput(path, name, "must have only letters, digits and _, and must not begin with a digit")
    if name.startswith(_SET_BY_THE_LAUNCHER):
        raise InvalidInput(path, name, "must be left out, because the launcher sets this variable")
