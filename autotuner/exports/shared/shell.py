"""Finds the commands that a shell script would run, without running it.

``_Reader`` walks the script's syntax tree in order and keeps the values of its variables. If only a run can decide a
condition, both branches are followed, and values that differ between the branches are marked as unknown
(``shell_words``).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from autotuner.core.errors import InvalidInput
from autotuner.exports.shared.shell_words import (
    Elements,
    Node,
    Scope,
    assigned_names,
    is_known,
    merged,
    nodes,
    parse_script,
    plain,
    unknown,
    whole_number,
)

_DEEPEST = 3
"""Maximum depth of scripts inside scripts (``bash -c "..."``, ``sbatch <<EOF``)."""

_DEEPEST_CALL = 20
_MOST_ROUNDS = 100
_MOST_STATEMENTS = 20_000
_MOST_COMMANDS = 2_000

_SHELLS = ("bash", "sh", "sbatch", "zsh", "ssh")
_SILENT = ("echo", "printf", "cd", "mkdir", "trap", "ulimit", ":", "true", "false", "pwd", "sleep", "pushd", "popd")
_PROBES = ("which", "command", "type", "hash", "grep", "pgrep", "diff", "cmp", "read", "timeout", "wait", "kill")
"""Commands whose exit status scripts test. Any other command is assumed to succeed."""

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
class Command:
    """A command that a shell script runs or may run, with its words after the expansion of variables."""

    words: tuple[str, ...]
    """The command and its arguments, expanded. Parts that are only known when the script runs stay as they are
    written."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Values of variables when the command runs, including variables set for it alone. The elements of an array are
    joined by blanks."""
    left_out: tuple[str, ...] = ()
    """Arguments that the command has only under a condition that is only known when the script runs."""
    is_known: bool = True
    """True if every word is exactly the word that bash passes to the command."""
    is_certain: bool = True
    """True if the command runs in every case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The commands and variables of a shell script, found without running it."""

    commands: tuple[Command, ...] = ()
    """Commands of the script that have arguments, in order."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Values of variables at the end. The elements of an array are joined by blanks."""
    arrays: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Elements of every variable at the end."""
    exported: tuple[str, ...] = ()
    """Names of variables that the script exports to its commands but does not use itself."""
    unused: tuple[str, ...] = ()
    """Names of other variables that the script sets and never uses."""
    unset: tuple[str, ...] = ()
    """Names of variables that are used but that the script never sets."""
    unknown: tuple[str, ...] = ()
    """Expansions that are only known when the script runs, as they are written."""
    notes: tuple[str, ...] = ()
    """Notes about parts that were not followed, as sentences without full stops."""


def read_script(text: str) -> Script:
    """Return the commands and variables of a shell script without running it.

    Raises:
        InvalidInput: The text is not a shell script, is longer than scripts are, or its variables grow without end.
    """
    reader = _Reader()
    try:
        reader.read(text)
        reader.read_uncalled()
    except RecursionError as error:
        raise InvalidInput(
            "config", text[:60], "is nested too deeply to be read: remove some levels of brackets or sections"
        ) from error
    return reader.script()


class _Jump(Exception):
    """Raised if the script leaves a loop, a function or itself."""

    def __init__(self, kind: str, levels: int = 1) -> None:
        super().__init__(kind)
        self.kind, self.levels = kind, levels


@dataclass(slots=True)
class _Frame:
    """A loop or a function that the reader is inside of."""

    kinds: tuple[str, ...]
    """Kinds of jumps (break, return) that end here."""
    left: list[dict[str, Elements]] = field(default_factory=list)
    """Variables at each early exit under a condition that only a run can decide."""
    locals: dict[str, Elements | None] = field(default_factory=dict)
    """Values that variables had before ``local``, while a function is followed."""


@contextmanager
def _setting(thing: object, **changes: object) -> Iterator[None]:
    """Set attributes of an object inside a ``with`` block, and restore them after it."""
    before = {name: getattr(thing, name) for name in changes}
    try:
        for name, value in changes.items():
            setattr(thing, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(thing, name, value)


@dataclass(slots=True)
class _Reader:
    """Walks the syntax tree of a script in order.

    Methods for statements return True if the statement succeeds, and None if only a run can decide that.
    """

    scope: Scope = field(default_factory=Scope)
    commands: list[Command] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    functions: dict[str, tuple[Node, bytes]] = field(default_factory=dict)
    called: set[str] = field(default_factory=set)
    frames: list[_Frame] = field(default_factory=list)
    assigned_for_command: dict[str, str] = field(default_factory=dict)
    depth: int = 0
    num_statements: int = 0
    undecided: int = 0
    in_condition: int = 0
    in_function: int = 0

    def read(self, text: str) -> None:
        """Follow every statement of a script text."""
        for option, value in _SBATCH.findall(text):
            for name in _SLURM.get(option, ()):
                self.scope.assign(name, [value.rpartition(":")[2]])
        tree, source = parse_script(text)
        with _setting(self.scope, source=source), suppress(_Jump):
            self._run_all(tree.get("Stmts", []))

    def read_uncalled(self) -> None:
        """Follow functions that nothing calls, because a fragment of a script may contain nothing else."""
        if not any(any(word.startswith("--") for word in command.words) for command in self.commands):
            for name in [name for name in self.functions if name not in self.called]:
                with _setting(self, undecided=self.undecided + 1), suppress(_Jump):
                    self._call(name, [])

    def script(self) -> Script:
        """Return the commands and variables that were found."""
        values, exported = self.scope.values, {*self.scope.exported, *self.assigned_for_command}
        unasked = [name for name in self.scope.assigned if name not in self.scope.asked]
        return Script(
            commands=tuple(self.commands),
            variables=_plain_values(values) | self.assigned_for_command,
            arrays={name: tuple(filter(None, map(plain, elements))) for name, elements in values.items()},
            exported=tuple(name for name in unasked if name in exported),
            unused=tuple(name for name in unasked if name not in exported),
            unset=tuple(self.scope.unset),
            unknown=tuple(self.scope.unknowns),
            notes=tuple(self.notes),
        )

    # ---------------------------------------------------------------- statements
    def _run_all(self, statements: Iterable[Node]) -> bool | None:
        truth: bool | None = True
        for statement in statements:
            truth = self._run(statement)
        return truth

    def _run(self, statement: Node) -> bool | None:
        self.num_statements += 1
        if self.num_statements > _MOST_STATEMENTS:
            raise InvalidInput(
                "config",
                self._line(statement),
                f"must be a script that runs at most {_MOST_STATEMENTS:,} statements; give only the part that "
                "starts the training",
            )
        command = statement.get("Cmd")
        if command is None:
            return True
        if statement.get("Background"):
            with_stdin = {key: value for key, value in statement.items() if key != "Background"}
            self._in_copy(lambda: self._run(with_stdin))
            return True
        truth = self._run_command(command, statement.get("Redirs", []))
        return _negated(truth) if statement.get("Negated") else truth

    def _run_command(self, node: Node, redirections: Sequence[Node]) -> bool | None:  # noqa: PLR0912  # a case per type
        match node["Type"]:
            case "CallExpr":
                return self._run_call(node, redirections)
            case "BinaryCmd" if node["Op"] in ("&&", "||"):
                return self._run_list(node)
            case "BinaryCmd":  # a pipeline, each part of which has its own copy of the variables
                self._in_copy(lambda: self._run(node["X"]))
                return self._in_copy(lambda: self._run(node["Y"]))
            case "Block":
                return self._run_all(node.get("Stmts", []))
            case "Subshell":
                return self._in_copy(lambda: self._run_all(node.get("Stmts", [])))
            case "IfClause":
                return self._run_if(node)
            case "CaseClause":
                return self._run_case(node)
            case "ForClause" if not node.get("Select"):
                return self._run_for(node)
            case "WhileClause":
                return self._repeat(node, lambda: self._holds(node["Cond"], negate=bool(node.get("Until"))))
            case "FuncDecl":
                self.functions[node["Name"]["Value"]] = (node["Body"], self.scope.source)
                return True
            case "DeclClause":
                return self._declare(node)
            case "TestClause":
                return _holds_in_brackets(self.scope, node["X"])
            case "ArithmCmd":
                return self._is_nonzero(node["X"])
            case "LetClause":
                return [self._is_nonzero(self._unquoted(expression)) for expression in node["Exprs"]][-1]
            case "TimeClause":
                return self._run(node["Stmt"]) if node.get("Stmt") else True
            case _:
                self._forget(node)
                self._note(node, "is not interpreted")
                return None

    def _is_nonzero(self, expression: Node | None) -> bool | None:
        value = 1 if expression is None else self.scope.arithmetic(expression)
        return None if value is None else bool(value)

    def _unquoted(self, expression: Node) -> Node:
        """Return the assignment that a quoted text such as ``"A=1"`` contains."""
        parts = expression.get("Parts", [])
        if len(parts) != 1 or parts[0]["Type"] not in ("DblQuoted", "SglQuoted"):
            return expression
        text = self.scope.text(expression)
        if not is_known(text):
            self._forget(expression)
            self._forget_names(re.findall(r"([A-Za-z_]\w*)\s*(?:[-+*/%]?=(?!=)|\+\+|--)", text))
            return expression
        tree, source = parse_script(f"(({text}))")
        with _setting(self.scope, source=source):
            value = self.scope.arithmetic(tree["Stmts"][0]["Cmd"]["X"])
        return {"Type": "Word", "Parts": [{"Type": "Known", "Value": "?" if value is None else str(value)}]}

    def _in_copy(self, follow: Callable[[], bool | None]) -> bool | None:
        """Follow statements in a copy of the variables, as in a subshell, and discard their assignments afterwards."""
        scope = _setting(self.scope, values=dict(self.scope.values), arguments=self.scope.arguments)
        with scope, _setting(self, frames=[], functions=dict(self.functions)), suppress(_Jump):
            return follow()
        return None

    # ---------------------------------------------------------------- branches
    def _ways(self, *ways: Callable[[], object]) -> None:
        """Follow each branch from the same state, and keep the values on which all branches agree."""
        before, arguments, ends = self.scope.values, self.scope.arguments, list[dict[str, Elements]]()
        jumps: list[_Jump] = []
        self.undecided += 1
        for way in ways:
            self.scope.values = dict(before)
            try:
                way()
                ends.append(self.scope.values)
            except _Jump as jump:
                jumps.append(jump)
                self._leave(jump)
            if self.scope.arguments != arguments:
                arguments = None
            self.scope.arguments = arguments
        self.undecided -= 1
        if not ends:
            self.scope.values = before
            raise jumps[-1]
        self.scope.values = _merged_values(ends)

    def _leave(self, jump: _Jump) -> None:
        """Keep the variables of a branch that leaves a loop or a function.

        After a branch that ends the script, nothing follows.
        """
        levels = jump.levels
        for frame in reversed(self.frames):
            if jump.kind in frame.kinds:
                levels -= 1
                if levels == 0:
                    frame.left.append(self.scope.values)
                    return
            if "return" in frame.kinds:
                return

    def _run_list(self, node: Node) -> bool | None:
        is_and = node["Op"] == "&&"
        left = self._run(node["X"])
        if left is None and not self.in_condition and _is_ordinary(node["X"]):
            if not is_and and _matters(node["Y"]):
                self._note(node["Y"], "runs only if a command fails, so it was left out")
            left = True
        if left is not None:
            return self._run(node["Y"]) if left == is_and else left
        right: list[bool | None] = []
        self._ways(lambda: right.append(self._run(node["Y"])), lambda: None)
        found = right[0] if right else None
        return found if found is not None and found != is_and else None

    def _holds(self, condition: Sequence[Node], *, negate: bool = False) -> bool | None:
        with _setting(self, in_condition=self.in_condition + 1):
            truth = self._run_all(condition)
        return _negated(truth) if negate else truth

    def _run_if(self, node: Node | None) -> bool | None:
        if node is None:
            return True
        truth = self._holds(node["Cond"]) if "Cond" in node else True
        if truth is not None:
            return self._run_all(node.get("Then", [])) if truth else self._run_if(node.get("Else"))
        self._ways(lambda: self._run_all(node.get("Then", [])), lambda: self._run_if(node.get("Else")))
        return None

    def _run_case(self, node: Node) -> bool | None:
        subject = self.scope.text(node["Word"], unset_is_empty=True)
        items = node.get("Items", [])
        if any(item["Op"] != ";;" for item in items):
            self._forget(node)
            self._note(node, "is not interpreted, because one case continues with the next")
            return None
        return self._run_items(subject, items)

    def _run_items(self, subject: str, items: Sequence[Node]) -> bool | None:
        if not items:
            return True
        patterns = [self.scope.pattern(pattern) for pattern in items[0]["Patterns"]]
        fits: bool | None = None if not is_known(subject) or None in patterns else False
        if "*" in patterns or (is_known(subject) and any(p is not None and fnmatchcase(subject, p) for p in patterns)):
            fits = True
        if fits is not None:
            return self._run_all(items[0].get("Stmts", [])) if fits else self._run_items(subject, items[1:])
        self._ways(lambda: self._run_all(items[0].get("Stmts", [])), lambda: self._run_items(subject, items[1:]))
        return None

    # ---------------------------------------------------------------- loops
    def _run_for(self, node: Node) -> bool | None:
        loop = node["Loop"]
        if loop["Type"] == "CStyleLoop":
            if loop.get("Init"):
                self.scope.arithmetic(loop["Init"])
            return self._repeat(node, lambda: self._is_nonzero(loop.get("Cond")), loop.get("Post"))
        name = loop["Name"]["Value"]
        if "InPos" in loop and loop["InPos"].get("Line"):
            rounds = [text for word in loop.get("Items", []) for text in self.scope.fields(word)]
        else:
            rounds = [unknown("$@")] if self.scope.arguments is None else self.scope.arguments
        if not all(map(is_known, rounds)):
            self._note(node, f"is a loop over {name}, and only a run would show its rounds")
            return self._unknown_rounds(node, prepare=lambda: self.scope.assign(name, [unknown(f"${name}")]))
        left = iter(tuple(rounds))

        def next_round() -> bool:
            value = next(left, None)
            if value is not None:
                self.scope.assign(name, [value])
            return value is not None

        return self._repeat(node, next_round)

    def _repeat(self, node: Node, condition: Callable[[], bool | None], post: Node | None = None) -> bool | None:
        """Follow the iterations of a loop while its condition is known to be true."""
        for _ in range(_MOST_ROUNDS):
            truth = condition()
            if truth is False:
                return True
            if truth is None:
                self._note(node, "is a loop, and only a run would show its rounds")
                return self._unknown_rounds(node, condition, post)
            goes_on, may_have_ended = self._round(node)
            if goes_on and may_have_ended:
                self._unknown_rounds(node)
            if not goes_on or may_have_ended:
                return True
            if post is not None:
                self.scope.arithmetic(post)
        self._note(node, f"is a loop with more than {_MOST_ROUNDS} rounds")
        return self._unknown_rounds(node, condition, post)

    def _round(self, node: Node) -> tuple[bool, bool]:
        """Follow one iteration of a loop.

        Return if another iteration may follow, and if some branch may have left the loop early.
        """
        frame, goes_on = _Frame(kinds=("break", "continue")), True
        try:
            with _setting(self, frames=[*self.frames, frame], undecided=self.undecided):
                self._run_all(node.get("Do", []))
        except _Jump as jump:
            if jump.kind not in frame.kinds:
                raise
            if jump.levels > 1:
                raise _Jump(jump.kind, jump.levels - 1) from None
            goes_on = jump.kind == "continue"
        self.scope.values = _merged_values([self.scope.values, *frame.left])
        return goes_on, bool(frame.left)

    def _unknown_rounds(
        self,
        node: Node,
        condition: Callable[[], bool | None] = lambda: None,
        post: Node | None = None,
        prepare: Callable[[], None] = lambda: None,
    ) -> bool | None:
        """Follow a loop whose number of iterations is unknown.

        Variables that an iteration changes are unknown after the loop.
        """

        def one_round() -> None:
            prepare()
            self._round(node)
            if post is not None:
                self.scope.arithmetic(post)
            condition()

        for number in range(4):
            before, num_commands = self.scope.values, len(self.commands)
            self._ways(one_round, lambda: None)
            if number:
                del self.commands[num_commands:]  # assignments of the first round stand for those of all rounds
            if self.scope.values == before:
                return None
        self._forget(node)
        return None

    # ---------------------------------------------------------------- functions
    def _call(self, name: str, arguments: list[str]) -> bool | None:
        """Follow a function call. ``local`` variables of the function end with it."""
        if len(self.frames) >= _DEEPEST_CALL:
            self.notes[f"{name} calls itself more than {_DEEPEST_CALL} times"] = None
            self._forget(self.functions[name][0])
            return None
        self.called.add(name)
        body, source = self.functions[name]
        frame = _Frame(kinds=("return",))
        inside = {"frames": [*self.frames, frame], "in_function": self.in_function + 1, "undecided": self.undecided}
        try:
            with _setting(self, **inside), _setting(self.scope, arguments=arguments, source=source):
                return self._run(body)
        except _Jump as jump:
            if jump.kind != "return":
                raise
            return None
        finally:
            self.scope.values = _merged_values([self.scope.values, *frame.left])
            self._restore(frame.locals)

    def _restore(self, before: Mapping[str, Elements | None]) -> None:
        """Restore the former values of variables; None means that a variable did not exist."""
        for name, value in before.items():
            self.scope.values.pop(name, None)
            if value is not None:
                self.scope.values[name] = value

    def _declare(self, node: Node) -> bool | None:
        """Follow ``export``, ``local``, ``declare`` and similar statements."""
        variant, arguments = node["Variant"]["Value"], node.get("Args", [])
        options = "".join(self.scope.text(one.get("Value")) for one in arguments if "Name" not in one)
        function = next((frame for frame in reversed(self.frames) if "return" in frame.kinds), None)
        is_local = variant in ("local", "declare", "typeset") and "g" not in options
        for one in (one for one in arguments if "Name" in one):
            name = one["Name"]["Value"]
            if variant == "export" or "x" in options:
                self.scope.exported.add(name)
            if is_local and function is not None and name not in function.locals:
                function.locals[name] = self.scope.values.get(name)
                if variant == "local" or "Value" in one or "Array" in one:
                    self.scope.values.pop(name, None)
            if one.get("Naked"):
                continue
            self._assign(one)
            if re.search(r"[Ainlu]", options.replace("-", "")):  # associative, integer, reference, another case
                self.scope.values[name] = [unknown(f"${{{name}}}")]
        return True

    def _assign(self, node: Node) -> None:
        """Set a variable, an array, or one element of an array."""
        name, scope = node["Name"]["Value"], self.scope
        scope.assigned[name] = None
        append = bool(node.get("Append"))
        if "Index" in node:
            self._assign_element(name, node, append=append)
        elif "Array" not in node:
            scope.assign(name, [scope.text(node.get("Value"))], append=append)
        else:
            items = node["Array"].get("Elems", [])
            elements = [text for item in items if item.get("Value") for text in scope.fields(item["Value"])]
            if any(item.get("Index") for item in items):
                scope.values[name] = [unknown(f"${{{name}[@]}}")]
            else:
                scope.assign(name, elements, append=append, array=True)

    def _assign_element(self, name: str, node: Node, *, append: bool) -> None:
        value, at = self.scope.text(node.get("Value")), self.scope.arithmetic(node["Index"])
        elements = list(self.scope.values.get(name, []))
        if at is None or not 0 <= at <= len(elements) or not all(map(is_known, elements)):
            self.scope.values[name] = [unknown(f"${{{name}[@]}}")]
            return
        old = elements[at] if append and at < len(elements) else ""
        elements[at : at + 1] = [old + value]
        self.scope.assign(name, elements, array=True)

    # ---------------------------------------------------------------- commands
    def _run_call(self, node: Node, redirections: Sequence[Node]) -> bool | None:
        assignments = node.get("Assigns", [])
        if not node.get("Args"):
            for one in assignments:
                self._assign(one)
            return None if any(map(_is_substitution, assignments)) and self.in_condition else True
        name = self.scope.text(node["Args"][0])
        if name in ("[", "test"):
            return _holds(self.scope, node["Args"][1 : -1 if name == "[" else None])
        words = [text for word in node["Args"] for text in self.scope.fields(word)]
        if not assignments:
            return self._follow(words, redirections)
        before = {one["Name"]["Value"]: self.scope.values.get(one["Name"]["Value"]) for one in assignments}
        self.scope.values = dict(self.scope.values)
        for one in assignments:
            self._assign(one)
        values = self.scope.values
        self.assigned_for_command |= {name: " ".join(map(plain, values.get(name, []))) for name in before}
        try:
            return self._follow(words, redirections)
        finally:
            self.scope.values = dict(self.scope.values)
            self._restore(before)

    def _follow(self, words: list[str], redirections: Sequence[Node]) -> bool | None:
        """Follow a command, a function, or a script that is passed to a shell."""
        while words and words[0] in ("exec", "command", "builtin") and words[1:] and not words[1].startswith("-"):
            words = words[1:]
        if not words:
            return True
        name = words[0]
        if name in self.functions:
            return self._call(name, words[1:])
        if name in _BUILTINS:
            return self._run_builtin(name, words[1:])
        if name in _SILENT:
            return name != "false"
        inner = self._nested(words, redirections)
        if not inner or self.depth >= _DEEPEST:
            self._record(words)
            return None
        with _setting(self, depth=self.depth + 1):
            for text in inner:
                if name == "eval":
                    self.read(plain(text))
                else:
                    self._in_copy(lambda text=text: self.read(plain(text)))  # type: ignore[misc]
        return None

    def _nested(self, words: Sequence[str], redirections: Sequence[Node]) -> list[str]:
        """Return the scripts that a command passes to a shell."""
        if words[0] == "eval":
            return [" ".join(words[1:])]
        inner = [
            script
            for shell, option, script in zip(words, words[1:], words[2:], strict=False)
            if shell.rpartition("/")[2] in _SHELLS and option in ("-c", "-lc", "-xc", "-ec", "-exc", "-euxc")
        ]
        if words[0].rpartition("/")[2] in _SHELLS:
            inner += [self._document(one) for one in redirections if one.get("Hdoc")]
        return inner

    def _document(self, redirection: Node) -> str:
        # the here-document is quoted
        if any(part["Type"] != "Lit" or "\\" in part["Value"] for part in redirection["Word"]["Parts"]):
            return "".join(part.get("Value", "") for part in redirection["Hdoc"]["Parts"])
        return self.scope.text(redirection["Hdoc"], quoted=True)

    def _record(self, words: Sequence[str]) -> None:
        if len(self.commands) >= _MOST_COMMANDS:
            return
        kept = tuple(plain(word) for word in words if plain(word) or is_known(word))
        self.commands.append(
            Command(
                words=kept,
                variables=_plain_values(self.scope.values) if any(word.startswith("--") for word in kept) else {},
                left_out=tuple(found for word in words for found in re.findall("\1([^\1]*)\1", word) if found),
                is_known=all(map(is_known, words)),
                is_certain=self.undecided == 0,
            )
        )

    def _run_builtin(self, name: str, words: Sequence[str]) -> bool | None:
        match name:
            case "source" | ".":
                self.notes[f"source {plain(' '.join(words[:1]))} is not read"] = None
                return None
            case "unset":
                self._unset(words)
            case "read" | "mapfile" | "readarray" | "getopts":  # the command (read) puts its input into variables
                self._forget_names(filter(str.isidentifier, words))
                return None
            case "printf" if words[:1] == ["-v"]:
                self._forget_names(filter(str.isidentifier, words[1:2]))
            case "set" if "--" in words:
                self.scope.arguments = list(words[words.index("--") + 1 :])
            case "shift":
                return self._shift(words)
            case "break" | "continue":
                levels = int(words[0]) if words and words[0].isdecimal() and 0 < len(words[0]) < 3 else 1
                if any(name in frame.kinds for frame in self.frames):
                    raise _Jump(name, levels)
            case "return" if not self.in_function:
                return False  # bash reports an error there and continues
            case "return" | "exit":
                raise _Jump(name)
        return True

    def _unset(self, words: Sequence[str]) -> None:
        for word in words:
            name = word.partition("[")[0]
            if word in self.scope.values:
                del self.scope.values[word]
            elif name in self.scope.values:
                self.scope.values[name] = [unknown(f"${{{name}[@]}}")]
            elif words[0] == "-f":
                self.functions.pop(word, None)

    def _shift(self, words: Sequence[str]) -> bool | None:
        count = int(words[0]) if words and words[0].isdecimal() and len(words[0]) < 5 else 1
        if self.scope.arguments is None:
            return True
        if not all(map(is_known, self.scope.arguments[:count])):
            self.scope.arguments = None
            return None
        if count > len(self.scope.arguments):
            return False
        self.scope.arguments = self.scope.arguments[count:]
        return True

    # ---------------------------------------------------------------- what is not followed
    def _forget(self, node: Node) -> None:
        """Mark every variable that a part of the script may set as unknown."""
        self._forget_names(assigned_names(node))

    def _forget_names(self, names: Iterable[str]) -> None:
        for name in names:
            self.scope.values[name] = [unknown(f"${name}")]

    def _line(self, node: Node) -> str:
        return self.scope.written(node).partition("\n")[0].strip()[:60]

    def _note(self, node: Node, what: str) -> None:
        self.notes[f"`{self._line(node)}` {what}"] = None


_BUILTINS = frozenset(
    {
        *("source", ".", "unset", "read", "mapfile", "readarray", "getopts", "printf", "set", "shift"),
        *("exit", "return", "break", "continue"),
    }
)


def _merged_values(ends: Sequence[dict[str, Elements]]) -> dict[str, Elements]:
    """Return the variables after several branches. Values on which the branches differ are marked."""
    if len(ends) == 1:
        return ends[0]
    names = dict.fromkeys(name for end in ends for name in end)
    found = {name: merged(name, [end.get(name) for end in ends]) for name in names}
    return {name: elements for name, elements in found.items() if elements is not None}


def _plain_values(values: Mapping[str, Elements]) -> dict[str, str]:
    return {name: " ".join(filter(None, map(plain, elements))) for name, elements in values.items()}


def _is_ordinary(statement: Node) -> bool:
    """Return True if a statement is a command that is expected to succeed, and not a test."""
    command = statement.get("Cmd", {})
    match command.get("Type"):
        case "CallExpr":
            words = command.get("Args", [])
            first = words[0]["Parts"][0].get("Value", "") if words else ""
            return first not in ("[", "test", *_PROBES)
        case "BinaryCmd":
            return command["Op"] == "&&" and _is_ordinary(command["X"]) and _is_ordinary(command["Y"])
        case "Subshell" | "Block":
            return all(map(_is_ordinary, command.get("Stmts", [])))
        case _:
            return False


def _is_substitution(assignment: Node) -> bool:
    parts = (assignment.get("Value") or {}).get("Parts", [])
    return any(part["Type"] == "CmdSubst" for part in parts)


def _matters(statement: Node) -> bool:
    """Return True if a statement sets variables or has flags."""
    return any(True for _ in assigned_names(statement)) or any(
        node.get("Type") == "Lit" and node.get("Value", "").startswith("--") for node in nodes(statement)
    )


# ---------------------------------------------------------------- conditions that the text alone decides
_ARGUMENT = re.compile(r"\0\$(?:[1-9]\d?|\{[1-9]\d?(?::?-)?\})\0")
"""Pattern of an argument of the script. A condition that tests if it was given reads it as missing."""

_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-lt": operator.lt,
    "-le": operator.le,
    "-gt": operator.gt,
    "-ge": operator.ge,
}


def _negated(truth: bool | None) -> bool | None:
    """Return the opposite of a truth value; unknown stays unknown."""
    return None if truth is None else not truth


def _joined(left: bool | None, right: bool | None, *, is_or: bool) -> bool | None:
    """Return the truth of two conditions joined by *and* or by *or*; None if it is unknown."""
    return is_or if is_or in (left, right) else None if None in (left, right) else not is_or


def _holds(scope: Scope, words: Sequence[Node]) -> bool | None:
    """Return the result of ``[`` or ``test`` with these operands; None if only a run can decide it.

    An unset variable counts as empty, as in the shell.
    """
    texts: list[str] = []
    for word in words:
        if all(part["Type"] in ("Lit", "SglQuoted", "DblQuoted") for part in word["Parts"]):
            texts.append(scope.text(word, unset_is_empty=True))
            continue
        found = scope.fields(word)
        texts += [] if len(found) == 1 and found[0].strip("\0${}") in scope.unset else found
    return _test(scope, texts)


def _test(scope: Scope, texts: list[str]) -> bool | None:
    for sign in ("-o", "-a"):
        if sign in texts and len(texts) > 3:
            at = texts.index(sign)
            return _joined(_test(scope, texts[:at]), _test(scope, texts[at + 1 :]), is_or=sign == "-o")
    match texts:
        case []:
            return False
        case ["!", _, *_]:
            return _negated(_test(scope, texts[1:]))
        case [text]:
            return _known(bool(text), text)
        case [sign, text]:
            return _unary(scope, sign, text)
        case [left, sign, right]:
            return _compared(left, sign, right)
        case _:
            return None


def _known(value: bool, *texts: str) -> bool | None:
    return value if all(map(is_known, texts)) else None


def _unary(scope: Scope, sign: str, text: str) -> bool | None:
    if sign == "-v":
        return (text in scope.values) if text.isidentifier() else None
    if sign not in ("-z", "-n"):
        return None
    if _ARGUMENT.fullmatch(text):
        text = ""
    # the text before the unknown part is not empty
    elif text.partition("\0")[0] and "\1" not in text.partition("\0")[0]:
        text = "x"
    return _known(bool(text) == (sign == "-n"), text)


def _compared(left: str, sign: str, right: str) -> bool | None:
    if sign in ("=", "==", "!="):
        if "" in (left, right):
            left, right = (_ARGUMENT.sub("", side) for side in (left, right))
        return _known((left == right) != (sign == "!="), left, right)
    first, second = whole_number(left), whole_number(right)
    return None if first is None or second is None or sign not in _NUMBERS else _NUMBERS[sign](first, second)


def _holds_in_brackets(scope: Scope, node: Node) -> bool | None:
    """Return the result of ``[[ ... ]]``; None if only a run can decide it."""
    match node["Type"]:
        case "ParenTest":
            return _holds_in_brackets(scope, node["X"])
        case "UnaryTest" if node["Op"] == "!":
            return _negated(_holds_in_brackets(scope, node["X"]))
        case "UnaryTest":
            return _unary(scope, node["Op"], scope.text(node["X"], unset_is_empty=True))
        case "BinaryTest" if node["Op"] in ("&&", "||"):
            is_or, left = node["Op"] == "||", _holds_in_brackets(scope, node["X"])
            return left if left is is_or else _joined(left, _holds_in_brackets(scope, node["Y"]), is_or=is_or)
        case "BinaryTest" if node["Op"] in ("=", "==", "!="):
            text, pattern = scope.text(node["X"], unset_is_empty=True), scope.pattern(node["Y"])
            if pattern == "":
                text = _ARGUMENT.sub("", text)
            if pattern is None or not is_known(text):
                return None
            return fnmatchcase(text, pattern) != bool(node["Op"] == "!=")
        case "BinaryTest":
            left_text, right_text = (scope.text(node[side], unset_is_empty=True) for side in ("X", "Y"))
            return _compared(left_text, node["Op"], right_text) if node["Op"] in _NUMBERS else None
        case "Word":
            text = scope.text(node, unset_is_empty=True)
            return _known(bool(text), text)
        case _:
            return None
