"""The pages of docs/: what they link and name exists. `make docs` checks links and anchors inside the site."""

from __future__ import annotations

import re

from documentation.words import words_by_folder
from tests.unit.documentation.blocks import ROOT


def test_the_pages_that_people_wrote_have_at_most_45_000_words() -> None:
    assert sum(words for folder, (_, words) in words_by_folder().items() if folder != "reference") <= 45_000


def test_the_index_of_the_how_to_guides_and_that_of_the_tutorials_list_every_page_once() -> None:
    for folder in ("how-to", "tutorials"):
        listed = re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs" / folder / "index.md").read_text())
        pages = [page.name for page in (ROOT / "docs" / folder).glob("*.md") if page.name != "index.md"]
        assert sorted(listed) == sorted(pages), folder


def test_every_link_between_pages_leads_somewhere() -> None:
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")):
        targets = re.findall(r"\]\(([^)#:]+)[^):]*\)", page.read_text())
        assert [target for target in targets if not (page.parent / target).exists()] == [], page.name


def test_every_test_that_a_page_names_exists() -> None:
    named = set(
        re.findall(r"`(tests/[\w/]+\.py)`", "".join(page.read_text() for page in (ROOT / "docs").rglob("*.md")))
    )
    assert len(named) >= 5
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_every_make_target_is_explained_by_make_help() -> None:
    lines = (ROOT / "Makefile").read_text().splitlines()
    phony = next(line for line in lines if line.startswith(".PHONY:")).split()[1:]
    explained = {line.split(":")[0] for line in lines if ":" in line and "## " in line}
    assert sorted(set(phony) - explained - {"browser"}) == []  # a step of `test`, not a target to call


def test_every_decision_is_one_page() -> None:
    for page in (ROOT / "docs/decisions").glob("*.md"):
        assert len(page.read_text().splitlines()) <= 60, page.name
