"""The generated pages, by the names of their files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from documentation.menu import REFERENCE
from documentation.reference.catalog import accelerators_page, models_page, networks_page, stacks_page
from documentation.reference.commands import commands_page, exit_codes_page
from documentation.reference.descriptions import descriptions_page
from documentation.reference.events import events_page
from documentation.reference.exports import exports_page
from documentation.reference.house import house_picture
from documentation.reference.layouts import layouts_page
from documentation.reference.markdown import head, table
from documentation.reference.python import package_pages, python_page
from documentation.reference.registrations import registrations_page
from documentation.reference.rest import rest_objects_page, rest_page
from documentation.reference.settings import settings_page

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference"
HOUSE = FOLDER.parent / "images" / "house.svg"
"""File of the picture on the page for contributors."""


def _given(text: str) -> str:
    return text


PAGES: Mapping[str, Callable[[], str]] = {
    "commands": commands_page,
    "exit-codes": exit_codes_page,
    "settings": settings_page,
    "registrations": registrations_page,
    "layouts": layouts_page,
    "rest": rest_page,
    "rest-objects": rest_objects_page,
    "events": events_page,
    "descriptions": descriptions_page,
    "models": models_page,
    "accelerators": accelerators_page,
    "networks": networks_page,
    "stacks": stacks_page,
    "exports": exports_page,
    "python": python_page,
    **{name: partial(_given, text) for name, text in package_pages().items()},
}
"""Functions that generate pages within seconds, by the names of their files."""


def write_pages(folder: Path = FOLDER) -> None:
    """Write every generated page, their index, and the picture of the packages."""
    folder.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (folder / f"{name}.md").write_text(page(), encoding="utf-8")
    (folder / "index.md").write_text(index_page(folder), encoding="utf-8")
    HOUSE.write_text(house_picture(), encoding="utf-8")


def index_page(folder: Path = FOLDER) -> str:
    """Return the Markdown page that lists all other pages of the reference, each with its first sentence."""
    rows = []
    for name in REFERENCE[1:]:
        path = folder / f"{name}.md"
        if path.exists():
            title, summary = title_and_summary(path.read_text(encoding="utf-8"))
            rows.append((f"[{title}]({name}.md)", summary))
    summary = "Facts to look up: commands, fields, values and tables, all generated from the code."
    return f"{head('Reference', summary)}\n{table(('page', 'you find'), rows)}"


def title_and_summary(text: str) -> tuple[str, str]:
    """Return the title of a Markdown page and its first sentence, with links replaced by their texts."""
    title, _, rest = text.removeprefix("# ").partition("\n")
    first = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", " ".join(rest.strip().partition("\n\n")[0].split()))
    return title, re.split(r"(?<=[.!?]) ", first)[0]
