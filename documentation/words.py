"""Counts the words that people wrote: ``python -m documentation.words`` prints the count for each folder of docs/.

Pages of ``docs/reference`` are left out because they are generated; so are examples and pictures.
"""

from __future__ import annotations

import re
from pathlib import Path

_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)

DOCS = Path(__file__).resolve().parent.parent / "docs"


def words_by_folder(docs: Path = DOCS) -> dict[str, tuple[int, int]]:
    """Return the number of pages and the number of words in each folder; pages directly in docs/ count under ""."""
    counts: dict[str, tuple[int, int]] = {}
    for page in sorted(docs.rglob("*.md")):
        folder = page.relative_to(docs).parts[0] if page.parent != docs else ""
        pages, words = counts.get(folder, (0, 0))
        counts[folder] = pages + 1, words + len(_COMMENT.sub("", page.read_text(encoding="utf-8")).split())
    return counts


def main() -> None:
    """Print the number of pages and words in each folder, and the total of the words written by hand."""
    counts = words_by_folder()
    for folder, (pages, words) in counts.items():
        note = "  generated, not counted" if folder == "reference" else ""
        print(f"docs/{folder:<12} {pages:>3} pages {words:>7,} words{note}")
    by_hand = sum(words for folder, (_, words) in counts.items() if folder != "reference")
    print(f"by hand {by_hand:>23,} words")


if __name__ == "__main__":
    main()
