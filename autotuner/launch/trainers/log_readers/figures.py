"""Numbers as log lines hold them: what can be read of any text, and which steps a figure is a mean over."""

from __future__ import annotations

import math
import re
from collections import deque

COUNT = r"[0-9]{1,15}"
"""A step or a rank; one with more digits than any run has steps is none."""

NUMBER = r"[-+]?(?:[0-9][0-9,]{0,20}\.?[0-9]{0,20}(?:[eE][-+]?[0-9]{1,4})?|nan|inf)"
"""Bounded, so that a line of many digits takes no longer to refuse than to read."""

_LONGEST = 4096
"""Characters of a line that are looked at; one of a step has a tenth of that."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def plain(line: str) -> str:
    """The line without what colours it on a terminal, cut off where it is longer than any line of a step."""
    return _COLOUR.sub("", line[:_LONGEST])


def number(text: str | None) -> float | None:
    """The value of what ``NUMBER`` matches, commas between thousands or not; None of anything else."""
    try:
        return None if text is None else float(text.replace(",", ""))
    except ValueError:
        return None


def num_bytes(amount: float | None, unit: int) -> int | None:
    """Whole bytes of an amount in a unit; None where it is no amount."""
    if amount is None or not math.isfinite(amount) or amount < 0:
        return None
    return round(amount * unit)


def labelled(line: str) -> dict[str, float]:
    """Numbers by their labels, of a line like ``| lm loss: 2.5E+00 | grad norm: 3.2 |``; the first of equal ones."""
    found: dict[str, float] = {}
    for part in line.split("|"):
        label, colon, text = part.rpartition(":")
        value = number(text.strip())
        if colon and value is not None:
            found.setdefault(label.strip(), value)
    return found


class Intervals:
    """Which steps lie between lines that come every so many steps, perhaps once per rank and not quite in order."""

    def __init__(self) -> None:
        self._latest: deque[int] = deque(maxlen=8)

    def num_steps(self, step: int) -> int:
        """Steps since the latest line of an earlier one, counted from none: at least 1."""
        before = max((seen for seen in self._latest if seen < step), default=0)
        if step not in self._latest:
            self._latest.append(step)
        return max(1, step - before)
