"""The README and the pages that follow a user through a task: what they type ends well and prints what they show."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from autotuner.cli.main import app
from tests.unit.cli.command_line import CommandLine

DOCS = Path(__file__).parents[3] / "docs" / "how-to"

PAGES = (
    "read-a-megatron-script.md",
    "import-from-torchtitan.md",
    "import-from-your-own-loop.md",
    "start-from-a-config-json.md",
)

_FILE = re.compile(r"^`(\S+)`:\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TYPED = re.compile(r"^```sh\n(.*?)^```$(?:\n```\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
_OF_A_TABLE = re.compile(r"\s*(#|–|now\*? |\d+[*=]?\s|now → |\d+ +of )")
"""Rows move where constants are fitted again; what they are told by is tested with the tables."""


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_has_its_reader_type_prints_what_it_shows(
    cli: CommandLine, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(cli.directory)
    text = (DOCS / name).read_text()
    for path, content in _FILE.findall(text):
        (cli.directory / path).write_text(content)
    for typed, shown in _TYPED.findall(text):
        printed = "".join(run(cli, line, monkeypatch) for line in typed.replace("\\\n", " ").splitlines())
        assert missing(shown, printed) == [] or "autotuner sweep" in typed


def run(cli: CommandLine, line: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """All that a line of a page prints; a sweep takes minutes, and is tested with its trainer."""
    words = shlex.split(line)
    if words[0] == "export":
        name, _, value = words[1].partition("=")
        monkeypatch.setenv(name, value)
        return ""
    assert words[0] == "autotuner", line
    if words[1] == "sweep":
        return ""
    if ">" in words:
        words = words[: words.index(">")]
    return cli.run(*words[1:]) + cli.error


def missing(shown: str, printed: str) -> list[str]:
    """Lines that a page shows and that were not printed, but for rows of tables, and what … stands for."""
    lines = [plain(line) for line in printed.splitlines()]
    wanted = [line for line in shown.splitlines() if not _OF_A_TABLE.match(line)]
    return [line for line in wanted if not any(matches(plain(line), one) for one in lines)]


def plain(line: str) -> str:
    """Without what differs from release to release: blanks, and how many layouts are legal."""
    return re.sub(r"\d{1,3}(,\d{3})+", "#", " ".join(line.split()))


def matches(shown: str, printed: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, shown.split("…"))), printed) is not None


ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "README.md").read_text()

_TYPED_ALONE = re.compile(r"^```sh\n(autotuner .*?)^```$\n```\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_readme_fits_one_screen_and_the_files_and_targets_that_it_names_exist() -> None:
    assert len(TEXT.splitlines()) <= 150
    assert len(TEXT.split()) <= 1200
    links = re.findall(r"\]\(([^)#:]+)", TEXT)
    pictures = re.findall(r'(?:src|srcset)="([^"]+)"', TEXT)
    assert pictures
    assert [path for path in (*links, *pictures) if not (ROOT / path).exists()] == []
    assert all((ROOT / path).stat().st_size < 250_000 for path in pictures)
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"make ([a-z]+)", TEXT)) <= targets


def test_a_command_of_the_readme_prints_what_stands_below_it(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = _TYPED_ALONE.findall(TEXT)
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


def test_the_errors_that_the_readme_tells_are_those_of_the_page_of_accuracy() -> None:
    known, unseen = (ROOT / "docs/reference/accuracy.md").read_text().split("The same with whole sources left out:")
    rows = re.findall(r"^\| .* \| ([\d,]+) \| ([\d.]+) % \| ([\d.]+) % \|$", TEXT, re.MULTILINE)
    assert len(rows) >= 4
    for number, here, elsewhere in rows:
        plain = number.replace(",", "")
        assert f"| {plain} | {here}% |" in known
        assert f"| {plain} | {elsewhere}% |" in unseen
