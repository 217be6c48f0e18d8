"""Launched: the training command that a text holds, whichever way it was copied."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from autotuner.core.errors import InvalidInput
from autotuner.export.accounted import of_launcher, of_variables
from autotuner.export.flags import Flags, flags_of
from autotuner.export.shell.script import Command, Script, read_script
from autotuner.export.target import Note, NoteKind

_PROGRAM = re.compile(r"[^-].*\.py")
_LAUNCHERS = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "deepspeed.launcher.runner",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """A training command."""

    launcher: Flags = field(default_factory=Flags)
    """Flags before the program: those of torchrun, srun, deepspeed, accelerate launch."""
    program: str = ""
    """The script or module that trains; empty where the text has arguments alone."""
    arguments: Flags = field(default_factory=Flags)
    """Flags behind it."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """What the script set, plain texts."""
    notes: tuple[Note, ...] = ()
    """What could not be followed, what of the launcher says nothing of a layout, and what became of variables."""

    @property
    def num_ranks(self) -> int | None:
        """Ranks that the launcher starts in all; None: the text does not say."""
        found = self.launcher | self.arguments
        for each, nodes in _RANKS:
            counts = [_count(found, each), _count(found, nodes) or _of_variables(self.variables, _NODES) or 1]
            if counts[0]:
                return prod(count for count in counts if count)
        total = _count(found, ("num_processes", "ntasks", "n"))
        return total or _of_variables(self.variables, ("WORLD_SIZE", "SLURM_NTASKS")) or self._of_nodes()

    def _of_nodes(self) -> int | None:
        each = _of_variables(self.variables, ("SLURM_NTASKS_PER_NODE",))
        nodes = _of_variables(self.variables, _NODES)
        return each * nodes if each and nodes else _of_variables(self.variables, _OF_ONE_NODE)


_RANKS = (
    (("nproc_per_node",), ("nnodes",)),  # torchrun (torch 2.13, distributed/run.py)
    (("num_gpus",), ("num_nodes",)),  # deepspeed (0.19.8, launcher/runner.py)
    (("ntasks_per_node",), ("nodes", "N")),  # srun(1)
)
"""Flags that say ranks of a node, and how many nodes."""

_COUNTED = frozenset(
    (
        *(flag for pair in _RANKS for names in pair for flag in names),
        *("num_processes", "ntasks", "n", "m", "module", "u"),
    )
)
"""Flags that say how many ranks there are; and Python's own."""

_ACCELERATE = frozenset(("accelerate", "accelerate.commands.launch"))
"""Whose flags say a layout, and have a reader of their own."""

_MOST_NAMED = 8

_OF_THE_SHELL = ("PWD", "OLDPWD", "HOME", "USER", "HOSTNAME", "SHELL", "PATH", "PYTHONPATH", "TMPDIR", "RANDOM")
"""Variables that every shell has: nobody expects a script to set them."""

_OF_ONE_NODE = ("NGPU",)
"""Torchtitan's run_train.sh starts so many ranks, on one node."""

_NODES = ("SLURM_NNODES", "SLURM_JOB_NUM_NODES")


def launched(text: str, document: str = "") -> Launched:
    """The training command of a text.

    Args:
        document: A file that the script writes and that stood in it; it may ask for variables.
        text: A shell script, a command line, arguments alone, or ``/proc/PID/cmdline`` with its NULs.

    Raises:
        InvalidInput: It has no flag at all, or is too large to be read.
    """
    if "\0" in text.strip("\0"):
        return _of_words(
            [word for word in text.strip("\0\n").split("\0") if word], Script(commands=(), variables={}, arrays={})
        )
    script = read_script(text)
    script = replace(script, unused=tuple(name for name in script.unused if not _asks(document, name)))
    nothing = Command(words=(), variables=script.variables)
    certain = [command for command in script.commands if command.is_certain]
    command = max(certain, key=_num_flags, default=nothing)
    if _num_flags(command) == 0:
        command = max(script.commands, key=_num_flags, default=nothing)
    if _num_flags(command) == 0:
        command = Command(words=tuple(_loose_words(script)), variables=script.variables)
    if _num_flags(command) == 0:
        raise InvalidInput("config", text[:60], "has no command with --flags")
    return _of_words(command.words, script, command)


def _num_flags(command: Command) -> int:
    return sum(word.startswith("--") for word in command.words)


def _loose_words(script: Script) -> Iterator[str]:
    """Arguments that variables hold and no command takes: a script's fragment."""
    for elements in script.arrays.values():
        words = [word for element in elements for word in _split(element)]
        if any(word.startswith("--") for word in words):
            yield from words


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _of_words(words: Sequence[str], script: Script, command: Command | None = None) -> Launched:
    at = _program_at(words)
    launcher = flags_of(words[:at]) if at is not None else Flags()
    unfollowed = (*script.notes, *_unresolved(words, script), *(_undecided(command) if command else ()))
    return Launched(
        launcher=launcher,
        program=words[at] if at is not None else "",
        arguments=flags_of(words if at is None else words[at + 1 :]),
        variables=script.variables if command is None else {**script.variables, **command.variables},
        notes=(
            *(Note(kind=NoteKind.IGNORED, setting="script", detail=sentence) for sentence in unfollowed),
            *(() if _ACCELERATE.intersection(words[:at]) else of_launcher(launcher, _COUNTED)),
            *of_variables(script.exported, script.unused),
        ),
    )


def _undecided(command: Command) -> Iterator[str]:
    """Yield what of a command depends on a condition that only a run decides."""
    if not command.is_certain:
        yield "the text does not tell whether the command runs"
    for words in dict.fromkeys(command.left_out):
        yield f"{words[:80]} depends on a condition that only a run decides, and was left out"


def _unresolved(words: Sequence[str], script: Script) -> Iterator[str]:
    """What of these words only a run of the script would tell."""
    names = [name for name in script.unset if name not in _OF_THE_SHELL]
    unset = [name for name in names if any(_asks(word, name) for word in words)]
    unknown = [part for part in script.unknown if any(part in word for word in words)]
    if unset:
        yield f"nothing sets {', '.join(f'${name}' for name in unset[:_MOST_NAMED])}"
    if unknown:
        yield f"only a run would tell {', '.join(unknown[:_MOST_NAMED])}"


def _asks(text: str, name: str) -> bool:
    return re.search(rf"\$\{{?{name}\b", text) is not None


def _program_at(words: Sequence[str]) -> int | None:
    """Where the program stands: the first Python file, or a module that is no launcher."""
    for at, word in enumerate(words):
        if word in ("-m", "--module") and at + 1 < len(words) and words[at + 1] not in _LAUNCHERS:
            return at + 1
        if _PROGRAM.fullmatch(word) and not word.endswith(("/torchrun.py", "launch.py", "/run.py")):
            return at
    return None


def _count(flags: Flags, names: Sequence[str]) -> int | None:
    text = flags.text(*names)
    return _positive(text.rpartition(":")[2]) if text else None  # --nnodes 1:4 has as many as it gets


def _of_variables(variables: Mapping[str, str], names: Sequence[str]) -> int | None:
    return next((count for name in names if (count := _positive(variables.get(name, "")))), None)


def _positive(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 9 and int(text) > 0 else None
