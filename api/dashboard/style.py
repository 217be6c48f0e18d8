"""The style sheet of all pages, joined from its parts."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

_SHEETS = Path(__file__).parent / "css"

_ORDER = ("tokens", "base", "charts", "answer", "trial", "explore", "home", "new", "sweep", "narrow")
"""Order of the style sheets. Later ones take precedence: elements, then components, then pages, then rules for narrow
screens."""


@cache
def style_sheet() -> str:
    """Return the text of all style sheets of the dashboard, joined in the order in which they apply."""
    return "\n".join((_SHEETS / f"{name}.css").read_text() for name in _ORDER)


@cache
def style_version() -> str:
    """Return a hash of the style sheet. It is part of the sheet's address, so browsers may keep a version for ever."""
    return hashlib.sha256(style_sheet().encode()).hexdigest()[:12]
