"""Normal: outputs without what changes from run to run, so that they can be recorded and compared.

Ids, secrets and content keys become numbers in the order in which they first appear, and keep them as long as the
``Normal`` lives: whether two outputs name the same sweep can still be read. Times, temporary folders, ports, versions
of software and what a wall clock measured become words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.metadata import version
from typing import Any

_TOKEN = re.compile(r"\bat_([a-z0-9]{10})_([A-Za-z0-9_-]{43}|…)")
"""A token's text: its id, and its secret or what stands for it."""

_NUMBERED: Mapping[str, re.Pattern[str]] = {
    "whsec": re.compile(r"\bwhsec_[A-Za-z0-9+/]{16,}={0,2}"),
    **{kind: re.compile(rf"\b{kind}-[a-z2-7]{{10}}\b") for kind in ("sw", "ck", "rt", "mg", "os", "dl", "au", "cm")},
    "test": re.compile(r"\btest-[0-9a-f]{10}\b"),
    "worker": re.compile(r"\b[0-9a-f]{6}-\d+-[0-9a-f]{6}\b"),
    "uuid": re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"),
    "hash": re.compile(r"(?<![.\w+-])(?=[0-9]*[a-f])[0-9a-f]{12,64}\b"),
}
"""What is numbered by its first appearance. The last are content keys, hosts and requests; none is a number."""

_WORDS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(\b(?:sw|os)-\d+-\d{4,}-)[0-9a-f]{8}\b"), r"\1SUFFIX"),  # the name of an attempt
    (
        re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?: ?(?:UTC|Z|CES?T|[+-]\d\d:?\d\d)\b)?"),
        "a time",
    ),
    (re.compile(r"(?<![\d:=])\d\d:\d\d:\d\d(?![\d:])"), "a time"),
    (re.compile(r"(127\.0\.0\.1|localhost|\[::1\]):\d{2,5}\b"), r"\1:PORT"),
    (re.compile(r"\btook \d+(?:\.\d+)? (?:ms|s|min|h)\b"), "took a while"),
    (re.compile(rf"\bautotuner {re.escape(version('parallelism-autotuner'))}"), "autotuner VERSION"),
)

_TIME_KEY = re.compile(r"(?:^|_)at$")

_VERSION_KEYS = frozenset({"version", "versions"})


class Normal:
    """Takes out of outputs what changes from run to run.

    Args:
        words: What stands for texts of this run, such as a temporary folder: ``{str(tmp_path): "DIR"}``.
        fleeting: Keys of documents whose values change from run to run, such as what a wall clock measured; the kind
            of each value is kept.
    """

    def __init__(self, words: Mapping[str, str] | None = None, fleeting: frozenset[str] = frozenset()) -> None:
        self._words = dict(words or {})
        self._fleeting = fleeting
        self._numbers: dict[str, dict[str, int]] = {}
        self._token_ids: dict[str, str] = {}

    def text(self, text: str) -> str:
        """The text with numbers and words for what changes."""
        self._learn(text)
        return self._replaced(text)

    def document(self, value: Any) -> Any:
        """The same of whatever JSON can hold: of its texts and keys, and of the values of keys that tell a time."""
        self._learn(json.dumps(value, ensure_ascii=False, default=str))
        return self._walked(value)

    def _walked(self, value: Any, key: str = "") -> Any:
        if value is None or isinstance(value, bool):
            return value
        if _TIME_KEY.search(key) and isinstance(value, (int, float, str)):
            return "a time"
        if key in _VERSION_KEYS and isinstance(value, str):
            return "a version"
        if key in self._fleeting and not isinstance(value, (dict, list)):
            return f"a {type(value).__name__}"
        if isinstance(value, dict):
            return {self._replaced(name): self._walked(one, name) for name, one in value.items()}
        if isinstance(value, list):
            return [self._walked(one, key) for one in value]
        return self._replaced(value) if isinstance(value, str) else value

    def _learn(self, text: str) -> None:
        """Remember the ids of tokens: alone they look like a word."""
        for found in _TOKEN.finditer(text):
            self._token_ids.setdefault(found[1], f"token-{self._number('token', found[1])}")

    def _replaced(self, text: str) -> str:
        for given, word in self._words.items():
            text = text.replace(given, word)
        text = _TOKEN.sub(lambda found: f"at_{self._token_ids[found[1]]}", text)
        for token_id, name in self._token_ids.items():
            text = text.replace(token_id, name)
        for kind, pattern in _NUMBERED.items():
            text = pattern.sub(partial(self._name, kind), text)
        for pattern, word in _WORDS:
            text = pattern.sub(word, text)
        today = datetime.now(UTC)
        for day in (today, today - timedelta(days=1)):  # a run may last past midnight; other days are constants
            text = text.replace(f"{day:%Y-%m-%d}", "a day")
        return text

    def _name(self, kind: str, found: re.Match[str]) -> str:
        return f"{kind}-{self._number(kind, found[0])}"

    def _number(self, kind: str, text: str) -> int:
        numbers = self._numbers.setdefault(kind, {})
        return numbers.setdefault(text, len(numbers) + 1)
