"""Everything that the documentation shows was run: commands, their outputs, Python, and files of every kind."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import dropwhile
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.core import TyperGroup

from autotuner.cli.main import app
from documentation.reference.commands import all_commands
from tests.unit.cli.command_line import CommandLine
from tests.unit.documentation.blocks import ROOT, Block, blocks_of, generated_pages, pages

_SLOW = (
    *("check-memory-without-a-gpu", "proxy-trials", "survive-a-slow-link", "retune-every-night", "five-papers"),
    *("tune-a-large-job-on-a-small-cluster", "plan-a-training-run", "choose-an-objective"),
    "send-a-sweep-to-mlflow-or-wandb",
    *("batches", "layers", "objectives", "plans", "slow-links"),  # tests/golden records the same commands
)
"""Pages whose commands take several seconds; `make oracle` runs them."""

PAGES = [
    pytest.param(page, id=str(page.relative_to(ROOT)), marks=[pytest.mark.oracle] if page.stem in _SLOW else [])
    for page in pages()
    if blocks_of(page)
]

_OF_A_TABLE = re.compile(r"\s*(#|–|now\*? |\d+[*=]?\s|now → |\d+ +of )")
"""Rows of rankings move when constants are fitted again. The tests of the rankings compare them."""


# ---------------------------------------------------------------- what a page shows is what happens
@pytest.mark.parametrize("page", PAGES)
def test_commands_and_programs_of_a_page_run_and_print_what_it_shows(
    cli: CommandLine, page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(cli.directory)
    names: dict[str, Any] = {}
    for block in blocks_of(page):
        if block.file:
            path = cli.directory / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        if block.reason or block.file or block.is_output:
            continue
        if block.language == "sh":
            printed = "".join(_run_commands(cli, block, monkeypatch))
            assert missing(block.shown, printed) == [], f"{block} printed:\n{printed}"
        elif block.language == "python":
            exec(compile(block.text, str(block), "exec"), names)  # our own page
            printed = capsys.readouterr().out
            assert missing(block.shown, printed) == [], f"{block} printed:\n{printed}"


def _run_commands(cli: CommandLine, block: Block, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    commands = list(commands_of(block.text))
    for place, (line, words) in enumerate(commands):
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            monkeypatch.setenv(name, value)
        elif words[0] in ("python3", "cat"):
            program = line.replace("python3", sys.executable, 1)
            yield subprocess.run(["sh", "-ec", program], capture_output=True, text=True, check=True).stdout
        else:
            assert words[0] == "autotuner", f"{block} runs {line!r}: give a reason why no test does"
            code = block.exit_code if place == len(commands) - 1 else 0
            arguments, _, target = _split_at(words[1:], ">")
            printed = cli.run(*arguments, code=code)
            if target:
                (cli.directory / target[0]).write_text(printed, encoding="utf-8")
            yield printed + cli.error


def commands_of(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the commands of a block, each as it stands and in words; a quoted text may have several lines."""
    line = ""
    for part in text.replace("\\\n", " ").splitlines():
        line = f"{line}\n{part}" if line else part
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # a quote is open
            continue
        if words:
            yield line, words
        line = ""
    assert not line, f"a quote is not closed: {line}"


def _split_at(words: Sequence[str], mark: str) -> tuple[list[str], str, list[str]]:
    place = list(words).index(mark) if mark in words else len(words)
    return list(words[:place]), mark, list(words[place + 1 :])


_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")

_TOLERANCE = 0.1
"""Numbers move when constants are fitted again. A page whose numbers are further off misleads its readers."""

_SMALL = 3.0
"""Shares and ranks of this size move by as much."""


def missing(shown: str, printed: str) -> list[str]:
    """Return the lines that a page shows and that were not printed: … stands for anything, and numbers may move."""
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    wanted = [line for line in shown.splitlines() if not _OF_A_TABLE.match(line)]
    return [line for line in wanted if not any(_matches(" ".join(line.split()), one) for one in lines)]


def _matches(shown: str, printed: str) -> bool:
    found = re.fullmatch(_pattern_of(shown), printed)
    return found is not None and all(map(_is_near, _NUMBER.findall(shown), found.groups()))


def _pattern_of(shown: str) -> str:
    """Return a pattern with a group for each number."""
    parts = []
    for part in shown.split("…"):
        texts = _NUMBER.split(part)
        parts.append(f"({_NUMBER.pattern})".join(map(re.escape, texts)))
    return ".*".join(parts)


def _is_near(shown: str, printed: str) -> bool:
    here, there = (float(text.replace(",", "")) for text in (shown, printed))
    return abs(here - there) <= max(_TOLERANCE * abs(here), _SMALL)


# ---------------------------------------------------------------- files and documents
ALL = [block for page in (*pages(), *generated_pages()) for block in blocks_of(page)]


def test_every_document_on_a_page_is_well_formed() -> None:
    read: dict[str, Callable[[str], Any]] = {
        "json": json.loads,
        "toml": tomllib.loads,
        "yaml": lambda text: list(yaml.safe_load_all(text)),
    }
    documents = [block for block in ALL if block.language in read and not block.reason]
    assert len(documents) > 20
    for block in documents:
        try:
            read[block.language](block.text)
        except ValueError as error:
            pytest.fail(f"{block}: {error}")


# ---------------------------------------------------------------- commands exist
def test_every_command_of_a_page_has_the_options_that_it_is_called_with() -> None:
    root = typer.main.get_group(app)
    calls = [(block, words) for block in ALL if block.language == "sh" for words in _calls(block)]
    assert len(calls) > 100
    assert [f"{block}: {wrong}" for block, words in calls if (wrong := _wrong_options(root, words))] == []


def _calls(block: Block) -> Iterator[list[str]]:
    for _, all_words in commands_of(block.text):
        words = list(dropwhile(re.compile(r"[A-Z_]+=").match, all_words))
        if words[:1] == ["autotuner"]:
            ends = [place for place, word in enumerate(words) if word in ("|", ">", ">>", "&&", "||", ";", "&", "--")]
            yield words[1 : min(ends, default=len(words))]


def _wrong_options(root: TyperGroup, words: list[str]) -> list[str]:
    command: Any = root
    while isinstance(command, TyperGroup) and words and not words[0].startswith("-"):
        name, words = words[0], words[1:]
        if name not in command.commands:
            return [name]
        command = command.commands[name]
    known = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    named = {word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)}
    return sorted(named - known - {"--help", "--version"})


def test_every_command_of_the_command_line_has_an_example_in_the_reference() -> None:
    examples = [block for block in ALL if block.page.stem == "commands" and block.language == "sh"]
    shown = {" ".join(words[:2]) for block in examples for words in _calls(block)}
    names = [name for _, name, _ in all_commands()]
    assert [name for name in names if not any(call.startswith(name) for call in shown)] == []


# ---------------------------------------------------------------- exceptions
LONE_TEXT = 12
"""Formulas and the like, in blocks of the language ``text``."""


def test_a_block_that_no_test_runs_says_why() -> None:
    silent = [
        str(block)
        for page in pages()
        for block in blocks_of(page)
        if block.language in ("", "bash", "console") and not (block.is_output or block.file or block.reason)
    ]
    assert silent == [], "put <!-- not run: the reason --> above the block, or a command whose output it is"


def test_few_blocks_are_not_run(record_property: Any) -> None:
    blocks = [block for page in pages() for block in blocks_of(page) if not block.is_output and not block.file]
    reasons = Counter(block.reason for block in blocks if block.reason)
    record_property("reasons", dict(reasons))
    assert reasons.total() < len(blocks) / 2
    assert sum(block.language == "text" and not block.reason for block in blocks) <= LONE_TEXT
