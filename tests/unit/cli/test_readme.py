"""The README is short, what it shows is what the commands print, and what it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from autotuner.cli.main import app
from tests.unit.cli.command_line import CommandLine
from tests.unit.cli.test_task_pages import missing, run

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "README.md").read_text()

_TYPED = re.compile(r"^```sh\n(autotuner .*?)^```$\n```\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_readme_fits_one_screen() -> None:
    assert len(TEXT.splitlines()) <= 150
    assert len(TEXT.split()) <= 1200


def test_a_command_of_the_readme_prints_what_stands_below_it(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = _TYPED.findall(TEXT)
    assert shown
    for typed, printed in shown:
        told = run(cli, typed.strip(), monkeypatch)
        assert missing(printed, told) == []
        ranks = [line.split()[0] for line in printed.splitlines() if re.match(r"\s*(\d+\*?|–) ", line)]
        assert [line.split()[0] for line in told.splitlines() if re.match(r"\s*(\d+\*?|–) .*\d %", line)] == ranks


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


def test_every_file_that_the_readme_links_or_shows_exists_and_pictures_are_small() -> None:
    links = re.findall(r"\]\(([^)#:]+)", TEXT)
    pictures = re.findall(r'(?:src|srcset)="([^"]+)"', TEXT)
    assert pictures
    assert [path for path in (*links, *pictures) if not (ROOT / path).exists()] == []
    assert all((ROOT / path).stat().st_size < 250_000 for path in pictures)


def test_every_make_target_of_the_readme_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"make ([a-z]+)", TEXT)) <= targets


def test_the_errors_that_the_readme_tells_are_those_of_the_page_of_accuracy() -> None:
    known, unseen = (ROOT / "docs/accuracy.md").read_text().split("The same with whole sources left out:")
    rows = re.findall(r"^\| .* \| ([\d,]+) \| ([\d.]+) % \| ([\d.]+) % \|$", TEXT, re.MULTILINE)
    assert len(rows) >= 4
    for number, here, elsewhere in rows:
        plain = number.replace(",", "")
        assert f"| {plain} | {here}% |" in known
        assert f"| {plain} | {elsewhere}% |" in unseen
