"""The output of commands: tables in pipes and terminals, notes and bars on standard error, and their volume."""

from __future__ import annotations

import codecs
import logging
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from autotuner.cli.console import console, notes, progress
from autotuner.report.terminal import plain_table
from tests.cases import each
from tests.unit.cli.command_line import JOB, CommandLine, simulated_sweep


# ---------------------------------------------------------------- tables
def widest_line(capsys: pytest.CaptureFixture[str]) -> int:
    table = plain_table("layout", "why")
    table.add_row("fsdp8", "word " * 60)
    console().print(table)
    return max(len(line) for line in capsys.readouterr().out.splitlines())


def test_piped_output_is_as_wide_as_needed_or_as_the_environment_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 300 < widest_line(capsys) < 320
    monkeypatch.setenv("COLUMNS", "72")
    assert widest_line(capsys) == 72


def test_control_characters_of_a_name_are_spelt_out_and_colours_stay(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes any stream for a terminal then
    table = plain_table("name")
    table.add_row("a\x1b]0;owned\x9b31m\u202eb")
    console().print(table, style="red")
    printed = capsys.readouterr().out
    assert r"a\x1b]0;owned\x9b31m\u202eb" in printed
    assert "\x1b[31m" in printed


# ---------------------------------------------------------------- a terminal
WORK = """
import logging, sys
from autotuner.cli import console
logging.getLogger("autotuner").setLevel(int(sys.argv[1]))
logging.getLogger("autotuner").handlers = [console.LogLines()]
console._PATIENCE_S = float(sys.argv[2])
with console.progress("counting [1]") as bar:
    bar.count(2, 3)
    logging.getLogger("autotuner").info("a note\x1b[31m of the work")
    print("begun", flush=True)
    sys.stdin.readline()
print("the answer")
"""
"""A command that works until standard input has a line. Its arguments are the level of notes and the patience."""

SHOW_CURSOR = "\x1b[?25h"
ERASED = "\r\x1b[1A\x1b[2K"
"""The last thing that a terminal gets: back to the line of the bar, and erase it."""

COLOUR = re.compile(r"\x1b\[[39]\d")


class AtTerminal:
    """A process whose standard error is a terminal, while its standard output is a pipe."""

    def __init__(self, *command: str, **environment: str) -> None:
        self._terminal, of_process = pty.openpty()
        env = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
        env |= {"TERM": "xterm", "COLUMNS": "100"} | environment
        self._process = subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=of_process,
            text=True,
            env=env,
        )
        os.close(of_process)
        self._decoder = codecs.getincrementaldecoder("utf-8")()  # a read may end within a character
        self.seen = ""

    def read_until(self, text: str) -> None:
        """Read the terminal until it shows a text."""
        while text not in self.seen:
            self._read()

    def _read(self) -> bytes:
        found = os.read(self._terminal, 4096)
        self.seen += self._decoder.decode(found)
        return found

    def end(self) -> str:
        """Let the work end; return what was written to standard output, and read the terminal to its end."""
        with self._process as process:
            assert process.stdin is not None
            assert process.stdout is not None
            with suppress(BrokenPipeError):  # work that reads nothing may have ended
                process.stdin.write("go on\n")
                process.stdin.close()
            with suppress(OSError):  # the last writer has closed the terminal
                while self._read():  # before standard output, because work waits while the terminal's buffer is full
                    pass
            os.close(self._terminal)
            return process.stdout.read()


def work(level: int = logging.WARNING, patience_s: float = 0.0, **environment: str) -> AtTerminal:
    return AtTerminal("-c", WORK, str(level), str(patience_s), **environment)


def test_a_bar_is_shown_at_a_terminal_counts_and_is_erased_at_the_end() -> None:
    found = work()
    found.read_until("2 of 3")
    assert found.end() == "begun\nthe answer\n"
    before, _, after = found.seen.rpartition("counting [1]")
    assert "2 of 3" in before + after
    assert SHOW_CURSOR in after
    assert after.endswith(ERASED)


def test_notes_of_verbose_stand_above_the_bar_with_their_control_characters_as_text() -> None:
    found = work(logging.INFO)
    found.read_until("2 of 3")
    found.end()
    assert r"a note\x1b[31m of the work" in found.seen


@each(
    ("level", "environment"),
    [(logging.ERROR, {}), (logging.WARNING, {"TERM": "dumb"}), (logging.WARNING, {"TTY_INTERACTIVE": "0"})],
)
def test_a_quiet_command_and_a_terminal_without_a_cursor_show_no_bar(level: int, environment: dict[str, str]) -> None:
    found = AtTerminal("-c", WORK, str(level), "0.0", **environment)
    assert found.end() == "begun\nthe answer\n"
    assert found.seen == ""


def test_short_work_shows_no_bar() -> None:
    found = work(patience_s=600)
    found.end()
    assert found.seen == ""


def test_a_bar_has_no_colour_if_the_environment_says_so() -> None:
    with_colour, without = work(), work(NO_COLOR="1")
    for found in (with_colour, without):
        found.read_until("2 of 3")
        found.end()
    assert COLOUR.search(with_colour.seen)
    assert not COLOUR.search(without.seen)


def test_a_pipe_gets_no_bar_even_if_it_takes_colours(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotuner.cli.console._PATIENCE_S", 0.0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress("counting") as bar:
        bar.count(1, 2)
        notes().print("a note")
    assert capsys.readouterr().err == "a note\n"


def test_a_sweep_is_followed_in_place_on_a_terminal_which_is_then_cleared_for_its_answer(tmp_path: Path) -> None:
    run = "import sys; from autotuner.cli import main; main(sys.argv[1:])"
    found = AtTerminal("-c", run, *simulated_sweep(tmp_path), AUTOTUNER_DATABASE_URL=f"sqlite:///{tmp_path / 'own.db'}")
    found.read_until("Ranking by simulated MFU")  # the bar alone is drawn before
    answer = found.end()
    assert answer.startswith("Best layout: ")
    assert "Ranking by simulated MFU" in answer
    _, _, after = found.seen.rpartition(SHOW_CURSOR)
    assert set(after.replace(ERASED.strip("\r"), "")) == {"\r"}  # every line of the last picture is erased


# ---------------------------------------------------------------- --quiet and --verbose
EXPORT = ["export", "fsdp8 tp8 mb1 sp recompute-full", "--format", "deepspeed", *JOB]


@each("command", [["predict", *JOB], ["predict", *JOB, "--json"], EXPORT, [*EXPORT, "--json"]])
def test_scripts_read_the_same_answer_whatever_the_volume_is(command: list[str], cli: CommandLine) -> None:
    answer = cli.run(*command)
    assert cli.run("-q", *command) == answer
    assert cli.error == ""
    assert cli.run(*command, "--verbose") == answer
    assert cli.error.splitlines()[-1].startswith("took ")


def test_a_quiet_command_leaves_out_notes_and_prints_errors(cli: CommandLine) -> None:
    cli.run(*EXPORT)
    assert cli.error
    cli.run(*EXPORT, "-q")
    assert cli.error == ""
    assert "did you mean 'llama-3-70b'" in cli.error_of("-q", "predict", *JOB, "--model", "llama-3-70x", code=3)


def test_a_quiet_command_leaves_later_commands_as_loud_as_before(cli: CommandLine) -> None:
    cli.run("-q", *EXPORT)
    cli.run(*EXPORT)
    assert cli.error


def test_the_option_after_the_command_wins_over_the_one_before_it(cli: CommandLine) -> None:
    cli.run("-q", "predict", *JOB, "-v")
    assert "took " in cli.error


def test_a_verbose_command_says_which_files_database_and_requests_it_used(cli: CommandLine, tmp_path: Path) -> None:
    layout = tmp_path / "layout.json"
    layout.write_text('{"tensor_parallel_degree": 8}')
    cli.run("explain", *JOB, "--layout", str(layout), "-v", code=2)
    assert f"read {layout}, 29 characters" in cli.error
    cli.run("cluster", "list", "-v")
    assert f"start a service in this process, with sqlite:///{cli.directory}/autotuner.db" in cli.error
    assert "GET /api/v1/clusters: 200 in " in cli.error


def test_options_of_the_volume_are_in_the_help_of_every_command(cli: CommandLine) -> None:
    for words in ([], ["predict"], ["cluster"], ["cluster", "add"]):
        told = cli.run(*words, "--help")
        assert "--quiet" in told
        assert "--verbose" in told
