"""Parsers of configurations: JSON with comments, YAML, and Python, which is parsed and never run.

Every text gives a value or raises ``InvalidInput``. ``read_module`` follows assignments, keyword arguments and calls of
functions of the same module, as torchtitan's configurations need; ``assignments`` collects all assignments anywhere in
a recipe, in the order of the text. Computed values are unknown.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from autotuner.core.errors import InvalidInput

_STRING = r'"(?:\\.|[^"\\])*(?:"|\Z)'
_COMMENT = re.compile(rf"({_STRING})|/\*.*?(?:\*/|\Z)|(?://|#)[^\n]*", re.DOTALL)
_LAST_COMMA = re.compile(rf"({_STRING})|,(?=\s*[}}\]])")

_BRACKET = re.compile(rf"{_STRING}|/\*.*?(?:\*/|\Z)|(?://|#)[^\n]*|[{{}}]", re.DOTALL)

_NEVER = re.compile(r"(?!)")
_YAML_LINE = re.compile(r"\s*(?:-\s|---|[A-Za-z_]\w*\s*:(?:\s|$))")

_LONGEST = 1_000_000
"""Most characters of a configuration. Real ones do not have a tenth of that."""

_LONGEST_YAML, _DEEPEST_YAML = 50_000, 8
"""Most characters and deepest nesting of YAML that is read. The parser takes seconds for a megabyte and for nested
brackets; accelerate's own files have 2,000 characters and no brackets."""


def json_document(text: str) -> dict[str, Any]:
    """Return the JSON object in a text, which may have comments and trailing commas as in HJSON.

    Raises:
        InvalidInput: The text is not a JSON object.
    """
    plain = _LAST_COMMA.sub(r"\1", _COMMENT.sub(r"\1", _short(text)))
    try:
        value = json.loads(plain)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            "config", text[:60], f'must be a valid JSON object, for example {{"seed": 1}} ({first_line(error)})'
        ) from error
    return _mapping(text, value)


def yaml_document(text: str) -> dict[str, Any]:
    """Return the YAML mapping in a text as plain data.

    Raises:
        InvalidInput: The text is not a mapping, is too long or nested too deep, or has anchors, which are not
            supported.
    """
    if len(text) > _LONGEST_YAML:
        rule = (
            f"has {len(text):,} characters, but at most {_LONGEST_YAML:,} of YAML can be read; give only the "
            "settings of the training"
        )
        raise InvalidInput("config", text[:60], rule)
    if re.search(r"[\[{]\s*" * _DEEPEST_YAML, text):
        raise InvalidInput(
            "config", text[:60], "is nested too deeply to be read: remove some levels of brackets or sections"
        )
    if re.search(r"(^|[\s\[{,])[&*]\w", text):  # repeated anchors would grow without bound
        raise InvalidInput(
            "config", text[:60], "must not use anchors and references of YAML (& and *); write their values in full"
        )
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInput(
            "config", text[:60], f"must be valid YAML with names and values, for example seed: 1 ({first_line(error)})"
        ) from error
    return _mapping(text, value)


def split_document(text: str) -> tuple[str, str]:
    """Split a text into its first JSON object and the rest; the object must begin at the start of a line.

    Returns:
        The text without the object, then the object as a text. The object is an empty text if there is none.
    """
    start = re.search(r"^[ \t]*\{", _short(text), re.MULTILINE)
    if start is None:
        return text, ""
    depth = 0
    for token in _BRACKET.finditer(text, start.start()):
        depth += {"{": 1, "}": -1}.get(token.group(), 0)
        if depth == 0 and token.group() == "}":
            return text[: start.start()] + text[token.end() :], text[start.start() : token.end()]
    return text[: start.start()], text[start.start() :]


def split_yaml(text: str) -> tuple[str, str]:
    """Split a text into its YAML lines and all other lines, which belong to a command."""
    lines = _short(text).splitlines(keepends=True)
    return (
        "".join(line for line in lines if _YAML_LINE.match(line)),
        "".join(line for line in lines if not _YAML_LINE.match(line)),
    )


def split_commands(
    text: str, begins: re.Pattern[str], *, scripts: re.Pattern[str] = _NEVER, documents: re.Pattern[str] = _NEVER
) -> tuple[str, str]:
    """Split a text into a document and the commands around it.

    Args:
        text: A document (such as TOML or Python) with commands before, between or after its parts.
        begins: Pattern of the first line of a command. If a backslash ends a line, the next line belongs to the
            command.
        scripts: Pattern of a line that begins a script. All lines from there to the next document are commands.
        documents: Pattern of a line that begins a document and so ends a script.

    Returns:
        The document, then the commands.
    """
    parts: tuple[list[str], list[str]] = ([], [])
    is_command = is_script = False
    for line in text.splitlines():
        is_script = (is_script or bool(scripts.match(line))) and not documents.match(line)
        is_command = bool(begins.match(line)) or (is_command and parts[1][-1].endswith("\\"))
        parts[is_command or is_script].append(line)
    return "\n".join(parts[0]), "\n".join(parts[1])


def _short(text: str) -> str:
    if len(text) > _LONGEST:
        rule = (
            f"has {len(text):,} characters, but at most {_LONGEST:,} can be read; give only the settings of the "
            "training"
        )
        raise InvalidInput("config", text[:60], rule)
    return text


def _mapping(text: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise InvalidInput("config", text[:60], "must be a mapping of names to values, for example micro_batch_size: 1")
    return value


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or the name of its type if the message is empty."""
    return next(iter(str(error).splitlines()), type(error).__name__)


# ---------------------------------------------------------------- Python
_LONGEST_MODULE = 200_000
"""Most characters of a Python module. The longest file of recipes of Megatron-Bridge 0.6 has 60,000."""

_DEEPEST = 40
"""Maximum depth of nested calls and values that are followed."""

_MOST_CALLS = 200


class _Unknown:
    """A value that only a run can decide."""

    def __repr__(self) -> str:
        return "computed"


UNKNOWN = _Unknown()


@dataclass(slots=True, eq=False)
class Made:
    """A placeholder for the object that a function call in a configuration would return, since no call is ever run.

    It has the name of the function, the arguments, and the fields that the configuration sets on the object.
    """

    name: str = ""
    """Dotted name of the function or class that is called; empty for an object that only has attributes set."""
    arguments: tuple[object, ...] = ()
    fields: dict[str, object] = field(default_factory=dict)

    def part(self, name: str) -> object:
        """Return a field of the placeholder. A field that is not set yet becomes an empty placeholder first."""
        return self.fields.setdefault(name, Made())


@dataclass(slots=True, eq=False)
class Module:
    """The functions and imports of a Python module with a configuration. The module is parsed but never run."""

    functions: Mapping[str, ast.FunctionDef]
    imports: Mapping[str, str]
    """Modules by the names under which they are imported, such as ``model_registry`` for
    ``torchtitan.models.llama3``."""
    skipped: list[str] = field(default_factory=list)
    """Statements that were not followed, as they are written."""
    _num_calls: int = 0

    def result(self, name: str) -> object:
        """Return the value that a function of the module returns, found without running the module.

        Raises:
            InvalidInput: The module has no function of that name, or its functions call each other without end.
        """
        if name not in self.functions:
            raise InvalidInput(
                "config", name, f"is not one of the functions of the module: {', '.join(self.functions)}"
            )
        return self._called(self.functions[name], 0)

    def _called(self, function: ast.FunctionDef, depth: int) -> object:
        self._num_calls += 1
        if depth > _DEEPEST or self._num_calls > _MOST_CALLS:
            raise InvalidInput(
                "config",
                function.name,
                "is a function that calls itself without an end, directly or through other functions",
            )
        names: dict[str, object] = dict(_defaults(function))
        for statement in function.body:
            if isinstance(statement, ast.Return):
                return UNKNOWN if statement.value is None else self._value(statement.value, names, depth)
            self._follow(statement, names, depth)
        return UNKNOWN

    def _follow(self, statement: ast.stmt, names: dict[str, object], depth: int) -> None:
        match statement:
            case ast.Assign(targets=[target], value=value):
                self._assign(target, self._value(value, names, depth), names, depth)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, self._value(value, names, depth), names, depth)
            case ast.If() | ast.For() | ast.While() | ast.With() | ast.Try() | ast.AugAssign() | ast.Match():
                self.skipped.append(ast.unparse(statement).splitlines()[0])
            case _:
                pass  # docstrings, imports and checks assign nothing

    def _assign(self, target: ast.expr, value: object, names: dict[str, object], depth: int) -> None:
        match target:
            case ast.Name(id=name):
                names[name] = value
            case ast.Attribute(value=owner, attr=name):
                made = self._value(owner, names, depth + 1)
                if isinstance(made, Made):
                    made.fields[name] = value
            case _:
                self.skipped.append(ast.unparse(target))

    def _value(self, node: ast.expr, names: Mapping[str, object], depth: int) -> object:
        if depth > _DEEPEST:
            return UNKNOWN
        match node:
            case ast.Constant(value=value):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return -number
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                return [self._value(element, names, depth + 1) for element in elements]
            case ast.Name(id=name):
                return names.get(name, UNKNOWN)
            case ast.Attribute(value=owner, attr=name):
                made = self._value(owner, names, depth + 1)
                return made.part(name) if isinstance(made, Made) else UNKNOWN
            case ast.Call():
                return self._call(node, names, depth + 1)
            case _:
                return UNKNOWN

    def _call(self, node: ast.Call, names: Mapping[str, object], depth: int) -> object:
        name = _dotted(node.func)
        arguments = tuple(self._value(argument, names, depth) for argument in node.args)
        fields = {word.arg: self._value(word.value, names, depth) for word in node.keywords if word.arg}
        if name in self.functions and not arguments and not fields:
            return self._called(self.functions[name], depth)
        if name.rpartition(".")[2] == "replace" and arguments and isinstance(arguments[0], Made):
            made = arguments[0]
            return Made(made.name, made.arguments, made.fields | fields)
        return Made(name, arguments, fields)


def parse(text: str) -> ast.Module:
    """Return the syntax tree of a Python module, which is never run.

    Raises:
        InvalidInput: The text is not Python.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns about escapes in texts that are never run
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise InvalidInput("config", text[:60], f"must be valid Python ({first_line(error)})") from error


def require_short(text: str) -> None:
    """Raise ``InvalidInput`` if a text is longer than a configuration can be."""
    if len(text) > _LONGEST_MODULE:
        raise InvalidInput(
            "config",
            text[:60],
            f"has {len(text):,} characters, but at most {_LONGEST_MODULE:,} can be read; give only the "
            "function that returns the configuration",
        )


def read_module(text: str) -> Module:
    """Return the functions and imports of a Python module, which is parsed and never run.

    Raises:
        InvalidInput: The text is not Python, or is too long.
    """
    require_short(text)
    body = parse(text).body
    return Module(functions_of(body), dict(_imports(body)))


def functions_of(body: Sequence[ast.stmt]) -> dict[str, ast.FunctionDef]:
    """Return the functions that a Python module defines, by name."""
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef)}


def _imports(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    for node in body:
        if isinstance(node, ast.ImportFrom):
            for name in node.names:
                yield name.asname or name.name, node.module or ""


def _defaults(function: ast.FunctionDef) -> Iterator[tuple[str, object]]:
    named = function.args.args[len(function.args.args) - len(function.args.defaults) :]
    for argument, default in zip(named, function.args.defaults, strict=True):
        yield argument.arg, default.value if isinstance(default, ast.Constant) else UNKNOWN


def _dotted(node: ast.expr) -> str:
    """Return the dotted name ``cfg.model.x`` of an attribute or a name; empty if the expression is neither."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *parts[::-1]]) if isinstance(node, ast.Name) else ""


# ---------------------------------------------------------------- assignments
Words = tuple[str, ...]
"""A value as a tuple of words. A list has several words; a missing value has none."""


def assignments(function: ast.FunctionDef) -> Iterator[tuple[str, Words]]:
    """Yield the default values of a function's arguments, then the values that its statements assign, by name."""
    arguments = [*function.args.posonlyargs, *function.args.args]
    defaults = list(zip(reversed(arguments), reversed(function.args.defaults), strict=False))
    defaults += [(name, x) for name, x in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True) if x]
    names = {argument.arg: words for argument, value in defaults if (words := _words(value, {})) is not None}
    yield from names.items()
    yield from assigned(function.body, names)


def assigned(body: Iterable[ast.stmt], names: Mapping[str, Words]) -> Iterator[tuple[str, Words]]:
    """Yield each value that the statements assign, with the dotted name to which it is assigned.

    A keyword argument of a call counts as an assignment too.

    Args:
        body: The statements.
        names: Values of the variables that the statements may use.
    """
    for node in (node for statement in body for node in ast.walk(statement)):
        match node:
            case ast.Assign(targets=[target], value=value) | ast.AnnAssign(target=target, value=ast.expr() as value):
                path = _dotted(target)
            case ast.keyword(arg=str(path), value=value):
                pass
            case _:
                continue
        words = _words(value, names)
        if path and words is not None:
            yield path, words


def _words(value: ast.expr, names: Mapping[str, Words]) -> Words | None:
    """Return the words of a value; None if it is unknown.

    A value may be a constant, a list of constants, an argument with a default, or a call, which gives the called name
    and its first word.
    """
    match value:
        case ast.Constant(value=constant) if isinstance(constant, str | int | float | bool | None):
            return () if constant is None else (str(constant),)
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            words = [_words(element, names) for element in elements]
            return None if None in words else tuple(word for part in words for word in part or ())
        case ast.Name(id=name):
            return names.get(name)
        case ast.Call(func=function, args=arguments):
            first = _words(arguments[0], names) if arguments else ()
            return (_dotted(function).rpartition(".")[2], *(first or ()))
        case _:
            return None
