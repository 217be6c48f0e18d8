"""What a user can set, run or call is written down."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import typer
from typer.core import TyperGroup

from autotuner.cli.main import app
from autotuner.core.choices import ShardLevel
from autotuner.core.layout import OPTIONS, SHARD_WORDS
from autotuner.core.option import Kind
from autotuner.service.settings import Settings

ROOT = Path(__file__).parents[2]


def test_every_setting_is_documented() -> None:
    text = (ROOT / "docs/operations.md").read_text()
    assert [name for name in Settings.model_fields if f"AUTOTUNER_{name.upper()}" not in text] == []


def test_the_page_of_commands_has_each_command_with_its_help() -> None:
    told = re.findall(r"^\| `autotuner ([\w -]+)` \| (.+) \|$", (ROOT / "docs/commands.md").read_text(), re.MULTILINE)
    assert dict(told) == dict(_helps(typer.main.get_group(app), ()))


def _helps(group: TyperGroup, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from _helps(command, (*names, name))
        else:
            yield " ".join((*names, name)), (command.help or "").partition("\n\n")[0].replace("\n", " ")


def test_the_index_lists_every_page_once() -> None:
    listed = re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs/README.md").read_text())
    assert sorted(listed) == sorted(page.name for page in (ROOT / "docs").glob("*.md") if page.name != "README.md")


def test_every_option_in_a_command_of_the_guide_exists() -> None:
    commands = typer.main.get_group(app).commands
    text = (ROOT / "docs/guide.md").read_text().replace("\\\n", " ")
    calls = re.findall(r"^autotuner ([\w-]+)(.*)$", text, re.MULTILINE)
    assert len(calls) >= 6
    for name, arguments in calls:
        command = commands[name]
        if isinstance(command, TyperGroup):
            command = command.commands[arguments.split()[0]]
        known = {flag for parameter in command.params for flag in parameter.opts}
        ours, *_ = arguments.split(" -- ")
        assert set(re.findall(r"--[a-z][\w-]*", ours)) <= known, name


def test_every_link_between_pages_leads_somewhere() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        targets = re.findall(r"\]\(([^)#:]+)[^):]*\)", page.read_text())
        assert [target for target in targets if not (page.parent / target).exists()] == [], page.name


def test_every_test_that_a_page_names_exists() -> None:
    named = set(re.findall(r"`(tests/[\w/]+\.py)`", "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))))
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


def test_every_option_of_a_layout_is_documented_with_its_words() -> None:
    text = (ROOT / "docs/layouts.md").read_text()
    assert [name for name in OPTIONS if f"| `{name}` |" not in text] == []
    choices = [one for one in OPTIONS.values() if one.kind == Kind.CHOICE and one.word]
    words = [one.word.format(value) for one in choices for value in one.values]
    numbers = [one.word.format("N") for one in OPTIONS.values() if one.is_number and one.word]
    numbers += [f"{word}N" for level, word in SHARD_WORDS.items() if level != ShardLevel.NONE]
    switches = [one.word for one in OPTIONS.values() if one.kind == Kind.SWITCH]
    assert [word for word in (*words, *numbers, *switches) if f"`{word}`" not in text] == []
