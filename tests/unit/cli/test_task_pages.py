"""The pages of docs that follow a user through a task: what they type ends well, and prints what they show."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.unit.cli.command_line import CommandLine

DOCS = Path(__file__).parents[3] / "docs"

PAGES = ("from-megatron.md", "from-torchtitan.md", "from-your-own-loop.md", "from-config-json.md")

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


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_a_task_is_short_and_is_reached_from_the_guide(name: str) -> None:
    assert len((DOCS / name).read_text().splitlines()) <= 110
    assert f"]({name})" in (DOCS / "guide.md").read_text()
