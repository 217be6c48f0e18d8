"""Script: the commands that a shell script would run, found without running it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from autotuner.errors import InvalidInput
from autotuner.export.shell.conditions import holds
from autotuner.export.shell.expand import Scope
from autotuner.export.shell.tokens import Token, TokenKind, tokens

__all__ = ["Script", "read_script"]

_LARGEST = 200_000
"""Characters of a script that is read: long ones have 30,000."""

_DEEPEST = 3
"""Scripts inside scripts (``bash -c "..."``, ``sbatch <<EOF``)."""

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_DECLARING = ("export", "declare", "local", "readonly", "typeset")
_SHELLS = ("bash", "sh", "sbatch", "zsh", "ssh")
_SILENT = ("echo", "printf", "set", "shift", "exit", "return", "cd", "mkdir", "trap", "ulimit", ":", "true", "false")
_SBATCH = re.compile(r"^#SBATCH\s+(--?[\w-]+)[=\s]+([^\s#]+)", re.MULTILINE)
_SLURM = {  # sbatch(1), Slurm 25.05: options, and the variables that a job then finds
    "--nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "-N": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "--ntasks": ("SLURM_NTASKS",),
    "-n": ("SLURM_NTASKS",),
    "--ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
    "--gpus-per-node": ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What a script comes to.

    Attributes:
        commands: Every command with arguments, its variables expanded, in order.
        variables: What they hold at the end, an array's elements with blanks between them.
        arrays: Elements of every variable.
        unset: Names that a command or an assignment asked for and nothing sets.
        unknown: Expansions that only a run would tell, as they are written.
        notes: What could not be followed; sentences without full stops.
    """

    commands: tuple[tuple[str, ...], ...]
    variables: Mapping[str, str]
    arrays: Mapping[str, tuple[str, ...]]
    unset: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read_script(text: str) -> Script:
    """The commands of a shell script.

    Assignments, arrays, ``${NAME:-default}``, sums, conditions that the text decides, and the first round of a ``for``
    are followed. What files, commands or arguments of the script would say stays as it is written, and nothing is run.

    Raises:
        InvalidInput: The text is longer than scripts are, or its variables grow without end.
    """
    if len(text) > _LARGEST:
        raise InvalidInput("config", text[:60], f"has {len(text):,} characters, and {_LARGEST:,} are read at most")
    reader = _Reader(Scope())
    reader.read(text)
    return reader.script()


@dataclass(slots=True)
class _Block:
    """An ``if``, ``for``, ``while`` or ``case`` that is open.

    Attributes:
        active: Its commands would run now.
        taken: One of its branches has run; None: that is not known.
        condition: What stands between ``if`` and ``then`` comes to, so far; with the operator before the next part.
        subject: Of a ``case``.
        in_patterns: Of a ``case``: patterns are read, not commands.
    """

    kind: str
    outer: bool
    active: bool
    taken: bool | None = False
    condition: bool | None = None
    joined_by: str = ""
    in_condition: bool = False
    subject: str = ""
    in_patterns: bool = False


class _Reader:
    """Goes through the commands of a script in order, with the blocks that are open."""

    def __init__(self, scope: Scope, depth: int = 0) -> None:
        self._scope = scope
        self._depth = depth
        self._blocks: list[_Block] = []
        self._commands: list[tuple[str, ...]] = []
        self._notes: dict[str, None] = {}

    def read(self, text: str) -> None:
        for option, value in _SBATCH.findall(text):
            for name in _SLURM.get(option, ()):
                self._scope.assign(name, [value.rpartition(":")[2]])
        for command, ended_by in _simple_commands(tokens(text)):
            self._command(command, ended_by)

    def script(self) -> Script:
        values = self._scope.values
        return Script(
            commands=tuple(self._commands),
            variables=self._scope.variables,
            arrays={name: tuple(elements) for name, elements in values.items()},
            unset=tuple(self._scope.unset),
            unknown=tuple(self._scope.unknown),
            notes=tuple(self._notes),
        )

    # ---------------------------------------------------------------- blocks
    @property
    def _active(self) -> bool:
        return self._blocks[-1].active if self._blocks else True

    def _command(self, command: list[Token], ended_by: str) -> None:
        """Follow keywords in front of a command, then the command."""
        if self._blocks and self._blocks[-1].in_patterns and self._patterns(command, ended_by):
            return
        while command and command[0].kind is TokenKind.WORD and command[0].text in _KEYWORDS:
            command = _KEYWORDS[command[0].text](self, command[1:])
        block = self._blocks[-1] if self._blocks else None
        if block and block.in_condition:
            self._condition(block, [token.text for token in command], ended_by)
        elif command and self._active:
            self._run(command)
        elif command and block and block.taken is None and block.outer and _matters(command):
            self._notes["what depends on a condition that only a run decides was left out"] = None
        if block and block.kind == "case" and ended_by == ";;":
            block.in_patterns = True

    def _open(self, kind: str, **how: bool | str) -> None:
        self._blocks.append(_Block(kind, outer=self._active, active=self._active, **how))  # type: ignore[arg-type]

    def _if(self, rest: list[Token]) -> list[Token]:
        self._open("if", in_condition=True)
        return rest

    def _then(self, rest: list[Token]) -> list[Token]:
        block = self._of_kind("if")
        if block:
            value, block.condition, block.joined_by = block.condition, None, ""
            block.in_condition = False
            block.active = block.outer and block.taken is False and value is True
            block.taken = None if value is None and block.taken is False else bool(value) or block.taken
        return rest

    def _elif(self, rest: list[Token]) -> list[Token]:
        block = self._of_kind("if")
        if block:
            block.active, block.in_condition = False, True
        return rest

    def _else(self, rest: list[Token]) -> list[Token]:
        block = self._of_kind("if")
        if block:
            block.active = block.outer and block.taken is False
        return rest

    def _close(self, rest: list[Token]) -> list[Token]:
        if self._blocks:
            self._blocks.pop()
        return rest

    def _for(self, rest: list[Token]) -> list[Token]:
        words = [token.text for token in rest]
        self._open("loop")
        if len(words) > 2 and words[1] == "in" and words[0].isidentifier() and self._active:
            rounds = [field for word in words[2:] for field in self._scope.fields(word)]
            self._scope.assign(words[0], rounds[:1])
            if len(rounds) > 1:
                self._notes[f"of the loop over {words[0]} the first round is read"] = None
        return []

    def _while(self) -> list[Token]:
        """Leave a loop out: only a run would tell whether it has a round."""
        self._open("loop")
        self._blocks[-1].active = False
        return []

    def _case(self, rest: list[Token]) -> list[Token]:
        subject = self._scope.text(rest[0].text) if rest else ""
        self._open("case", subject=subject)
        block = self._blocks[-1]
        block.active, block.in_patterns = False, True
        return rest[2:]

    def _patterns(self, command: list[Token], ended_by: str) -> bool:
        """Whether these are patterns of a ``case``, and not its end."""
        block = self._blocks[-1]
        words = [token.text for token in command]
        if words[:1] == ["esac"]:
            return False
        texts = [self._scope.text(word) for word in words if word != "("]
        if block.outer and block.taken is False and any(fnmatchcase(block.subject, text) for text in texts):
            block.condition = True
        if ended_by == ")":
            block.active, block.condition, block.in_patterns = block.condition is True, None, False
            block.taken = block.taken or block.active
        return True

    def _of_kind(self, kind: str) -> _Block | None:
        return self._blocks[-1] if self._blocks and self._blocks[-1].kind == kind else None

    def _condition(self, block: _Block, words: list[str], ended_by: str) -> None:
        if words:
            value = holds(words, self._scope) if block.outer else False
            block.condition = _joined(block.condition, block.joined_by, value)
            block.joined_by = ended_by

    # ---------------------------------------------------------------- commands
    def _run(self, command: list[Token]) -> None:
        documents = [token.text for token in command if token.kind is TokenKind.DOCUMENT]
        rest = self._assign([token for token in command if token.kind is not TokenKind.DOCUMENT])
        words = tuple(field for token in rest if not token.words for field in self._scope.fields(token.text))
        if not words or words[0] in _SILENT:
            return
        if words[0] in ("source", "."):
            self._notes[f"{' '.join(words[:2])} is not read"] = None
        elif words[0] == "unset":
            for name in words[1:]:
                self._scope.values.pop(name, None)
        else:
            self._follow(words, documents)

    def _assign(self, command: list[Token]) -> list[Token]:
        """Take assignments in front of a command, or behind a word that declares; what is left of it."""
        rest = command
        declaring = bool(rest) and rest[0].text in _DECLARING
        rest = rest[declaring:]
        while rest:
            token = rest[0]
            found = _ASSIGNMENT.fullmatch(token.text)
            if found:
                array = token.kind is TokenKind.ARRAY
                elements = (
                    [f for w in token.words for f in self._scope.fields(w)] if array else [self._scope.text(found[3])]
                )
                self._scope.assign(found[1], elements, append=bool(found[2]), array=array)
            elif not declaring:
                break
            rest = rest[1:]
        return rest

    def _follow(self, words: tuple[str, ...], documents: list[str]) -> None:
        """A command, or the script that it hands to a shell."""
        inner = _inner(words)
        if words[0] in _SHELLS:
            inner += documents
        if not inner or self._depth >= _DEEPEST:
            self._commands.append(words)
            return
        reader = _Reader(self._scope, self._depth + 1)
        for text in inner:
            reader.read(text)
        script = reader.script()
        self._commands.extend(script.commands)
        self._notes.update(dict.fromkeys(script.notes))


_KEYWORDS: Mapping[str, Callable[[_Reader, list[Token]], list[Token]]] = {
    "if": _Reader._if,
    "then": _Reader._then,
    "elif": _Reader._elif,
    "else": _Reader._else,
    "fi": _Reader._close,
    "for": _Reader._for,
    "while": lambda reader, rest: reader._while(),
    "until": lambda reader, rest: reader._while(),
    "do": lambda reader, rest: rest,
    "done": _Reader._close,
    "case": _Reader._case,
    "esac": _Reader._close,
    "{": lambda reader, rest: rest,
    "}": lambda reader, rest: rest,
    "time": lambda reader, rest: rest,
    "exec": lambda reader, rest: rest,
}


def _joined(before: bool | None, by: str, value: bool | None) -> bool | None:
    """Two parts of a condition, by the operator between them."""
    if by == "&&":
        return False if False in (before, value) else None if None in (before, value) else True
    if by == "||":
        return True if True in (before, value) else None if None in (before, value) else False
    return value


def _matters(command: list[Token]) -> bool:
    """Whether a command sets a variable or has flags."""
    return any(_ASSIGNMENT.match(token.text) or token.text.startswith("--") for token in command)


def _inner(words: tuple[str, ...]) -> list[str]:
    """Scripts that a command hands to a shell."""
    if words[0] == "eval":
        return [" ".join(words[1:])]
    return [
        after for shell, option, after in zip(words, words[1:], words[2:], strict=False) if _hands_over(shell, option)
    ]


def _hands_over(shell: str, option: str) -> bool:
    return shell.rpartition("/")[2] in _SHELLS and option in ("-c", "-lc", "-xc")


def _simple_commands(found: Iterator[Token]) -> Iterator[tuple[list[Token], str]]:
    """Commands between operators, each with the operator that ends it; what is redirected is left out."""
    command: list[Token] = []
    before: list[Token] = []
    redirected = False
    for token in found:
        is_operator = token.kind is TokenKind.OPERATOR
        if is_operator and token.text in _REDIRECTING:
            redirected = True
        elif is_operator and not (_in_brackets(command) and token.text != "\n"):
            yield command, token.text
            before, command, redirected = command or before, [], False
        elif token.kind is TokenKind.DOCUMENT:
            if before and before[0].text in _SHELLS:
                yield [Token(TokenKind.WORD, "bash"), token], "\n"
        elif redirected:
            redirected = False
        else:
            command.append(token)
    yield command, "\n"


_REDIRECTING = (">", ">>", "<", "&>", "&>>", ">&", "<&", "<<<")


def _in_brackets(command: list[Token]) -> bool:
    """Whether ``[[`` is open, inside which && and || join conditions of one command."""
    opened = [token.text for token in command if token.text in ("[[", "]]")]
    return opened[-1:] == ["[["]
