"""The command of a trainer: an argument vector with placeholders that only the launcher fills in; no shell reads it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from string import Formatter

from autotuner.core.errors import InvalidInput
from autotuner.core.trial_spec import TrialSettings, TrialSpec
from autotuner.launch.free_port import free_port

ARGUMENTS = "arguments"
"""The placeholder that stands alone and becomes as many arguments as the exported layout has."""

TORCHRUN = "torchrun"
"""The placeholder that stands alone and becomes torchrun with the ranks, and the nodes, of the trial."""

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
            if name in (ARGUMENTS, TORCHRUN) and argument != f"{{{name}}}":
                rule = "must hold nothing else, since it becomes several arguments"
                raise InvalidInput(f"command.{index}", argument, rule, f"{{{name}}}")
    if f"{{{ARGUMENTS}}}" == command[0]:
        raise InvalidInput("command.0", command[0], "must be a program")


def knows_nodes(command: Sequence[str]) -> bool:
    """Whether the command says which node it runs on: without, several nodes would each train alone."""
    return any(name in (TORCHRUN, "node_rank") for argument in command for name in _placeholders(argument, "command"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """What of a command depends on where it runs.

    Attributes:
        python: The interpreter there.
        nodes: Values of the placeholders of nodes.
        torchrun: What starts this node's ranks, the interpreter first.
    """

    python: str
    nodes: Mapping[str, str]
    torchrun: tuple[str, ...]


def on_this_machine(world_size: int) -> Places:
    """One node that runs all ranks, here; torchrun finds a port by itself, another launcher is told a free one."""
    return Places(
        python=sys.executable,
        nodes={
            "master_address": "127.0.0.1",
            "master_port": str(free_port()),
            "node_rank": "0",
            "num_nodes": "1",
            "ranks_per_node": str(world_size),
        },
        torchrun=(*_torchrun(sys.executable), "--standalone", "--nproc-per-node", str(world_size)),
    )


def _torchrun(python: str) -> tuple[str, ...]:
    return (python, "-m", "torch.distributed.run")


def _on_a_node() -> Places:
    """Placeholders still, which only the node can fill in (``NodeTask.command``)."""
    nodes = {name: f"{{{name}}}" for name in _OF_NODES}
    torchrun = (
        *_torchrun("{python}"),
        *("--nnodes", nodes["num_nodes"], "--node-rank", nodes["node_rank"]),
        *("--nproc-per-node", nodes["ranks_per_node"], "--max-restarts", "0"),
        *("--master-addr", nodes["master_address"], "--master-port", nodes["master_port"]),
    )
    return Places(python="{python}", nodes=nodes, torchrun=torchrun)


ON_A_NODE = _on_a_node()
"""What an engine's nodes fill in themselves."""


def num_steps(settings: TrialSettings) -> int:
    """The most steps that a trial asks a trainer for."""
    warmup = max(settings.warmup_steps, settings.max_warmup_steps)
    return warmup + max(settings.measured_steps, settings.max_measured_steps) + _SPARE_STEP


def rendered(
    command: Sequence[str],
    spec: TrialSpec,
    places: Places,
    *,
    arguments: Sequence[str],
    file: Path | None,
    spec_file: Path,
) -> list[str]:
    """The argument vector of a trial.

    Args:
        command: As registered.
        spec: The trial.
        places: Where it runs.
        arguments: Of the exported layout.
        file: The first file of the exported layout, where it has one; else ``{file}`` is empty.
        spec_file: The trial as JSON.
    """
    values: Mapping[str, object] = {
        "file": "" if file is None else file,
        "spec": spec_file,
        "python": places.python,
        "seed": spec.seed,
        "steps": num_steps(spec.settings),
        "world_size": spec.layout.world_size,
        "seq_len": spec.workload.seq_len,
        "global_batch_size": spec.workload.global_batch_size,
        "micro_batch_size": spec.layout.micro_batch_size,
        "num_micro_batches": spec.workload.num_micro_batches(spec.layout),
        **places.nodes,
    }
    vector: list[str] = []
    for argument in command:
        if argument == f"{{{ARGUMENTS}}}":
            vector += arguments
        elif argument == f"{{{TORCHRUN}}}":
            vector += places.torchrun
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
