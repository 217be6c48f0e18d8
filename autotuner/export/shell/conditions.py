"""What a shell's conditions come to, where the text alone decides."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence

from autotuner.export.shell.expand import Scope, is_resolved

__all__ = ["holds"]

_ARGUMENT = re.compile(r"\$([1-9]\d?|\{[1-9]\d?\})")
"""An argument of the script, asked for so that it can be given a default: it is read as started without any."""

_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-lt": operator.lt,
    "-le": operator.le,
    "-gt": operator.gt,
    "-ge": operator.ge,
}


def holds(words: Sequence[str], scope: Scope) -> bool | None:
    """Whether a condition holds; None: only a run would tell (a file, a command, an argument of the script).

    A variable that nothing sets counts as empty, as in the shell, and so does an argument of the script where the
    condition asks whether it was given.

    Args:
        words: As they are written: ``[ ... ]``, ``[[ ... ]]``, ``test ...``, ``true``, ``false``, ``!`` before them.
        scope: What variables hold.
    """
    rest = list(words)
    negated = False
    while rest and rest[0] == "!":
        negated, rest = not negated, rest[1:]
    result = _bare(rest, scope)
    return result if result is None else result != negated


def _bare(words: list[str], scope: Scope) -> bool | None:
    if words in (["true"], [":"], ["false"]):
        return words != ["false"]
    closer = {"[": "]", "[[": "]]", "test": ""}.get(words[0] if words else "")
    if closer is None or (closer and words[-1] != closer):
        return None
    return _any(words[1 : len(words) - bool(closer)], scope)


def _any(words: list[str], scope: Scope) -> bool | None:
    """Alternatives, each of which is a list of conditions that hold together."""
    results = [_all(part, scope) for part in _parts(words, ("||", "-o"))]
    return True if True in results else None if None in results else False


def _all(words: list[str], scope: Scope) -> bool | None:
    results = [_one(part, scope) for part in _parts(words, ("&&", "-a"))]
    return False if False in results else None if None in results else True


def _parts(words: list[str], separators: tuple[str, ...]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word in separators:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _one(words: list[str], scope: Scope) -> bool | None:
    if words[:1] == ["!"]:
        inner = _one(words[1:], scope)
        return None if inner is None else not inner
    texts = [scope.text(word, unset_is_empty=True) for word in words]
    if _asks_for_emptiness(texts):
        texts = ["" if _ARGUMENT.fullmatch(text) else text for text in texts]
    if not all(is_resolved(text) for text in texts):
        return None
    if len(texts) == 1:
        return bool(texts[0])
    if len(texts) == 2:
        return {"-z": not texts[1], "-n": bool(texts[1]), "-v": texts[1] in scope.values}.get(texts[0])
    return _compared(*texts) if len(texts) == 3 else None


def _asks_for_emptiness(texts: Sequence[str]) -> bool:
    return texts[0] in ("-z", "-n") or (len(texts) == 3 and texts[1] in ("=", "==", "!=") and "" in texts[::2])


def _compared(left: str, relation: str, right: str) -> bool | None:
    if relation in ("=", "=="):
        return left == right if not any(c in right for c in "*?[") else None
    if relation == "!=":
        return left != right if not any(c in right for c in "*?[") else None
    if relation in _NUMBERS and _is_number(left) and _is_number(right):
        return _NUMBERS[relation](int(left), int(right))
    return None


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and len(text) < 19
