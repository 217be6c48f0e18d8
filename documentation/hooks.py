"""Hooks for MkDocs: a menu made from folders, links to files outside ``docs/``, and scripts as separate files."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.pages import Page

from documentation.menu import REFERENCE, SECTIONS, WIDE


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Set the menu of the site: the home page, and then every page of each folder."""
    docs = Path(config.docs_dir)
    home = "index.md" if (docs / "index.md").exists() else "README.md"
    menu: list[Any] = [{"Home": home}]
    menu += [{title: pages} for folder, title in SECTIONS.items() if (pages := _pages(docs, folder))]
    if moving := [page.name for page in sorted(docs.glob("*.md")) if page.name not in {home, "README.md"}]:
        menu.append({"Pages to be moved": moving})
    config.nav = menu
    return config


def _pages(docs: Path, folder: str) -> list[str]:
    """Return the pages of a folder, its index first."""
    order = REFERENCE if folder == "reference" else ("index",)
    rank = {f"{name}.md": place for place, name in enumerate(order)}
    pages = sorted((docs / folder).glob("*.md"), key=lambda page: (rank.get(page.name, len(rank)), page.name))
    return [f"{folder}/{page.name}" for page in pages]


_BOOSTS = {"tutorials": 2.0, "how-to": 2.0, "explanation": 1.0, "reference": 1.5, "decisions": 0.3}
"""Weights of pages in the search, by folder: most readers first want to do something, and then to look something up."""

_MINOR = ("reference/rest", "reference/commands", "reference/python", "reference/recipes", "reference/compatibility")
"""Prefixes of pages with hundreds of headings or rows, which would hide other pages in the search results."""


def _boost(uri: str) -> float:
    if uri.endswith("index.md"):
        return 0.2
    return 0.3 if uri.startswith(_MINOR) else _BOOSTS.get(uri.partition("/")[0], 1.0)


_LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)#:\s]+)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Replace links to files of the repository that are not part of the site by the names of the files.

    It also hides the side menus of wide pages, and sets the weight of the page in searches.
    """
    docs = Path(config.docs_dir)
    uri = page.file.src_uri
    page.meta.setdefault("search", {"boost": _boost(uri)})
    if uri == "index.md":
        page.meta.setdefault("hide", ["navigation", "toc"])
    if uri.removeprefix("reference/").removesuffix(".md") in WIDE:
        page.meta.setdefault("hide", ["toc"])

    def replacement(link: re.Match[str]) -> str:
        label, target = link.groups()
        path = Path(os.path.normpath(docs / Path(page.file.src_uri).parent / target))
        if path.is_relative_to(docs) or not path.exists():
            return link.group(0)
        name = f"`{path.relative_to(docs.parent)}`"
        return name if label.strip("`") in {name.strip("`"), path.name} else f"{label} ({name})"

    return _LINK.sub(replacement, _with_blank_lines(markdown))


_BLOCK = re.compile(r"\s*([*-] |\d+\. |\|)")
"""Pattern of the start of a list item or of a table row."""


def _with_blank_lines(markdown: str) -> str:
    """Put a blank line before each list and table, because Python-Markdown needs it and the pages on GitHub omit it."""
    lines: list[str] = []
    fenced = False
    for line in markdown.splitlines():
        before = lines[-1] if lines else ""
        if (
            _BLOCK.match(line)
            and before.strip()
            and not fenced
            and not before.startswith(" ")
            and not _BLOCK.match(before)
        ):
            lines.append("")
        fenced ^= line.lstrip().startswith("```")
        lines.append(line)
    return "\n".join(lines)


_INLINE = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def on_post_page(output: str, *, page: Page, config: MkDocsConfig) -> str:
    """Move each inline script of a page into a file.

    The Content-Security-Policy of the service, which also serves the site, forbids inline scripts.
    """
    root = "../" * page.file.dest_uri.count("/")

    def replacement(script: re.Match[str]) -> str:
        name = f"assets/javascripts/inline-{hashlib.sha256(script[1].encode()).hexdigest()[:12]}.js"
        path = Path(config.site_dir) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(script[1], encoding="utf-8")
        return f'<script src="{root}{name}"></script>'

    return _INLINE.sub(replacement, output)
