"""Expansion of a shell's words: variables, arrays, defaults and arithmetic; never a command."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from autotuner.errors import InvalidInput
from autotuner.export.shell.arithmetic import arithmetic
from autotuner.export.shell.tokens import end_of_quote

__all__ = ["Scope", "is_resolved"]

_DEEPEST = 20
"""Defaults inside defaults (``${A:-${B:-1}}``)."""

_MOST_CHARACTERS = 200_000
_MOST_ELEMENTS = 10_000
"""What a word or an array may expand to: a script that doubles a variable in every line would fill the memory."""

_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_ALL = re.compile(r'"(?:\$\{\w+\[@\]\}")|(?<=\[@\]\})"')
_PARAMETER = re.compile(r"(#?)([A-Za-z_]\w*|[0-9@*#])(\[[^\]]*\])?(?:(:?[-=+?])(.*))?", re.DOTALL)


def is_resolved(text: str) -> bool:
    """Whether an expanded text holds nothing that only a shell would know."""
    return "$" not in text and "`" not in text


@dataclass(slots=True)
class Scope:
    """What variables hold while a script is read.

    A variable that nothing sets, a command's output, or an expansion that is not known stays as it is written.

    Attributes:
        values: Of a variable; the elements of an array. A plain one has one.
        unset: Names that were asked for and that nothing sets.
        unknown: What stayed as it is written.
    """

    values: dict[str, list[str]] = field(default_factory=dict)
    unset: dict[str, None] = field(default_factory=dict)
    unknown: dict[str, None] = field(default_factory=dict)

    def assign(self, name: str, elements: list[str], *, append: bool = False, array: bool = False) -> None:
        """Set a variable, or add to it."""
        old = self.values.get(name, []) if append else []
        new = [*old, *elements] if array else ["".join([*old[:1], *elements]), *old[1:]]
        if len(new) > _MOST_ELEMENTS or sum(map(len, new)) > _MOST_CHARACTERS:
            raise InvalidInput("config", name, f"is a variable that grows past {_MOST_CHARACTERS} characters")
        self.values[name] = new

    @property
    def variables(self) -> Mapping[str, str]:
        """Plain ones; an array's elements with blanks between."""
        return {name: " ".join(elements) for name, elements in self.values.items()}

    def text(self, word: str, *, unset_is_empty: bool = False) -> str:
        """A word as one text: what an assignment gives its variable, and what conditions compare."""
        return " ".join(self._expanded(word, splits=False, unset_is_empty=unset_is_empty))

    def fields(self, word: str) -> list[str]:
        """A word as the arguments that a command would get of it."""
        return self._expanded(word, splits=True)

    def _expanded(self, word: str, *, splits: bool, unset_is_empty: bool = False, depth: int = 0) -> list[str]:
        if depth > _DEEPEST:
            raise InvalidInput("config", word, f"has expansions more than {_DEEPEST} deep")
        made = _Fields(splits)
        at, quoted = 0, False
        while at < len(word):
            char = word[at]
            if char == '"':
                quoted = not quoted
                if not _ALL.match(word, at):  # an empty array is no argument, an empty quote is one
                    made.add("")
                at += 1
            elif char == "'" and not quoted:
                end = end_of_quote(word, at)
                made.add(word[at + 1 : end - 1])
                at = end
            elif word.startswith("\\\n", at):  # a line that goes on
                at += 2
            elif char == "\\" and (not quoted or word[at + 1 : at + 2] in tuple('"$`\\')):
                made.add(word[at + 1 : at + 2])
                at += 2
            elif char in "$`":
                at = self._expand(word, at, made, _How(quoted, unset_is_empty, depth))
            else:
                made.add(char)
                at += 1
        return made.done()

    def _expand(self, word: str, at: int, made: _Fields, how: _How) -> int:
        """Add what starts with a dollar or a backtick there; where it ends."""
        if word.startswith("${", at):
            end = end_of_quote(word, at)
            elements = self._parameter(word[at + 2 : end - 1], how)
        elif word.startswith("$((", at):
            end = end_of_quote(word, at)
            elements = self._arithmetic(word[at + 3 : end - 2], how)
        elif word.startswith(("$(", "`"), at):
            end, elements = end_of_quote(word, at), None
        else:
            name = _NAME.match(word, at + 1)
            end = name.end() if name else at + 1
            elements = self._variable(name[0], how) if name else ["$"]
        if elements is None:
            if not self._names_unset(word[at:end]):
                self.unknown[word[at:end]] = None
            made.add(word[at:end])
        else:
            made.extend(elements, quoted=how.quoted)
        return end

    def _names_unset(self, expansion: str) -> bool:
        """Whether it is a plain variable that nothing sets, of which ``unset`` tells."""
        return expansion.strip("${}") in self.unset

    def _variable(self, name: str, how: _How) -> list[str] | None:
        if name in self.values:
            return self.values[name][:1] or [""]
        if not name[0].isalpha() and name[0] != "_":
            return None
        self.unset[name] = None
        return [""] if how.unset_is_empty else None

    def _parameter(self, inside: str, how: _How) -> list[str] | None:
        """What stands between ``${`` and ``}``."""
        found = _PARAMETER.fullmatch(inside)
        if found is None:
            return None
        length, name, index, operator, default = found.groups()
        elements = self._elements(name, index)
        if length:
            return [str(len(elements or []) if index else len("".join(elements or [])))]
        if not operator or operator.endswith("?"):
            if elements is None and not index:
                return self._variable(name, how)
            return elements
        return self._or_default(name, elements, operator, default, how)

    def _elements(self, name: str, index: str | None) -> list[str] | None:
        """Of an array, all or one; of a plain variable, it. None: nothing sets it."""
        values = self.values.get(name)
        if values is None or index in ("[@]", "[*]"):
            return values if index != "[*]" or values is None else [" ".join(values)]
        wanted = index[1:-1] if index else "0"
        return [values[int(wanted)]] if wanted.isdecimal() and int(wanted) < len(values) else [""]

    def _or_default(
        self, name: str, elements: list[str] | None, operator: str, default: str, how: _How
    ) -> list[str] | None:
        is_set = elements is not None and (":" not in operator or any(elements))
        if operator.endswith("+"):
            return self._default(default, how) if is_set else []
        if is_set:
            return elements
        made = self._default(default, how)
        if operator.endswith("="):
            self.assign(name, made)
        return made

    def _default(self, text: str, how: _How) -> list[str]:
        made = self._expanded(text, splits=not how.quoted, unset_is_empty=how.unset_is_empty, depth=how.depth + 1)
        return made or [""]

    def _arithmetic(self, inside: str, how: _How) -> list[str] | None:
        """A whole number; names count with or without their dollar."""
        plain = " ".join(self._expanded(inside, splits=False, depth=how.depth + 1))
        named = re.sub(r"[A-Za-z_]\w*", lambda name: (self.values.get(name[0]) or [name[0]])[0], plain)
        value = arithmetic(named)
        return None if value is None else [str(value)]


@dataclass(frozen=True, slots=True)
class _How:
    """Where an expansion stands."""

    quoted: bool
    unset_is_empty: bool
    depth: int


class _Fields:
    """Arguments in the making."""

    def __init__(self, splits: bool) -> None:
        self._splits = splits
        self._done: list[str] = []
        self._open: list[str] | None = None
        self._size = 0

    def add(self, text: str) -> None:
        """Go on with the argument that is open; an empty quote opens one."""
        self._size += len(text)
        if self._size > _MOST_CHARACTERS:
            raise InvalidInput("config", text[:60], f"is part of what expands past {_MOST_CHARACTERS} characters")
        if self._open is None:
            self._open = []
        self._open.append(text)

    def extend(self, elements: list[str], *, quoted: bool) -> None:
        """Add what a variable holds: blanks end an argument outside quotes, elements of an array everywhere."""
        for number, element in enumerate(elements):
            if number:
                self._end()
            if quoted or not self._splits:
                self.add(element)
            else:
                self._split(element)

    def _split(self, text: str) -> None:
        for part in re.split(r"(\s+)", text):
            if part.isspace():
                self._end()
            elif part:
                self.add(part)

    def _end(self) -> None:
        if self._open is not None:
            self._done.append("".join(self._open))
        self._open = None

    def done(self) -> list[str]:
        """All arguments."""
        self._end()
        return self._done
