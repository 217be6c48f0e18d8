"""The commands that a shell script would run, found without running it.

``_Reader`` walks the script's tree in order and keeps the values of its variables. A condition that only a run decides
is followed both ways, and what the ways do not agree on is marked as not known (``shell_words``).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from autotuner.core.errors import InvalidInput
from autotuner.export.shell_words import (
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

_ARGUMENT = re.compile(r"\0\$(?:[1-9]\d?|\{[1-9]\d?(?::?-)?\})\0")
"""An argument of the script. A condition that asks whether it was given reads it as missing."""

_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-lt": operator.lt,
    "-le": operator.le,
    "-gt": operator.gt,
    "-ge": operator.ge,
}


def negated(truth: bool | None) -> bool | None:
    """Return the opposite; what is not known stays so."""
    return None if truth is None else not truth


def both(left: bool | None, right: bool | None) -> bool | None:
    """Return whether two conditions hold."""
    return False if False in (left, right) else None if None in (left, right) else True


def either(left: bool | None, right: bool | None) -> bool | None:
    """Return whether one of two conditions holds."""
    return True if True in (left, right) else None if None in (left, right) else False


def holds(scope: Scope, words: Sequence[Node]) -> bool | None:
    """Return whether ``[`` or ``test`` holds with these operands; None: only a run would tell.

    A variable that nothing sets counts as empty, as in the shell.
    """
    texts: list[str] = []
    for word in words:
        parts = word["Parts"]
        if all(part["Type"] in ("Lit", "SglQuoted", "DblQuoted") for part in parts):
            texts.append(scope.text(word, unset_is_empty=True))
            continue
        found = scope.fields(word)
        texts += [] if len(found) == 1 and found[0].strip("\0${}") in scope.unset else found
    return _alternatives(scope, texts)


def _alternatives(scope: Scope, texts: list[str]) -> bool | None:
    for joined_by, join in (("-o", either), ("-a", both)):
        if joined_by in texts and len(texts) > 3:
            at = texts.index(joined_by)
            return join(_alternatives(scope, texts[:at]), _alternatives(scope, texts[at + 1 :]))
    return _test(scope, texts)


def _test(scope: Scope, texts: list[str]) -> bool | None:
    if not texts:
        return False
    if texts[0] == "!" and len(texts) > 1:
        return negated(_test(scope, texts[1:]))
    if len(texts) == 1:
        return _truth(bool(texts[0]), texts)
    if len(texts) == 2:
        return _unary(scope, *texts)
    return _compared(*texts) if len(texts) == 3 else None


def _truth(value: bool, texts: Sequence[str]) -> bool | None:
    return value if all(map(is_known, texts)) else None


def _unary(scope: Scope, sign: str, text: str) -> bool | None:
    if sign == "-v":
        return (text in scope.values) if text.isidentifier() else None
    if sign not in ("-z", "-n"):
        return None
    if _ARGUMENT.fullmatch(text):
        text = ""
    elif text.partition("\0")[0] and "\1" not in text.partition("\0")[0]:  # something stands before the unknown part
        text = "x"
    return _truth(bool(text) == (sign == "-n"), [text])


def _compared(left: str, sign: str, right: str) -> bool | None:
    if sign in ("=", "==", "!="):
        if "" in (left, right):
            left, right = (_ARGUMENT.sub("", side) for side in (left, right))
        return _truth((left == right) != (sign == "!="), [left, right])
    first, second = whole_number(left), whole_number(right)
    return None if first is None or second is None or sign not in _NUMBERS else _NUMBERS[sign](first, second)


def holds_in_brackets(scope: Scope, node: Node) -> bool | None:
    """Return whether ``[[ ... ]]`` holds; None: only a run would tell."""
    match node["Type"]:
        case "ParenTest":
            return holds_in_brackets(scope, node["X"])
        case "UnaryTest" if node["Op"] == "!":
            return negated(holds_in_brackets(scope, node["X"]))
        case "UnaryTest":
            return _unary(scope, node["Op"], scope.text(node["X"], unset_is_empty=True))
        case "BinaryTest" if node["Op"] in ("&&", "||"):
            left = holds_in_brackets(scope, node["X"])
            if left is not None and left == (node["Op"] == "||"):
                return left
            right = holds_in_brackets(scope, node["Y"])
            return both(left, right) if node["Op"] == "&&" else either(left, right)
        case "BinaryTest" if node["Op"] in ("=", "==", "!="):
            left_text = scope.text(node["X"], unset_is_empty=True)
            pattern = scope.pattern(node["Y"])
            if pattern == "":
                left_text = _ARGUMENT.sub("", left_text)
            if pattern is None or not is_known(left_text):
                return None
            return fnmatchcase(left_text, pattern) != bool(node["Op"] == "!=")
        case "BinaryTest":
            texts = (scope.text(node[side], unset_is_empty=True) for side in ("X", "Y"))
            return _compared(next(texts), node["Op"], next(texts)) if node["Op"] in _NUMBERS else None
        case "Word":
            text = scope.text(node, unset_is_empty=True)
            return _truth(bool(text), [text])
        case _:
            return None


_DEEPEST = 3
"""Scripts inside scripts (``bash -c "..."``, ``sbatch <<EOF``)."""

_DEEPEST_CALL = 20
_MOST_ROUNDS = 100
_MOST_STATEMENTS = 20_000
_MOST_COMMANDS = 2_000

_SHELLS = ("bash", "sh", "sbatch", "zsh", "ssh")
_SILENT = ("echo", "printf", "cd", "mkdir", "trap", "ulimit", ":", "true", "false", "pwd", "sleep", "pushd", "popd")
_PROBES = ("which", "command", "type", "hash", "grep", "pgrep", "diff", "cmp", "read", "timeout", "wait", "kill")
"""Commands that scripts call to see how they end; any other is taken to succeed."""

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
    """A command of a script."""

    words: tuple[str, ...]
    """The command and its arguments, expanded; what only a run would tell stays as it is written."""
    variables: Mapping[str, str]
    """Values when it runs, an array's elements with blanks between them, and those set for it alone."""
    left_out: tuple[str, ...] = ()
    """Arguments that it has only if a condition holds that only a run decides."""
    is_known: bool = True
    """Every word is what bash passes."""
    is_certain: bool = True
    """It runs whatever a run decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The commands and variables of a script."""

    commands: tuple[Command, ...]
    """Every command with arguments, in order."""
    variables: Mapping[str, str]
    """Final values, an array's elements with blanks between them."""
    arrays: Mapping[str, tuple[str, ...]]
    """Final elements of every variable."""
    exported: tuple[str, ...] = ()
    """Names that the script sets in its commands' environment and asks for nowhere itself."""
    unused: tuple[str, ...] = ()
    """Other names that it sets and asks for nowhere."""
    unset: tuple[str, ...] = ()
    """Names that a command or an assignment asked for and nothing sets."""
    unknown: tuple[str, ...] = ()
    """Expansions that only a run would tell, as they are written."""
    notes: tuple[str, ...] = ()
    """Parts that were not followed; sentences without full stops."""


def read_script(text: str) -> Script:
    """Return the commands of a shell script; nothing is run.

    Raises:
        InvalidInput: The text is no shell script, is longer than scripts are, or its variables grow without end.
    """
    reader = _Reader(Scope())
    try:
        reader.read(text)
        reader.read_uncalled()
    except RecursionError as error:
        raise InvalidInput("config", text[:60], "is nested too deep") from error
    return reader.script()


class _Jump(Exception):
    """Raised where a script leaves a loop, a function or itself."""

    def __init__(self, kind: str, levels: int = 1) -> None:
        super().__init__(kind)
        self.kind = kind
        self.levels = levels


@dataclass(slots=True)
class _Frame:
    """A loop or a function that is open."""

    kinds: tuple[str, ...]
    """Jumps that end here."""
    left: list[dict[str, Elements]] = field(default_factory=list)
    """Variables of each way that left it early, after a condition that only a run decides."""
    locals: dict[str, Elements | None] = field(default_factory=dict)
    """Of a function: values before ``local``."""


class _Reader:
    """Walks the tree of a script in order."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._depth = 0
        self._num_statements = 0
        self._undecided = 0
        self._in_condition = 0
        self._commands: list[Command] = []
        self._notes: dict[str, None] = {}
        self._functions: dict[str, tuple[Node, bytes]] = {}
        self._called: set[str] = set()
        self._frames: list[_Frame] = []
        self._assigned_for_command: dict[str, str] = {}
        self._in_function = 0

    def read(self, text: str) -> None:
        """Follow every statement of a script."""
        for option, value in _SBATCH.findall(text):
            for name in _SLURM.get(option, ()):
                self._scope.assign(name, [value.rpartition(":")[2]])
        tree, source = parse_script(text)
        before, self._scope.source = self._scope.source, source
        try:
            self._run_all(tree.get("Stmts", []))
        except _Jump:
            pass
        finally:
            self._scope.source = before

    def read_uncalled(self) -> None:
        """Follow functions that nothing calls: a fragment of a script may hold nothing else."""
        if not any(any(word.startswith("--") for word in command.words) for command in self._commands):
            for name in [name for name in self._functions if name not in self._called]:
                self._undecided += 1
                self._call(name, [])
                self._undecided -= 1

    def script(self) -> Script:
        """Return what was found."""
        values = self._scope.values
        exported = {*self._scope.exported, *self._assigned_for_command}
        unasked = [name for name in self._scope.assigned if name not in self._scope.asked]
        return Script(
            commands=tuple(self._commands),
            variables=_plain_values(values) | self._assigned_for_command,
            arrays={name: tuple(filter(None, map(plain, elements))) for name, elements in values.items()},
            exported=tuple(name for name in unasked if name in exported),
            unused=tuple(name for name in unasked if name not in exported),
            unset=tuple(self._scope.unset),
            unknown=tuple(self._scope.unknowns),
            notes=tuple(self._notes),
        )

    # ---------------------------------------------------------------- statements
    def _run_all(self, statements: Iterable[Node]) -> bool | None:
        truth: bool | None = True
        for statement in statements:
            truth = self._run(statement)
        return truth

    def _run(self, statement: Node) -> bool | None:
        """Follow a statement; return whether it succeeds, None: only a run would tell."""
        self._num_statements += 1
        if self._num_statements > _MOST_STATEMENTS:
            raise InvalidInput("config", self._line(statement), f"runs more than {_MOST_STATEMENTS:,} statements")
        command = statement.get("Cmd")
        if command is None:
            return True
        if statement.get("Background"):
            with_stdin = {key: value for key, value in statement.items() if key != "Background"}
            self._in_copy(lambda: self._run(with_stdin))
            return True
        truth = self._run_command(command, statement.get("Redirs", []))
        return negated(truth) if statement.get("Negated") else truth

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
                return self._run_while(node)
            case "FuncDecl":
                self._functions[node["Name"]["Value"]] = (node["Body"], self._scope.source)
                return True
            case "DeclClause":
                return self._declare(node)
            case "TestClause":
                return holds_in_brackets(self._scope, node["X"])
            case "ArithmCmd":
                value = self._scope.arithmetic(node["X"])
                return None if value is None else bool(value)
            case "LetClause":
                return self._run_let(node)
            case "TimeClause":
                return self._run(node["Stmt"]) if node.get("Stmt") else True
            case _:
                self._forget(node)
                self._note(node, "is not followed")
                return None

    def _run_let(self, node: Node) -> bool | None:
        value: int | None = None
        for expression in node["Exprs"]:
            value = self._scope.arithmetic(self._unquoted(expression))
        return None if value is None else bool(value)

    def _unquoted(self, expression: Node) -> Node:
        """Return ``"A=1"`` as the assignment that it is."""
        parts = expression.get("Parts", [])
        if len(parts) != 1 or parts[0]["Type"] not in ("DblQuoted", "SglQuoted"):
            return expression
        text = self._scope.text(expression)
        if not is_known(text):
            self._forget(expression)
            for name in re.findall(r"([A-Za-z_]\w*)\s*(?:[-+*/%]?=(?!=)|\+\+|--)", text):
                self._scope.values[name] = [unknown(f"${name}")]
            return expression
        tree, source = parse_script(f"(({text}))")
        self._scope.source, before = source, self._scope.source
        value = self._scope.arithmetic(tree["Stmts"][0]["Cmd"]["X"])
        self._scope.source = before
        return {"Type": "Word", "Parts": [{"Type": "Known", "Value": "?" if value is None else str(value)}]}

    def _in_copy(self, follow: Callable[[], bool | None]) -> bool | None:
        """Follow statements whose assignments are lost behind them."""
        before, frames, functions = dict(self._scope.values), self._frames, dict(self._functions)
        arguments, self._frames = self._scope.arguments, []
        try:
            return follow()
        except _Jump:
            return None
        finally:
            self._scope.values, self._frames, self._functions = before, frames, functions
            self._scope.arguments = arguments

    # ---------------------------------------------------------------- branches
    def _ways(self, *ways: Callable[[], object]) -> None:
        """Follow each way from here, and keep what they agree on."""
        before, arguments, ends = self._scope.values, self._scope.arguments, list[dict[str, Elements]]()
        jumps: list[_Jump] = []
        self._undecided += 1
        for way in ways:
            self._scope.values = dict(before)
            try:
                way()
                ends.append(self._scope.values)
            except _Jump as jump:
                jumps.append(jump)
                self._leave(jump)
            if self._scope.arguments != arguments:
                arguments = None
            self._scope.arguments = arguments
        self._undecided -= 1
        if not ends:
            self._scope.values = before
            raise jumps[-1]
        self._scope.values = _merged_values(ends)

    def _leave(self, jump: _Jump) -> None:
        """Keep the variables of a way that leaves a loop or a function; one that ends the script has no successor."""
        levels = jump.levels
        for frame in reversed(self._frames):
            if jump.kind in frame.kinds:
                levels -= 1
                if levels == 0:
                    frame.left.append(self._scope.values)
                    return
            if "return" in frame.kinds:
                return

    def _run_list(self, node: Node) -> bool | None:
        is_and = node["Op"] == "&&"
        left = self._run(node["X"])
        if left is None and not self._in_condition and _is_ordinary(node["X"]):
            if not is_and and _matters(node["Y"]):
                self._note(node["Y"], "runs only if a command fails, and was left out")
            left = True
        if left is not None:
            return self._run(node["Y"]) if left == is_and else left
        right: list[bool | None] = []
        self._ways(lambda: right.append(self._run(node["Y"])), lambda: None)
        found = right[0] if right else None
        return found if found is not None and found != is_and else None

    def _condition(self, statements: Sequence[Node]) -> bool | None:
        self._in_condition += 1
        try:
            return self._run_all(statements)
        finally:
            self._in_condition -= 1

    def _run_if(self, node: Node) -> bool | None:
        if "Cond" not in node:
            return self._run_all(node.get("Then", []))
        truth = self._condition(node["Cond"])
        following = node.get("Else")
        if truth is True:
            return self._run_all(node.get("Then", []))
        if truth is False:
            return self._run_if(following) if following else True
        self._ways(
            lambda: self._run_all(node.get("Then", [])),
            lambda: self._run_if(following) if following else None,
        )
        return None

    def _run_case(self, node: Node) -> bool | None:
        subject = self._scope.text(node["Word"], unset_is_empty=True)
        items = node.get("Items", [])
        if any(item["Op"] != ";;" for item in items):
            self._forget(node)
            self._note(node, "is not followed: an item goes on with the next")
            return None
        return self._run_items(subject, items)

    def _run_items(self, subject: str, items: Sequence[Node]) -> bool | None:
        if not items:
            return True
        patterns = [self._scope.pattern(pattern) for pattern in items[0]["Patterns"]]
        fits: bool | None = False
        if "*" in patterns or (is_known(subject) and any(p is not None and fnmatchcase(subject, p) for p in patterns)):
            fits = True
        elif not is_known(subject) or None in patterns:
            fits = None
        if fits is not None:
            return self._run_all(items[0].get("Stmts", [])) if fits else self._run_items(subject, items[1:])
        self._ways(lambda: self._run_all(items[0].get("Stmts", [])), lambda: self._run_items(subject, items[1:]))
        return None

    # ---------------------------------------------------------------- loops
    def _run_for(self, node: Node) -> bool | None:
        loop = node["Loop"]
        if loop["Type"] == "CStyleLoop":
            if loop.get("Init"):
                self._scope.arithmetic(loop["Init"])
            return self._repeat(node, lambda: self._arithmetic_holds(loop.get("Cond")), loop.get("Post"))
        name = loop["Name"]["Value"]
        if "InPos" in loop and loop["InPos"].get("Line"):
            rounds = [text for word in loop.get("Items", []) for text in self._scope.fields(word)]
        elif self._scope.arguments is not None:
            rounds = list(self._scope.arguments)
        else:
            rounds = [unknown("$@")]
        if not all(map(is_known, rounds)):
            self._note(node, f"is a loop over {name} whose rounds only a run would tell")
            return self._unknown_rounds(node, lambda: self._scope.assign(name, [unknown(f"${name}")]))
        left = iter(rounds)

        def next_round() -> bool:
            value = next(left, None)
            if value is not None:
                self._scope.assign(name, [value])
            return value is not None

        return self._repeat(node, next_round)

    def _arithmetic_holds(self, condition: Node | None) -> bool | None:
        value = 1 if condition is None else self._scope.arithmetic(condition)
        return None if value is None else bool(value)

    def _run_while(self, node: Node) -> bool | None:
        def condition() -> bool | None:
            truth = self._condition(node["Cond"])
            return negated(truth) if node.get("Until") else truth

        return self._repeat(node, condition)

    def _repeat(self, node: Node, condition: Callable[[], bool | None], post: Node | None = None) -> bool | None:
        """Follow the rounds of a loop while its condition is known to hold."""
        for _ in range(_MOST_ROUNDS):
            truth = condition()
            if truth is False:
                return True
            if truth is None:
                self._note(node, "is a loop whose rounds only a run would tell")
                return self._unknown_rounds(node, lambda: None, condition, post)
            if not self._round(node):
                return True
            if post is not None:
                self._scope.arithmetic(post)
        self._note(node, f"is a loop with more than {_MOST_ROUNDS} rounds")
        return self._unknown_rounds(node, lambda: None, condition, post)

    def _round(self, node: Node) -> bool:
        """Follow one round; return whether another may follow."""
        frame = _Frame(kinds=("break", "continue"))
        self._frames.append(frame)
        undecided, goes_on = self._undecided, True
        try:
            self._run_all(node.get("Do", []))
        except _Jump as jump:
            if jump.kind not in frame.kinds:
                raise
            if jump.levels > 1:
                raise _Jump(jump.kind, jump.levels - 1) from None
            goes_on = jump.kind == "continue"
        finally:
            self._frames.pop()
            self._undecided = undecided
        if frame.left:
            self._scope.values = _merged_values([self._scope.values, *frame.left])
            if goes_on:  # a way may have ended the loop
                self._unknown_rounds(node, lambda: None)
                return False
        return goes_on

    def _unknown_rounds(
        self,
        node: Node,
        prepare: Callable[[], object],
        condition: Callable[[], bool | None] = lambda: None,
        post: Node | None = None,
    ) -> bool | None:
        """Follow a loop of which nobody knows how often it runs: what its rounds change is not known behind it."""

        def one_round() -> None:
            prepare()
            frame = _Frame(kinds=("break", "continue"))
            self._frames.append(frame)
            try:
                self._run_all(node.get("Do", []))
            except _Jump as jump:
                if jump.kind not in frame.kinds or jump.levels > 1:
                    raise
            finally:
                self._frames.pop()
            self._scope.values = _merged_values([self._scope.values, *frame.left])
            if post is not None:
                self._scope.arithmetic(post)
            condition()

        for number in range(4):
            before, num_commands = self._scope.values, len(self._commands)
            self._ways(one_round, lambda: None)
            if number:
                del self._commands[num_commands:]  # the first round's stand for all
            if self._scope.values == before:
                return None
        self._forget(node)
        return None

    # ---------------------------------------------------------------- functions
    def _call(self, name: str, arguments: list[str]) -> bool | None:
        """Follow a function; its ``local`` variables end with it."""
        if len(self._frames) >= _DEEPEST_CALL:
            self._notes[f"{name} calls itself more than {_DEEPEST_CALL} times"] = None
            self._forget(self._functions[name][0])
            return None
        self._called.add(name)
        body, source = self._functions[name]
        frame, undecided = _Frame(kinds=("return",)), self._undecided
        before = self._scope.arguments, self._scope.source
        self._scope.arguments, self._scope.source = arguments, source
        self._frames.append(frame)
        self._in_function += 1
        truth: bool | None = None
        try:
            truth = self._run(body)
        except _Jump as jump:
            if jump.kind != "return":
                raise
        finally:
            self._in_function -= 1
            self._frames.pop()
            self._undecided = undecided
            self._scope.arguments, self._scope.source = before
            if frame.left:
                self._scope.values = _merged_values([self._scope.values, *frame.left])
            for local, value in frame.locals.items():
                self._scope.values.pop(local, None)
                if value is not None:
                    self._scope.values[local] = value
        return truth

    def _declare(self, node: Node) -> bool | None:
        """Follow ``export``, ``local``, ``declare`` and their like."""
        variant, arguments = node["Variant"]["Value"], node.get("Args", [])
        options = "".join(self._scope.text(one.get("Value")) for one in arguments if "Name" not in one)
        function = next((frame for frame in reversed(self._frames) if "return" in frame.kinds), None)
        is_local = variant in ("local", "declare", "typeset") and "g" not in options and function is not None
        for one in arguments:
            if "Name" not in one:
                continue
            name = one["Name"]["Value"]
            if variant == "export" or "x" in options:
                self._scope.exported.add(name)
            if is_local and function is not None and name not in function.locals:
                function.locals[name] = self._scope.values.get(name)
                if variant == "local" or "Value" in one or "Array" in one:
                    self._scope.values.pop(name, None)
            if one.get("Naked"):
                continue
            self._assign(one)
            if re.search(r"[Ainlu]", options.replace("-", "")):  # associative, integer, reference, another case
                self._scope.values[name] = [unknown(f"${{{name}}}")]
        return True

    def _assign(self, node: Node) -> None:
        """Set a variable, an array or one of its elements."""
        name = node["Name"]["Value"]
        self._scope.assigned[name] = None
        append = bool(node.get("Append"))
        if "Index" in node:
            self._assign_element(name, node, append=append)
        elif "Array" in node:
            items = node["Array"].get("Elems", [])
            elements = [text for item in items if item.get("Value") for text in self._scope.fields(item["Value"])]
            if any(item.get("Index") for item in items):
                self._scope.values[name] = [unknown(f"${{{name}[@]}}")]
            else:
                self._scope.assign(name, elements, append=append, array=True)
        else:
            self._scope.assign(name, [self._scope.text(node.get("Value"))], append=append)

    def _assign_element(self, name: str, node: Node, *, append: bool) -> None:
        value, at = self._scope.text(node.get("Value")), self._scope.arithmetic(node["Index"])
        elements = list(self._scope.values.get(name, []))
        if at is None or not 0 <= at <= len(elements) or not all(map(is_known, elements)):
            self._scope.values[name] = [unknown(f"${{{name}[@]}}")]
            return
        old = elements[at] if append and at < len(elements) else ""
        elements[at : at + 1] = [old + value]
        self._scope.assign(name, elements, array=True)

    # ---------------------------------------------------------------- commands
    def _run_call(self, node: Node, redirections: Sequence[Node]) -> bool | None:
        assignments = node.get("Assigns", [])
        if not node.get("Args"):
            for one in assignments:
                self._assign(one)
            return None if any(_is_substitution(one) for one in assignments) and self._in_condition else True
        name = self._scope.text(node["Args"][0])
        if name in ("[", "test"):
            words = node["Args"][1 : -1 if name == "[" else None]
            return holds(self._scope, words)
        words = [text for word in node["Args"] for text in self._scope.fields(word)]
        before = self._scope.values
        if assignments:
            self._scope.values = dict(before)
            for one in assignments:
                self._assign(one)
            names = [one["Name"]["Value"] for one in assignments]
            set_here = {name: " ".join(map(plain, self._scope.values.get(name, []))) for name in names}
            self._assigned_for_command |= set_here
        try:
            return self._follow(words, redirections)
        finally:
            if assignments:
                after = self._scope.values
                self._scope.values = dict(after)
                for one in assignments:
                    name = one["Name"]["Value"]
                    self._scope.values.pop(name, None)
                    if name in before:
                        self._scope.values[name] = before[name]

    def _follow(self, words: list[str], redirections: Sequence[Node]) -> bool | None:
        """Follow a command, a function, or a script that is handed to a shell."""
        while words and words[0] in ("exec", "command", "builtin") and words[1:] and not words[1].startswith("-"):
            words = words[1:]
        if not words:
            return True
        name, arguments = words[0], words[1:]
        if name in self._functions:
            return self._call(name, arguments)
        if name in _BUILTINS:
            return _BUILTINS[name](self, arguments)
        if name in _SILENT:
            return name != "false"
        inner = self._nested(words, redirections)
        if not inner or self._depth >= _DEEPEST:
            self._record(words)
            return None
        self._depth += 1
        for text in inner:
            if name == "eval":
                self.read(plain(text))
            else:
                self._in_copy(lambda text=text: self.read(plain(text)))  # type: ignore[misc]
        self._depth -= 1
        return None

    def _nested(self, words: Sequence[str], redirections: Sequence[Node]) -> list[str]:
        """Return the scripts that a command hands to a shell."""
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
        quoted = any(part["Type"] != "Lit" or "\\" in part["Value"] for part in redirection["Word"]["Parts"])
        if quoted:
            return "".join(part.get("Value", "") for part in redirection["Hdoc"]["Parts"])
        return self._scope.document(redirection["Hdoc"])

    def _record(self, words: Sequence[str]) -> None:
        if len(self._commands) >= _MOST_COMMANDS:
            return
        left_out = tuple(found for word in words for found in re.findall("\1([^\1]*)\1", word) if found)
        kept = tuple(plain(word) for word in words if plain(word) or is_known(word))
        self._commands.append(
            Command(
                words=kept,
                variables=_plain_values(self._scope.values) if any(word.startswith("--") for word in kept) else {},
                left_out=left_out,
                is_known=all(map(is_known, words)),
                is_certain=self._undecided == 0,
            )
        )

    # ---------------------------------------------------------------- builtins
    def _unset(self, words: Sequence[str]) -> bool | None:
        for word in words:
            name = word.partition("[")[0]
            if word in self._scope.values:
                del self._scope.values[word]
            elif name in self._scope.values:
                self._scope.values[name] = [unknown(f"${{{name}[@]}}")]
            elif words[0] == "-f":
                self._functions.pop(word, None)
        return True

    def _source(self, words: Sequence[str]) -> bool | None:
        self._notes[f"source {plain(' '.join(words[:1]))} is not read"] = None
        return None

    def _read_input(self, words: Sequence[str]) -> bool | None:
        """Forget the variables that a command's input is put into."""
        for word in words:
            if word.isidentifier():
                self._scope.values[word] = [unknown(f"${word}")]
        return None

    def _printf(self, words: Sequence[str]) -> bool | None:
        if words[:1] == ["-v"]:
            self._read_input(words[1:2])
        return True

    def _set(self, words: Sequence[str]) -> bool | None:
        if "--" in words:
            arguments = list(words[words.index("--") + 1 :])
            self._scope.arguments = arguments
        return True

    def _shift(self, words: Sequence[str]) -> bool | None:
        count = int(words[0]) if words and words[0].isdecimal() and len(words[0]) < 5 else 1
        if self._scope.arguments is not None:
            if not all(map(is_known, self._scope.arguments[:count])):
                self._scope.arguments = None
                return None
            if count > len(self._scope.arguments):
                return False
            self._scope.arguments = self._scope.arguments[count:]
        return True

    def _jump(self, kind: str, words: Sequence[str]) -> bool | None:
        levels = int(words[0]) if words and words[0].isdecimal() and 0 < len(words[0]) < 3 else 1
        if kind in ("break", "continue") and not any(kind in frame.kinds for frame in self._frames):
            return True
        if kind == "return" and not self._in_function:
            return False  # bash refuses it there, and goes on
        raise _Jump(kind, levels if kind in ("break", "continue") else 1)

    # ---------------------------------------------------------------- what is not followed
    def _forget(self, node: Node) -> None:
        """Mark every variable that a part of the script may set as not known."""
        for name in assigned_names(node):
            self._scope.values[name] = [unknown(f"${name}")]

    def _line(self, node: Node) -> str:
        return self._scope.written(node).partition("\n")[0].strip()[:60]

    def _note(self, node: Node, what: str) -> None:
        self._notes[f"`{self._line(node)}` {what}"] = None


_BUILTINS: Mapping[str, Callable[[_Reader, Sequence[str]], bool | None]] = {
    "source": _Reader._source,
    ".": _Reader._source,
    "unset": _Reader._unset,
    "read": _Reader._read_input,
    "mapfile": _Reader._read_input,
    "readarray": _Reader._read_input,
    "getopts": _Reader._read_input,
    "printf": _Reader._printf,
    "set": _Reader._set,
    "shift": _Reader._shift,
    "exit": lambda reader, words: reader._jump("exit", words),
    "return": lambda reader, words: reader._jump("return", words),
    "break": lambda reader, words: reader._jump("break", words),
    "continue": lambda reader, words: reader._jump("continue", words),
}


def _merged_values(ends: Sequence[dict[str, Elements]]) -> dict[str, Elements]:
    """Return the variables after several ways; what these do not agree on is marked."""
    if len(ends) == 1:
        return ends[0]
    names = dict.fromkeys(name for end in ends for name in end)
    found = {name: merged(name, [end.get(name) for end in ends]) for name in names}
    return {name: elements for name, elements in found.items() if elements is not None}


def _plain_values(values: Mapping[str, Elements]) -> dict[str, str]:
    return {name: " ".join(filter(None, map(plain, elements))) for name, elements in values.items()}


def _is_ordinary(statement: Node) -> bool:
    """Return whether a statement is a command that scripts expect to succeed, and no test."""
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
    """Return whether a statement sets variables or has flags."""
    return any(True for _ in assigned_names(statement)) or any(
        node.get("Type") == "Lit" and node.get("Value", "").startswith("--") for node in nodes(statement)
    )
