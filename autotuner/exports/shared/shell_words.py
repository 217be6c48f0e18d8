"""Syntax trees of shell scripts, and the expansion of words: variables, arrays, defaults and arithmetic.

shfmt (mvdan/sh, in the wheel ``shfmt-py``) parses a script, in a process of its own, so that no text can crash the
service; nothing is run.

A text may contain *marks*. A part between two NUL characters, such as ``$(hostname)``, is an expansion that only a run
can decide, as it is written. A part between two SOH characters, such as ``--load x``, may be there or not, because only
a run can decide its condition. Every test and every calculation on a text with a mark has an unknown result.
"""

from __future__ import annotations

import json
import operator
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from textwrap import dedent
from typing import Any

from autotuner.core.errors import InvalidInput

Node = dict[str, Any]
"""A node of the syntax tree: the fields of mvdan/sh's Go types (syntax/nodes.go), with the type's name as ``Type``."""

MAX_SCRIPT_CHARACTERS = 100_000
"""Most characters of a script. Long launch scripts have 30,000."""

MAX_OPEN_BRACKETS = 200
"""Most brackets that may be open at once. shfmt uses a gigabyte of stack for 200,000 of them."""

MAX_PARSE_S = 10
"""Seconds after which parsing is stopped. A script of 30,000 characters takes 0.02 s."""

_PLACEHOLDER = re.compile(r"(?<=[ =\t])<([A-Za-z_][\w ./-]*)>")
"""Pattern of a placeholder that documentation leaves for its reader to fill in (``--load <path>``). A shell would read
it as two redirections."""

_ERROR = re.compile(r"(?:<standard input>:)?(\d+):(?:\d+|\?): (.*)")


def parse_script(text: str) -> tuple[Node, bytes]:
    """Return the syntax tree of a script, and the bytes of the script to which positions in the tree refer.

    The bytes differ from the given text, because indentation, line ends and placeholders are normalised first.

    Raises:
        InvalidInput: The text is not a shell script (the message names the line), is too long, or is nested too deep.
        RuntimeError: The program ``shfmt`` is not installed.
    """
    if len(text) > MAX_SCRIPT_CHARACTERS:
        rule = (
            f"has {len(text):,} characters, but at most {MAX_SCRIPT_CHARACTERS:,} can be read; give only the part "
            "that starts the training"
        )
        raise InvalidInput("config", text[:60], rule)
    if _open_brackets(text) > MAX_OPEN_BRACKETS:
        raise InvalidInput(
            "config", text[:60], "is nested too deeply to be read: remove some levels of brackets or sections"
        )
    lines = dedent(text.replace("\r\n", "\n"))  # a copy that is indented still ends its here-documents
    source = _PLACEHOLDER.sub(r"'<\1>'", lines.replace("\0", "").replace("\1", ""))
    return _parse(source), source.encode("utf-8", "replace")


def _open_brackets(text: str) -> int:
    """Return the largest number of brackets that are open at once."""
    depth = most = 0
    for char in text:
        depth += 1 if char in "([{" else -1 if char in ")]}" and depth else 0
        most = max(most, depth)
    return most


@lru_cache(maxsize=4)
def _parse(text: str) -> Node:
    """Return the syntax tree of a script.

    The result is cached, because several formats try to read the same text.
    """
    command = [_shfmt(), "--language-dialect", "bash", "--to-json"]
    source = text.encode("utf-8", "replace")
    try:
        done = subprocess.run(command, input=source, capture_output=True, timeout=MAX_PARSE_S, env={}, check=False)
    except subprocess.TimeoutExpired:
        raise InvalidInput(
            "config", text[:60], f"takes more than {MAX_PARSE_S} s to parse as a shell script; shorten it"
        ) from None
    if done.returncode == 0:
        return json.loads(done.stdout)  # type: ignore[no-any-return]  # an object of type File
    message = next(iter(done.stderr.decode("utf-8", "replace").splitlines()), "")
    found = _ERROR.fullmatch(message.strip())
    if found is None:
        raise InvalidInput("config", text[:60], "cannot be read as a shell script")
    lines = text.splitlines()
    line = lines[int(found[1]) - 1].strip() if int(found[1]) <= len(lines) else ""
    raise InvalidInput(
        "config",
        line[:60],
        f"cannot be read as a shell script: line {found[1]}: {found[2]}; check its quotes and brackets",
    )


@lru_cache(maxsize=1)
def _shfmt() -> str:
    """Return the path of the program shfmt: next to this Python, where its wheel installs it, or on ``PATH``."""
    found = shutil.which("shfmt", path=str(Path(sys.executable).parent)) or shutil.which("shfmt")
    if found is None:
        raise RuntimeError("shfmt reads shell scripts and is not installed: pip install shfmt-py")
    return found


# ---------------------------------------------------------------- whole numbers of 64 bits
_OPERATORS: Mapping[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    ",": lambda a, b: b,
    "&&": lambda a, b: bool(a and b),
    "||": lambda a, b: bool(a or b),
    "**": operator.pow,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "/": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),  # rounded to zero, as C does
    "%": lambda a, b: a - b * _OPERATORS["/"](a, b),
}


def whole_number(text: str) -> int | None:
    """Return the decimal whole number in a text; None for any other text.

    For a number with a leading zero the result is None, because the shell would read it as octal.
    """
    plain = text.strip()
    return int(plain) if re.fullmatch(r"-?(0|[1-9]\d{0,17})", plain) else None


def binary(left: int, sign: str, right: int) -> int | None:
    """Return the result of a binary operator of shell arithmetic, such as ``7 % 2``; None if there is no result.

    There is no result if bash stops with an error, if the number exceeds 64 bits, or if this reader does not support
    the operator.
    """
    stops = (sign in "/%" and right == 0) or (sign in ("**", "<<", ">>") and not 0 <= right < 63)
    if sign not in _OPERATORS or stops:
        return None
    value = int(_OPERATORS[sign](left, right))
    return value if -(2**63) < value < 2**63 else None


# ---------------------------------------------------------------- values with marks
_DEEPEST = 20
"""Maximum depth of defaults inside defaults (``${A:-${B:-1}}``)."""

_MOST_CHARACTERS = 200_000
_MOST_ELEMENTS = 10_000
"""Most elements to which a word or an array may expand. A script that doubles a variable in every line would otherwise
fill the memory."""

_MAYBE = re.compile("\1[^\1]*\1")
_REPEATED = re.compile(r"(\x01[^\x01]*\x01)(?:\s*\x01[^\x01]*\x01)+")
_BRACES = re.compile(r"\{[^{}\s]*(?:,|\.\.)[^{}\s]*\}")
_RANGE = re.compile(r"\{(\d{1,5})\.\.(\d{1,5})\}")
_GLOB = re.compile(r"[*?\[\\]")

Elements = list[str]


def unknown(written: str) -> str:
    """Return a text between two marks, which say that its value is only known when the script runs."""
    return f"\0{plain(written)}\0"


def _maybe(text: str) -> str:
    """Return a text with the mark that it may be there or not."""
    return "\1" + plain(text).replace("\1", "") + "\1"


def is_known(text: str) -> bool:
    """Return True if a text has no marks, which means that all of its parts are known before the script runs."""
    return "\0" not in text and "\1" not in text


def plain(text: str) -> str:
    """Return a text without the marks for unknown values, so that people can read it.

    Parts that may be missing when the script runs are removed.
    """
    return _MAYBE.sub("", text).replace("\0", "")


def merged(name: str, values: Sequence[Elements | None]) -> Elements | None:
    """Return the value of a variable after an ``if`` or ``case`` whose condition is only known when the script runs.

    Args:
        name: The variable's name.
        values: The variable's value after each branch; None: the branch leaves the variable unset.

    Returns:
        The value itself if it is the same after all branches. Otherwise the part that all values share, with marks in
        place of the parts that differ.
    """
    first = values[0]
    if all(value == first for value in values):
        return first
    ways = [value or [] for value in values]
    if all(len(way) <= 1 for way in ways):
        return [_merged_text(name, ["".join(way) for way in ways])]
    shortest = min(ways, key=len)
    if all(way[: len(shortest)] == shortest for way in ways):
        rest = " ".join(plain(word) for way in ways for word in way[len(shortest) :])
        return [*_without_last_maybe(shortest), _maybe(rest)]
    return [unknown(f"${{{name}[@]}}")]


def _without_last_maybe(elements: Elements) -> Elements:
    return elements[:-1] if elements and _MAYBE.fullmatch(elements[-1]) else elements


def _merged_text(name: str, texts: Sequence[str]) -> str:
    shortest = min(texts, key=len)
    rests = [text[len(shortest) :] for text in texts if text.startswith(shortest)]
    if len(rests) == len(texts) and all(_adds_words(shortest, rest) for rest in rests):
        return _REPEATED.sub(r"\1", shortest + _maybe(" ".join(rest.strip() for rest in rests if rest)))
    return unknown(f"${name}")


def _adds_words(before: str, rest: str) -> bool:
    """Return True if ``rest`` adds only whole flags to the text ``before``."""
    return not rest or (rest.lstrip().startswith(("-", "\1")) and (not before or rest[0].isspace() or rest[0] == "\1"))


@dataclass(slots=True)
class _Words:
    """The arguments that a word of a script expands to, built piece by piece."""

    splits: bool
    _done: list[str] = field(default_factory=list)
    _open: str | None = None

    def add(self, text: str) -> None:
        """Append text to the open argument. An empty quoted text opens an argument too."""
        self._open = (self._open or "") + text
        if len(self._open) > _MOST_CHARACTERS:
            raise InvalidInput(
                "config",
                plain(text)[:60],
                f"must expand to at most {_MOST_CHARACTERS} characters; shorten its variables",
            )

    def extend(self, elements: Elements, *, quoted: bool) -> None:
        """Append the elements of a variable. Each element begins a new argument."""
        for number, element in enumerate(elements):
            if number:
                self.end()
            if quoted or not self.splits:
                self.add(element)
                continue
            for part in re.split(r"(\x01[^\x01]*\x01|\x00[^\x00]*\x00|[ \t\n]+)", element):
                if part.isspace():
                    self.end()
                elif part:
                    self.add(part)

    def end(self) -> None:
        """End the open argument."""
        if self._open is not None:
            self._done.append(self._open)
        self._open = None

    def all(self) -> list[str]:
        """Return all arguments."""
        self.end()
        return self._done


@dataclass(slots=True)
class Scope:
    """The values of a shell script's variables at one point of the script, and methods that expand words with them."""

    values: dict[str, Elements] = field(default_factory=dict)
    """Elements of each variable. A plain variable has one element."""
    arguments: list[str] | None = None
    """Arguments of the function that is followed, with marks; None: the arguments of the script, which are unknown."""
    assigned: dict[str, None] = field(default_factory=dict)
    """Names of variables that a statement of the script sets, except loops."""
    exported: set[str] = field(default_factory=set)
    """Names of variables that the commands of the script find in their environment."""
    asked: set[str] = field(default_factory=set)
    """Names of variables whose value was used."""
    unset: dict[str, None] = field(default_factory=dict)
    """Names of variables that were used but are never set."""
    unknowns: dict[str, None] = field(default_factory=dict)
    """Expansions that are only known when the script runs, as they are written."""
    source: bytes = b""
    """Text of the script in UTF-8. The positions of nodes refer to it."""

    def assign(self, name: str, elements: Elements, *, append: bool = False, array: bool = False) -> None:
        """Set a variable of the script, or append to it, as an assignment in the script does.

        Args:
            name: The variable's name.
            elements: Its new elements; a plain variable has at most one.
            append: True: add to the old value as ``+=`` does, elements to an array and text to a plain variable.
            array: True: the value is an array. False: the value is a text. If the variable is an array already, the
                text replaces its first element.
        """
        old = self.values.get(name, [])
        if array:
            new = [*old, *elements] if append else elements
        else:  # of an array, its first element
            new = ["".join([*old[:1], *elements] if append else elements), *old[1:]]
        if len(new) > _MOST_ELEMENTS or sum(map(len, new)) > _MOST_CHARACTERS:
            raise InvalidInput(
                "config",
                name,
                f"is a variable that grows to more than {_MOST_CHARACTERS} characters; shorten its value",
            )
        self.values[name] = new

    def written(self, node: Node) -> str:
        """Return the text of a node of the syntax tree, exactly as it is written in the script."""
        return self.source[node["Pos"]["Offset"] : node["End"]["Offset"]].decode("utf-8", "replace")

    def unknown(self, node: Node) -> str:
        """Return the text of a node between two marks, which say that its value is only known when the script runs.

        The text is added to the list of unknown values, which the import reports.
        """
        written = self.written(node)
        self.unknowns[written] = None
        return unknown(written)

    # ---------------------------------------------------------------- words
    def fields(self, word: Node) -> list[str]:
        """Return the arguments that a shell word becomes after expansion and splitting: none, one, or several."""
        words = _Words(splits=True)
        for one in self._braces(word):
            self._parts(one["Parts"], words, _How())
            words.end()
        return words.all()

    def text(self, word: Node | None, *, unset_is_empty: bool = False, quoted: bool = False) -> str:
        """Return a word as one text after expansion, without splitting it, as in an assignment.

        Args:
            word: The word; None: the result is an empty text.
            unset_is_empty: True: variables that are not set are empty. False: they are marked as unknown.
            quoted: True: expand the word as if it were in double quotes, as the shell does in a here-document.
        """
        words = _Words(splits=False)
        self._parts(word["Parts"] if word else [], words, _How(quoted=quoted, unset_is_empty=unset_is_empty))
        return " ".join(words.all())

    def pattern(self, word: Node) -> str | None:
        """Return a shell pattern in the form of Python's ``fnmatch``; None if this is not possible.

        It is not possible if the pattern is only known when the script runs, or if this reader does not support one of
        its features.
        """
        made = ""
        for part in word["Parts"]:
            is_literal = part["Type"] == "Lit"
            if not is_literal and part["Type"] not in ("SglQuoted", "DblQuoted", "ParamExp", "ArithmExp"):
                return None
            text = part["Value"] if is_literal else self.text({"Parts": [part]}, unset_is_empty=True)
            is_unclear = _GLOB.search(text) if part["Type"] == "ParamExp" else is_literal and re.search(r"[\\\[]", text)
            if not is_known(text) or is_unclear:
                return None
            made += text if is_literal else re.sub(r"([*?\[])", r"[\1]", text)
        return made

    def _braces(self, word: Node) -> list[Node]:
        """Return the words that ``{1..4}`` or ``a{b,c}`` expands to."""
        parts = word["Parts"]
        if not any(part["Type"] == "Lit" and _BRACES.search(part["Value"]) for part in parts):
            return [word]
        texts = _braced(parts[0].get("Value", "")) if len(parts) == 1 else None
        if texts is None:
            return [{"Parts": [{"Type": "Known", "Value": self.unknown(word)}]}]
        return [{"Parts": [{"Type": "Lit", "Value": text}]} for text in texts if text]

    def _parts(self, parts: Iterable[Node], words: _Words, how: _How) -> None:
        if how.depth > _DEEPEST:
            raise InvalidInput(
                "config", "${...}", f"must not have more than {_DEEPEST} variables inside each other's ${{...}}"
            )
        for part in parts:
            self._part(part, words, how)

    def _part(self, part: Node, words: _Words, how: _How) -> None:
        match part["Type"]:
            case "Lit":
                words.add(_unescaped(part["Value"], quoted=how.quoted))
            case "Known":
                words.add(part["Value"])
            case "SglQuoted":
                escapes = part.get("Dollar") and "\\" in part.get("Value", "")
                words.add(self.unknown(part) if escapes else part.get("Value", ""))
            case "DblQuoted":
                inside = part.get("Parts", [])
                if not (len(inside) == 1 and _all_elements(inside[0])):  # an empty array is no argument
                    words.add("")
                self._parts(inside, words, replace(how, quoted=True))
            case "ParamExp":
                elements = self._parameter(part, how)
                if not how.quoted and "IFS" in self.values and elements and words.splits:
                    elements = None
                if elements is None and self.written(part).strip("${}") in self.unset:
                    elements = [unknown(self.written(part))]
                words.extend([self.unknown(part)] if elements is None else elements, quoted=how.quoted)
            case "ArithmExp":
                value = self.arithmetic(part["X"])
                words.add(self.unknown(part) if value is None else str(value))
            case _:
                words.add(self.unknown(part))

    # ---------------------------------------------------------------- parameters
    def _parameter(self, node: Node, how: _How) -> Elements | None:
        """Return the elements that ``${...}`` expands to; None if only a run can decide them."""
        name = node["Param"]["Value"]
        if node.get("Excl"):
            self.asked.add(name)
            target = " ".join(self.values.get(name, []))
            if not target.isidentifier() or any(key in node for key in ("Index", "Slice", "Repl", "Exp", "Length")):
                return None
            name = target
        index = self._index(node.get("Index"))
        is_all = index in ("@", "*") or name in ("@", "*")
        elements = self._elements(name, index)
        if name == "#" or (node.get("Length") and is_all):
            return None if elements is None or not all(map(is_known, elements)) else [str(len(elements))]
        if node.get("Length"):
            return [str(len(elements[0]))] if elements and is_known(elements[0]) else None
        if "Slice" in node:
            return self._slice(node["Slice"], elements, is_all)
        if "Repl" in node:
            return self._replaced(node["Repl"], elements)
        if "Exp" in node:
            return self._by_operator(name, node["Exp"], elements, how)
        if elements is None:
            return self._never_set(name, index, how)
        if how.quoted and "*" in (index, name):
            return None if "IFS" in self.values else [" ".join(elements)]
        return elements

    def _never_set(self, name: str, index: str, how: _How) -> Elements | None:
        if not name.isidentifier():
            return None
        self.unset[name] = None
        return [""] if how.unset_is_empty and not index else None

    def _index(self, index: Node | None) -> str:
        """Return the index of an element: ``@``, ``*`` or a number; empty: there is no index; ``?``: it is unknown."""
        if index is None:
            return ""
        if index["Type"] == "Word" and self.written(index) in ("@", "*"):
            return self.written(index)
        value = self.arithmetic(index)
        return "?" if value is None else str(value)

    def _elements(self, name: str, index: str) -> Elements | None:
        """Return one element or all elements of a variable; None if the variable is not set or unknown."""
        if name in ("@", "*", "#"):
            return self.arguments
        if name.isdecimal():
            at = int(name[:4])
            if self.arguments is None or at == 0 or not all(map(is_known, self.arguments[: at - 1])):
                return None  # an argument before it may be several
            return self.arguments[at - 1 : at] or [""]
        self.asked.add(name)
        values = self.values.get(name)
        if values is None or index in ("@", "*"):
            return values
        if not index:
            return values[:1] or [""]
        if index == "?" or any("\1" in value or re.match(r"\0\$\{\w+\[@\]\}", value) for value in values):
            return None
        at = int(index)
        return [values[at]] if -len(values) <= at < len(values) else [""] if at >= 0 else None

    def _slice(self, cut: Node, elements: Elements | None, is_all: bool) -> Elements | None:
        start = self.arithmetic(cut["Offset"]) if cut.get("Offset") else 0
        length = self.arithmetic(cut["Length"]) if cut.get("Length") else 10**9
        if elements is None or is_all or start is None or length is None or length < 0:
            return None
        text = elements[0]
        if not is_known(text) or abs(start) > len(text):
            return None
        start = start if start >= 0 else len(text) + start
        return [text[start : start + length]]

    def _replaced(self, change: Node, elements: Elements | None) -> Elements | None:
        old = self.pattern(change["Orig"]) if change.get("Orig") else None
        new = self.text(change.get("With"))
        if elements is None or not old or _GLOB.search(old) or old[0] in "#%" or re.search(r"[&\\]", new):
            return None
        if not all(map(is_known, [*elements, new])):
            return None
        return [element.replace(old, new, -1 if change.get("All") else 1) for element in elements]

    def _by_operator(self, name: str, exp: Node, elements: Elements | None, how: _How) -> Elements | None:
        sign, word = exp["Op"], exp.get("Word")
        if sign in ("#", "##", "%", "%%"):
            pattern = self.pattern(word) if word else None
            if elements is None or pattern is None or not all(map(is_known, elements)):
                return None
            return [_stripped(element, pattern, sign) for element in elements]
        if sign in ("?", ":?"):
            return self._never_set(name, "", how) if elements is None else elements
        if sign not in ("-", ":-", "=", ":=", "+", ":+"):
            return None
        if elements is not None and ":" in sign and not all(map(is_known, elements)):
            return None if not any(map(plain, elements)) or sign == ":+" else elements
        is_set = elements is not None and (any(elements) if ":" in sign else bool(elements))
        if is_set != sign.endswith("+"):
            return elements if is_set else []
        made = self._default(word, how)
        if sign.endswith("="):
            self.assign(name, [" ".join(made)])
        return made

    def _default(self, word: Node | None, how: _How) -> Elements:
        if word is None:
            return [""] if how.quoted else []
        words = _Words(splits=not how.quoted)
        self._parts(word["Parts"], words, replace(how, depth=how.depth + 1))
        return words.all() or ([""] if how.quoted else [])

    # ---------------------------------------------------------------- arithmetic
    def arithmetic(self, node: Node) -> int | None:
        """Evaluate an arithmetic expression, and set the variables that the expression assigns.

        The result is None if the value is only known when the script runs.
        """
        match node["Type"]:
            case "Word":
                return self._number(node)
            case "ParenArithm":
                return self.arithmetic(node["X"])
            case "UnaryArithm" if node["Op"] in ("++", "--"):
                return self._counted(node)
            case "UnaryArithm" if node["Op"] in ("-", "+", "!"):
                value = self.arithmetic(node["X"])
                return None if value is None else {"-": -value, "+": value, "!": int(not value)}[node["Op"]]
            case "UnaryArithm":
                self.arithmetic(node["X"])
                return None
            case "BinaryArithm":
                return self._binary(node)
            case _:
                return None

    def _number(self, word: Node) -> int | None:
        written = "".join(part.get("Value", "$") for part in word["Parts"] if part["Type"] == "Lit")
        if len(word["Parts"]) == 1 and written.isidentifier():
            self.asked.add(written)
            if written not in self.values:
                self.unset[written] = None
                return None
            return whole_number("".join(self.values[written][:1]) or "0")
        return whole_number(self.text(word))

    def _target(self, node: Node) -> str | None:
        name = node["X"]["Parts"][0].get("Value", "") if node["X"]["Type"] == "Word" else ""
        return name if name.isidentifier() and len(node["X"]["Parts"]) == 1 else None

    def _set(self, name: str, value: int | None) -> None:
        self.assign(name, [unknown(f"${name}") if value is None else str(value)])

    def _counted(self, node: Node) -> int | None:
        name, old = self._target(node), self.arithmetic(node["X"])
        if name is None:
            return None
        new = None if old is None else old + (1 if node["Op"] == "++" else -1)
        self._set(name, new)
        return old if node.get("Post") else new

    def _binary(self, node: Node) -> int | None:
        sign = node["Op"]
        if sign.endswith("=") and sign not in ("==", "!=", "<=", ">="):
            name = self._target(node)
            value = self.arithmetic(node["Y"])
            if name is None:
                return None
            if sign != "=":
                old = self.arithmetic(node["X"])
                value = None if old is None or value is None else binary(old, sign[:-1], value)
            self._set(name, value)
            return value
        left = self.arithmetic(node["X"])
        if sign in ("&&", "||", "?") and left is None:
            for name in assigned_names(node["Y"]):
                self._set(name, None)
            return None
        if sign == "?":
            return self.arithmetic(node["Y"]["X" if left else "Y"])
        if sign in ("&&", "||") and bool(left) == (sign == "||"):
            return int(sign == "||")
        right = self.arithmetic(node["Y"])
        return None if left is None or right is None else binary(left, sign, right)


@dataclass(frozen=True, slots=True)
class _How:
    """The context of an expansion, such as quotes around it."""

    quoted: bool = False
    unset_is_empty: bool = False
    depth: int = 0


def _all_elements(part: Node) -> bool:
    """Return True if a part of a word is ``${NAME[@]}`` or ``$@``."""
    if part["Type"] != "ParamExp" or any(key in part for key in ("Exp", "Length", "Slice", "Repl")):
        return False
    index = part.get("Index", {}).get("Parts", [{}])[0].get("Value")
    return bool(index == "@" or part["Param"]["Value"] == "@")


def _braced(text: str) -> list[str] | None:
    """Return the texts that a brace expression expands to; None if it is not supported here."""
    found = _BRACES.search(text)
    if found is None or text.count("{") != 1 or "\\" in text:
        return None
    if counted := _RANGE.fullmatch(found[0]):
        first, last = int(counted[1]), int(counted[2])
        if counted[1] != str(first) or counted[2] != str(last) or abs(last - first) >= _MOST_ELEMENTS:
            return None
        step = 1 if last >= first else -1
        inside = [str(number) for number in range(first, last + step, step)]
    elif ".." in found[0]:
        return None
    else:
        inside = found[0][1:-1].split(",")
    return [text[: found.start()] + one + text[found.end() :] for one in inside]


def _unescaped(text: str, *, quoted: bool) -> str:
    """Return a text without the backslashes that quote characters."""
    pattern = r'\\(\n|["$`\\])' if quoted else r"\\(\n|.)"
    return re.sub(pattern, lambda found: found[1].strip("\n"), text, flags=re.DOTALL)


def _stripped(text: str, pattern: str, sign: str) -> str:
    """Return a text without the shortest or longest prefix or suffix that matches a pattern."""
    lengths = range(len(text) + 1) if len(sign) == 1 else range(len(text), -1, -1)
    for length in lengths if len(text) <= 4096 else ():
        part = text[:length] if sign[0] == "#" else text[len(text) - length :]
        if fnmatchcase(part, pattern):
            return text[length:] if sign[0] == "#" else text[: len(text) - length]
    return text


def assigned_names(node: Node) -> Iterator[str]:
    """Yield the names of the variables that a part of a script may set."""
    for one in nodes(node):
        is_assignment = "Name" in one and any(key in one for key in ("Value", "Array", "Index", "Naked"))
        if is_assignment or one.get("Type") == "WordIter":
            yield one["Name"]["Value"]
        elif one.get("Type") in ("BinaryArithm", "UnaryArithm") and one["X"].get("Type") == "Word":
            name = one["X"]["Parts"][0].get("Value", "")
            if name.isidentifier() and (one["Op"].endswith("=") or one["Op"] in ("++", "--")):
                yield name
        elif one.get("Type") == "ParamExp" and one.get("Exp", {}).get("Op") in ("=", ":="):
            yield one["Param"]["Value"]


def nodes(node: object) -> Iterator[Node]:
    """Yield a node of the syntax tree and all of its descendants."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield one
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)
