"""Tokens of a shell script: words as they are written, operators, arrays and here-documents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

__all__ = ["Token", "TokenKind", "end_of_quote", "tokens"]

_OPERATORS = ("&>>", "<<<", ";;", "&&", "||", ">>", "<<", "&>", ">&", "<&", "\n", ";", "&", "|", "<", ">", "(", ")")
_PLAIN = re.compile(r"""[^\\$`"' \t\n;&|<>()]+""")
"""Characters of a word that mean themselves."""

_PLAIN_INSIDE = re.compile(r"""[^\\$`"'()}]+""")
"""Characters that neither open nor close anything inside quotes and expansions."""

_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=")
_CLOSERS = {"'": "'", '"': '"', "`": "`", "$((": "))", "$(": ")", "${": "}"}


class TokenKind(Enum):
    """What a token is."""

    WORD = "word"
    OPERATOR = "operator"
    ARRAY = "array"  # NAME=( ... ) or NAME+=( ... ); the text is that before the parenthesis
    DOCUMENT = "document"  # lines that << gives a command to read


@dataclass(frozen=True, slots=True)
class Token:
    """A word, an operator, an array that is assigned, or a here-document.

    Attributes:
        text: As it is written, with quotes and dollars.
        words: Elements of an array, as they are written.
    """

    kind: TokenKind
    text: str
    words: tuple[str, ...] = ()


def tokens(text: str) -> Iterator[Token]:
    """The tokens of a script; comments and continued lines are gone. Any text has some."""
    return _Lexer(text.replace("\r\n", "\n")).tokens()


def end_of_quote(text: str, start: int) -> int:
    """Where a quote or an expansion ends that starts there: behind its closer, or the end of the text.

    It looks at each character once, however deep quotes and expansions lie in each other.
    """
    opener = _opener(text, start)
    closers = [_CLOSERS[opener]]
    at = start + len(opener)
    while at < len(text) and closers:
        at = _step(text, at, closers)
    return min(at, len(text))


def _opener(text: str, at: int, inside: str = "") -> str:
    """What opens a quote or an expansion there; empty: nothing does."""
    for opener in ("$((", "$(", "${", "`", '"', "'"):
        if text.startswith(opener, at):
            literal = inside == '"' and opener in ("'", '"')
            return "" if literal else opener
    return ""


def _step(text: str, at: int, closers: list[str]) -> int:
    """Read one character or opener inside what the innermost closer ends."""
    inside = closers[-1]
    if plain := _PLAIN_INSIDE.match(text, at):
        return plain.end()
    if text[at] == "\\" and inside != "'":
        return at + 2
    if text.startswith(inside, at):
        closers.pop()
        return at + len(inside)
    if inside == "'":
        return at + 1
    opener = _opener(text, at, inside)
    if not opener and text[at] == "(" and inside in (")", "))"):
        closers.append(")")
    elif opener:
        closers.append(_CLOSERS[opener])
    return at + max(1, len(opener))


class _Lexer:
    """Goes through a text once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._documents: list[str] = []  # delimiters whose lines start after this one

    def tokens(self) -> Iterator[Token]:
        while self._skip_blanks():
            operator = self._operator()
            if operator == "<<":
                self._document_comes()
            elif operator:
                yield Token(TokenKind.OPERATOR, operator)
                if operator == "\n":
                    yield from self._read_documents()
            else:
                token = self._word_or_array()
                if not (token.text.isdecimal() and self._text.startswith(("<", ">"), self._at)):  # 2>log
                    yield token

    def _skip_blanks(self) -> bool:
        """Whether anything follows blanks, continued lines and a comment."""
        while self._at < len(self._text):
            if self._text[self._at] in " \t":
                self._at += 1
            elif self._text.startswith("\\\n", self._at):
                self._at += 2
            elif self._text[self._at] == "#":
                self._at = self._end_of_line()
            else:
                return True
        return False

    def _end_of_line(self) -> int:
        end = self._text.find("\n", self._at)
        return len(self._text) if end < 0 else end

    def _operator(self) -> str:
        for operator in _OPERATORS:
            if self._text.startswith(operator, self._at):
                self._at += len(operator)
                return operator
        return ""

    def _document_comes(self) -> None:
        if self._text.startswith("-", self._at):
            self._at += 1
        if self._skip_blanks():
            self._documents.append(self._word().strip("'\""))

    def _read_documents(self) -> Iterator[Token]:
        for delimiter in self._documents:
            lines = []
            while self._at < len(self._text):
                end = self._end_of_line()
                line = self._text[self._at : end]
                self._at = min(end + 1, len(self._text))
                if line.strip() == delimiter:
                    break
                lines.append(line)
            yield Token(TokenKind.DOCUMENT, "\n".join(lines))
        self._documents = []

    def _word_or_array(self) -> Token:
        word = self._word()
        if _ARRAY.fullmatch(word) and self._text.startswith("(", self._at):
            self._at += 1
            return Token(TokenKind.ARRAY, word, tuple(self._elements()))
        return Token(TokenKind.WORD, word)

    def _elements(self) -> Iterator[str]:
        while self._skip_blanks():
            operator = self._operator()
            if operator == ")":
                return
            if not operator:
                yield self._word()

    def _word(self) -> str:
        """Up to a blank or an operator; continued lines inside it are joined."""
        parts = []
        while self._at < len(self._text):
            start = self._at
            if plain := _PLAIN.match(self._text, start):
                self._at = plain.end()
            elif self._text.startswith("\\\n", start):
                self._at += 2
                continue
            elif self._text[start] == "\\":
                self._at = min(start + 2, len(self._text))
            elif _opener(self._text, start):
                self._at = end_of_quote(self._text, start)
            elif self._text[start] == "$":
                self._at += 1
            else:
                break
            parts.append(self._text[start : self._at])
        return "".join(parts)
