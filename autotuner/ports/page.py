"""Page: a window on a list."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Page"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A window on a list: skip ``offset``, then return at most ``limit``."""

    limit: int = 50
    offset: int = 0
