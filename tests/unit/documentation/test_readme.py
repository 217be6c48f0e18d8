"""The README: its length, the things that it names, and the errors that it tells."""

from __future__ import annotations

import re
from pathlib import Path

import typer

from autotuner.cli.main import app

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "README.md").read_text()


def test_the_readme_fits_one_screen_and_the_files_and_targets_that_it_names_exist() -> None:
    assert len(TEXT.splitlines()) <= 150
    assert len(re.sub(r"<!--.*?-->", "", TEXT).split()) <= 1200
    links = re.findall(r"\]\(([^)#:]+)", TEXT)
    pictures = re.findall(r'(?:src|srcset)="([^"]+)"', TEXT)
    assert pictures
    assert [path for path in (*links, *pictures) if not (ROOT / path).exists()] == []
    assert all((ROOT / path).stat().st_size < 250_000 for path in pictures)
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"make ([a-z]+)", TEXT)) <= targets


def test_commands_and_options_that_the_readme_names_exist() -> None:
    root = typer.main.get_command(app)
    named = re.findall(r"`autotuner ([^`]+)`", TEXT)
    assert len(named) >= 10
    for words in (text.split() for text in named):
        command = root
        while words and not words[0].startswith("-"):
            command = command.commands[words.pop(0)]  # type: ignore[attr-defined]  # a group, as the words say
        known = {flag for parameter in command.params for flag in parameter.opts}
        assert set(words) <= known


def test_the_errors_in_the_readme_are_those_of_the_page_of_accuracy() -> None:
    known, unseen = (ROOT / "docs/reference/accuracy.md").read_text().split("The same with whole sources left out:")
    rows = re.findall(r"^\| .* \| ([\d,]+) \| ([\d.]+) % \| ([\d.]+) % \|$", TEXT, re.MULTILINE)
    assert len(rows) >= 4
    for number, here, elsewhere in rows:
        plain = number.replace(",", "")
        assert f"| {plain} | {here}% |" in known
        assert f"| {plain} | {elsewhere}% |" in unseen
