"""The fenced blocks of the documentation, and the reasons that stand above those that no test runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_REASON = re.compile(r"<!-- not run: (.+?) -->\s*\Z")
_CODE = re.compile(r"<!-- exit code: (\d+) -->\s*\Z")
_FILE = re.compile(r"`([\w./-]+)`[^`\n]*:\s*\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str
    reason: str
    """The reason why no test runs it; empty: a test does."""
    exit_code: int
    """The code with which its last command ends."""
    file: str
    """Name of the file whose content it is; empty: it is none."""
    shown: str
    """The output that stands directly below it."""
    is_output: bool
    """True if it is the output of the block above it."""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Return the README and the pages that people wrote."""
    written = [page for page in DOCS.rglob("*.md") if page.parent.name != "reference"]
    return [ROOT / "README.md", *sorted(written)]


def generated_pages() -> list[Path]:
    """Return the pages of the reference."""
    return sorted((DOCS / "reference").glob("*.md"))


def blocks_of(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in their order."""
    return list(_blocks(page, page.read_text(encoding="utf-8")))


def _blocks(page: Path, text: str) -> Iterator[Block]:
    found = list(_FENCE.finditer(text))
    is_output = False
    for place, fence in enumerate(found):
        above, language = text[: fence.start()], fence[1]
        following = found[place + 1] if place + 1 < len(found) else None
        has_output = (
            language in ("sh", "python")
            and following is not None
            and following[1] in ("", "text")
            and not text[fence.end() : following.start()].strip()
        )
        reason, code, file = _REASON.search(above), _CODE.search(above), _FILE.search(above)
        yield Block(
            page=page,
            line=above.count("\n") + 1,
            language=language,
            text=fence[2],
            reason=reason[1] if reason else "",
            exit_code=int(code[1]) if code else 0,
            file=file[1] if file else "",
            shown=following[2] if following is not None and has_output else "",
            is_output=is_output,
        )
        is_output = has_output
