"""Assignments: what a Python recipe, or overrides of one, assign; read, never run."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from autotuner.core.errors import InvalidInput
from autotuner.export.shell.script import read_script

_LARGEST = 200_000
"""Characters that are read: the longest file of recipes of Megatron-Bridge 0.6 has 60,000."""

_OVERRIDE = re.compile(
    r"(?:^|[\s'\"+])([A-Za-z_]\w*(?:\.\w+)+|[a-z_]\w+)=('[^'\n]*'|\"[^\"\n]*\"|\[[^\]\n]*\]|[^\s'\"\\]+)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """What a text assigns.

    Attributes:
        values: By the path that is assigned to (``cfg.model.num_layers``), as words; a list has several.
        function: The function whose assignments these are; empty: there is none.
        others: Functions whose assignments were left aside.
        remarks: Parts of a script that could not be followed; sentences without full stops.
        is_script: They are arguments of a script's command.
    """

    values: Mapping[str, tuple[str, ...]]
    function: str = ""
    others: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    is_script: bool = False


def assignments(text: str) -> Assigned:
    """The assignments of a recipe's function, or of overrides.

    Of several functions one that pretrains counts before others, then the one with most assignments, then the first;
    what the functions that it calls assign counts where it says nothing itself.

    Raises:
        InvalidInput: The text is longer than recipes are.
    """
    if len(text) > _LARGEST:
        raise InvalidInput("config", text[:60], f"has {len(text):,} characters, and {_LARGEST:,} are read at most")
    module = _parsed(text)
    if module is None:
        return _of_script(text) or Assigned(values={path: _words(value) for path, value in _OVERRIDE.findall(text)})
    functions = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    found = {name: dict(_of_function(node)) for name, node in functions.items()}
    outside = dict(_of_statements([node for node in module.body if not isinstance(node, ast.FunctionDef)], {}))
    if not any(found.values()):
        return Assigned(values=outside)
    chosen = max(found, key=lambda name: ("pretrain" in name, len(found[name])))
    called = [name for name in functions if name != chosen and name in _called(functions[chosen])]
    for name in called:
        outside |= found[name]
    others = tuple(name for name, values in found.items() if values and name not in (chosen, *called))
    return Assigned(values=outside | found[chosen], function=chosen, others=others)


def _of_script(text: str) -> Assigned | None:
    """Return the overrides that a script's command has; None: the text is no script, or its commands have none."""
    try:
        script = read_script(text)
    except InvalidInput:
        return None
    found = [(dict(_overrides(command.words)), command) for command in script.commands]
    values, command = max(found, key=lambda one: (len(one[0]), one[1].is_certain), default=({}, None))
    if command is None or not any("." in path for path in values):
        return None
    for others, fragment in found:
        if others and "=" in fragment.words[0]:  # overrides on lines of their own, without a program
            values |= others
    unknown = [one for one in script.unknown if any(one in word for word in command.words)]
    unset = [f"${name}" for name in script.unset if any(re.search(rf"\$\{{?{name}\b", word) for word in command.words)]
    remarks = [
        *script.notes,
        *(f"{one[:80]} depends on a condition that only a run decides" for one in command.left_out),
    ]
    if unset:
        remarks.append(f"nothing sets {', '.join(unset[:8])}")
    if unknown:
        remarks.append(f"only a run would tell {', '.join(unknown[:8])}")
    return Assigned(values=values, remarks=tuple(remarks), is_script=True)


def _overrides(words: Iterable[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for word in words:
        found = re.fullmatch(r"[+~]{0,2}([A-Za-z_]\w*(?:\.\w+)*)=(.*)", word.strip("'\""), re.DOTALL)
        if found:
            yield found[1], _words(found[2])


def _called(function: ast.FunctionDef) -> set[str]:
    """Names that a function calls."""
    calls = (node.func for node in ast.walk(function) if isinstance(node, ast.Call))
    return {call.id for call in calls if isinstance(call, ast.Name)}


def _parsed(text: str) -> ast.Module | None:
    """The text as Python; None where it is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes in a text that nobody runs
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def _words(value: str) -> tuple[str, ...]:
    """A value as words; what is in brackets, one by one."""
    plain = value.strip("'\"")
    if plain.startswith("["):
        return tuple(word.strip(" '\"") for word in plain.strip("[]").split(",") if word.strip())
    return (plain,)


# ---------------------------------------------------------------- Python
_Names = Mapping[str, tuple[str, ...]]
"""Arguments of a function with their defaults."""


def _of_function(node: ast.FunctionDef) -> Iterator[tuple[str, tuple[str, ...]]]:
    arguments = [*node.args.posonlyargs, *node.args.args]
    defaults = list(zip(reversed(arguments), reversed(node.args.defaults), strict=False))
    defaults += [
        (name, value) for name, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if value
    ]
    names = {argument.arg: words for argument, value in defaults if (words := _value(value, {})) is not None}
    yield from names.items()
    yield from _of_statements(node.body, names)


def _of_statements(body: list[ast.stmt], names: _Names) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Assignments to names and attributes, and arguments by name of every call, in the order of the text."""
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                yield from _assigned(_path(node.targets[0]), node.value, names)
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                yield from _assigned(_path(node.target), node.value, names)
            elif isinstance(node, ast.keyword) and node.arg is not None:
                yield from _assigned(node.arg, node.value, names)


def _assigned(path: str, value: ast.expr, names: _Names) -> Iterator[tuple[str, tuple[str, ...]]]:
    words = _value(value, names)
    if path and words is not None:
        yield path, words


def _path(target: ast.expr) -> str:
    """``cfg.model.x`` of an attribute or a name; empty: it is neither."""
    parts = []
    while isinstance(target, ast.Attribute):
        parts.append(target.attr)
        target = target.value
    if not isinstance(target, ast.Name):
        return ""
    return ".".join([target.id, *reversed(parts)])


def _value(value: ast.expr, names: _Names) -> tuple[str, ...] | None:
    """A constant, a list of them, an argument's default, or the name of what is called, with its first word."""
    match value:
        case ast.Constant(value=constant) if isinstance(constant, str | int | float | bool | None):
            return () if constant is None else (str(constant),)
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            words = [_value(element, names) for element in elements]
            return None if None in words else tuple(word for part in words for word in part or ())
        case ast.Name(id=name):
            return names.get(name)
        case ast.Call(func=function, args=arguments):
            first = _value(arguments[0], names) if arguments else ()
            return (_path(function).rpartition(".")[2], *(first or ()))
        case _:
            return None
