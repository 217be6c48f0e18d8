"""Conditions of a shell, ``[ ... ]`` and ``[[ ... ]]``, where the text alone decides them."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from autotuner.export.shell.arithmetic import whole_number
from autotuner.export.shell.expand import Scope, is_known
from autotuner.export.shell.syntax import Node

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
