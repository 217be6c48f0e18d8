"""Page: a window on a list."""

from __future__ import annotations

from dataclasses import dataclass

COUNTED_BEHIND = 10_000
"""What a list counts behind a page at most: counting what a team stores in years takes longer than reading a page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A window on a list: skip ``offset``, then return at most ``limit``.

    A list also says how many match in all; where more than ``COUNTED_BEHIND`` come behind the page, it counts so many.
    """

    limit: int = 50
    offset: int = 0
