"""The one style sheet of the pages, put together of a file per concern: browsers ask once, readers find the place."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

_SHEETS = Path(__file__).parent / "css"

_ORDER = (
    *("tokens", "elements", "frame", "controls", "words", "tables", "charts", "pictures", "states", "plain"),
    *("upkeep", "answer", "trial", "explore", "timeline", "home", "new", "compare", "sweep"),
    *("narrow",),
)
"""What comes later says more: elements before components, components before pages, narrow screens last."""


@cache
def style_sheet() -> str:
    """All of them, in order."""
    return "\n".join((_SHEETS / f"{name}.css").read_text() for name in _ORDER)


@cache
def style_version() -> str:
    """Changes with the text, so that a browser may keep a sheet for as long as it likes."""
    return hashlib.sha256(style_sheet().encode()).hexdigest()[:12]
