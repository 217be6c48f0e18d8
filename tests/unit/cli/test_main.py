"""The command line as a whole: its help, what it imports, and how lengths and names are read."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import pytest
import typer

from autotuner.cli.flags import SELDOM
from autotuner.cli.main import app
from autotuner.core.errors import InvalidInput
from autotuner.core.sweep_requests import SweepCreate
from autotuner.core.text import inputs_of, to_document
from tests.unit.cli.command_line import JOB, CommandLine


def test_every_command_says_what_it_does(cli: CommandLine) -> None:
    text = cli.run("--help")
    for command in app.registered_commands:
        assert command.callback is not None
        assert command.callback.__doc__
        assert (command.name or command.callback.__name__) in text


def imported_by(*arguments: str) -> set[str]:
    """The packages that a fresh interpreter has imported when the command is done."""
    script = "import atexit, sys; from autotuner.cli import main; atexit.register(lambda: print(*sys.modules)); main()"
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_help_the_version_and_a_prediction_import_nothing_heavy() -> None:
    heavy = {"alembic", "fastapi", "httpx", "numpy", "optuna", "psutil", "sqlalchemy", "uvicorn"}
    assert imported_by("--help") & heavy == set()
    assert imported_by("predict", "--help") & heavy == set()
    assert imported_by("--version") & {"alembic", "fastapi", "numpy", "sqlalchemy", "torch", "uvicorn"} == set()


def test_a_call_without_a_command_prints_the_help_and_its_version_alone(cli: CommandLine) -> None:
    assert "Find the parallel layout that trains a transformer fastest." in cli.run(code=2)
    assert cli.run("--version") == f"autotuner {version('parallelism-autotuner')}\n"


def test_names_of_the_catalog_are_read_in_any_case_and_printed_in_lower_case(cli: CommandLine) -> None:
    job = ["--global-batch", "64", "--seq-len", "8k", "--layout", "FSDP8 mb1 recompute-full"]
    told = cli.run("predict", "--model", "Llama-3-8B", "--cluster", "H100:8", "--stack", "Torch", *job)
    assert told == cli.run("predict", "--model", "llama-3-8b", "--cluster", "h100:8", "--stack", "torch", *job)


def test_a_prediction_imports_no_server_no_sampler_no_database_and_nothing_of_trials() -> None:
    heavy = {"alembic", "fastapi", "httpx", "optuna", "sqlalchemy", "uvicorn"}
    heavy |= {f"autotuner.core.{name}" for name in ("run", "trial", "trial_spec")}
    assert imported_by("predict", *JOB) & (heavy | {"autotuner.catalog.huggingface"}) == set()


WIDTH = 78
"""Characters of a line that a terminal of 80 columns shows without a break; help is indented by one on each side."""

USUAL = {"model", "cluster", "global_batch", "seq_len", "layout", "limit", "server", "as_json"}


def leaves(group: Any, *path: str) -> Iterator[tuple[str, Any]]:
    """Return every command that does something, with the words that call it."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command, *path, name)
        else:
            yield " ".join((*path, name)), command


APP: Any = typer.main.get_command(app)
COMMANDS: dict[str, Any] = dict(leaves(APP))
GROUPS: dict[str, Any] = {name: one for name, one in APP.commands.items() if hasattr(one, "commands")}


def num_sentences(text: str) -> int:
    return len(re.findall(r"[.!?;](?=\s|$)", text))


def example_of(name: str) -> list[str]:
    """Return the words of a command's example, as a shell would split them."""
    last = COMMANDS[name].help.split("\n\n")[-1]
    assert last.startswith("Example: autotuner ")
    return shlex.split(last.removeprefix("Example: ").replace("\\\n", " "))


def parsed(words: list[str]) -> tuple[str, dict[str, Any]]:
    """Return the command that words call, and its options; the command does not run."""
    command, called = APP, list[str]()
    while hasattr(command, "commands"):
        called.append(words[len(called)])
        command = command.commands[called[-1]]
    return " ".join(called), command.make_context(called[-1], words[len(called) :]).params


def panel_of(option: Any) -> str:
    return str(getattr(option, "rich_help_panel", None) or "")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_is_one_sentence_then_short_and_ends_with_an_example_that_parses(name: str) -> None:
    first = COMMANDS[name].help.split("\n\n")[0].replace("\n", " ")
    assert first.endswith(".")
    assert num_sentences(first) == 1
    _, *others = COMMANDS[name].help.split("\n\n")
    assert len(others) in {1, 2}
    assert all(len(line) <= WIDTH for paragraph in others for line in paragraph.splitlines())
    program, *words = example_of(name)
    assert program == "autotuner"
    assert parsed(words)[0] == name
    options = [one for one in COMMANDS[name].params if one.param_type_name == "option"]
    panels = list(dict.fromkeys(panel_of(one) for one in options))
    assert {panel_of(one) for one in options if one.name in USUAL} <= {""}
    assert SELDOM not in panels[:-1] or not any(panels[panels.index(SELDOM) + 1 :])


@pytest.mark.parametrize("name", GROUPS)
def test_the_help_of_a_group_is_one_sentence(name: str) -> None:
    assert GROUPS[name].help.endswith(".")
    assert num_sentences(GROUPS[name].help) == 1


@pytest.mark.parametrize("name", [name for name, one in COMMANDS.items() if any(p.name == "space" for p in one.params)])
def test_a_command_with_many_options_says_which_are_seldom_used(name: str) -> None:
    assert SELDOM in {panel_of(one) for one in COMMANDS[name].params}


# ---------------------------------------------------------------- --seq-len
def seq_len(text: str) -> Any:
    return to_document(inputs_of(SweepCreate), {"seq_len": text})["workload"]["seq_len"]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("8192", 8192), ("1", 1), ("8k", 8192), ("8K", 8192), ("128k", 131072), ("1m", 1_048_576), ("1M", 1_048_576)],
)
def test_a_sequence_length_is_a_number_of_tokens_or_of_1024_or_1048576_of_them(text: str, tokens: int) -> None:
    assert seq_len(text) == tokens


@pytest.mark.parametrize("text", ["8.5k", "0", "0k", "-1", "abc", "k", "8kk", "8g"])
def test_a_sequence_length_that_is_no_whole_number_is_refused_with_the_value_and_the_rule(text: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(f"{text!r}: must be a whole number of tokens, 1 or more")):
        seq_len(text)


def test_every_command_reads_a_sequence_length_alike_and_a_plan_takes_the_usual_one() -> None:
    options = {name: one for name, command in COMMANDS.items() for one in command.params if one.name == "seq_len"}
    assert {one.metavar for one in options.values()} == {"TOKENS"}
    assert {"predict", "sweep", "plan", "gate", "layers", "import", "export", "retune add"} <= set(options)
    assert parsed(["plan", "--model", "llama-3-8b", "--tokens", "1T"])[1]["seq_len"] == "8192"
