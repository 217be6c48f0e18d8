"""CommandStory: commands that run one after the other on one database, with everything that they print."""

from __future__ import annotations

import json
import re
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from autotuner.cli import main
from autotuner.cli.main import app
from autotuner.core.codec import from_plain, to_plain
from autotuner.core.layout import Layout
from autotuner.runs.clock import SystemClock
from tests.golden.normal import Normal

_REPOSITORY = Path(__file__).parents[2]

_FLEETING = frozenset({"elapsed_s", "idle_s", "idle_since"})
"""Keys of documents whose values depend on the wall clock."""

_OF_THE_CALLER = ("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE", "AUTOTUNER_TOKEN", "AUTOTUNER_SERVER", "AUTOTUNER_LOGIN")
"""Variables of the environment that change the output; without them it is as wide as its longest line."""

_LOGGED = re.compile(r'\{"request_id": ')
"""The service of a test logs its requests to the same standard error."""

_WAITED = re.compile(r"(simulated job \d+ (?:waits|runs)), .*")
"""On a busy machine a job waits for a second or more, and the line says so."""

_SIZE = re.compile(r"\(\d+\.\d MB\)")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_RULE = re.compile("[─━═┬┴┼┳┻╇]{4,}")
_FRAME = re.compile("[╭╮╰╯│─]")

_LAYOUT_FIELDS = frozenset(to_plain(Layout()))

_MANY = 3
"""Longest list of objects that is recorded whole; lists of numbers or texts may be twice as long."""

_SHORT = 120
"""A part of a document with more characters is recorded once, and named where it occurs again."""


class CommandStory:
    """A sequence of commands on one database, with everything that they print.

    Attributes:
        directory: Temporary folder with the database and the files that commands write.
        database_url: URL of that database.
        set: Function that sets a variable of the environment until the test ends.
        told: One document for each command: the line, the exit code, standard output and standard error.
    """

    def __init__(self, directory: Path, capture: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.database_url = f"sqlite:///{directory}/autotuner.db"
        self.set = patch.setenv
        self._patch = patch
        patch.setattr(sys, "argv", ["autotuner"])
        for name in _OF_THE_CALLER:
            patch.delenv(name, raising=False)
        self.set("AUTOTUNER_DATABASE_URL", self.database_url)
        self.set("AUTOTUNER_WORK_DIR", str(directory / "trials"))
        self.set("AUTOTUNER_POLL_S", "0.1")
        self.told: list[dict[str, Any]] = []
        self._capture = capture
        self._normal = Normal({str(directory): "DIR", str(_REPOSITORY): "REPOSITORY"}, _FLEETING)
        self._places: dict[str, str] = {}

    def run(self, command: str) -> str:
        """Run a command, keep what it prints, and return its standard output.

        Args:
            command: The words that a user types after ``autotuner``.
        """
        code, output, error = self._ended(command)
        self._keep(command, code, _lines(self._normal.text(output)), error)
        return output

    def json(self, command: str) -> Any:
        """Run a command with ``--json``, keep the document that it prints, and return it."""
        command = f"{command} --json"
        code, output, error = self._ended(command)
        try:
            document = json.loads(output)
        except json.JSONDecodeError:
            document = _lines(output)
        found = _shortened(self._normal.document(_in_words(document)))
        self._keep(command, code, self._shared(found, f"told[{len(self.told)}].output"), error)
        return document

    def both(self, command: str) -> Any:
        """Run a command twice: for its text, then for its document, which is returned."""
        self.run(command)
        return self.json(command)

    def file(self, name: str, content: Any) -> str:
        """Write a text, or a document as JSON, to a new file, and return its path."""
        path = self.directory / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    def read(self, name: str) -> None:
        """Keep the text of a file that a command wrote."""
        text = (self.directory / name).read_text()
        self.told.append({"file": name, "text": _lines(self._normal.text(text))})

    def stop_clock(self, epoch_s: float) -> None:
        """Start the clock of the service at that time, and run it a thousand times slower."""
        begun = time.monotonic()
        self._patch.setattr(SystemClock, "now", lambda _: epoch_s + (time.monotonic() - begun) / 1000)

    def _ended(self, command: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(shlex.split(command))
        output, error = (_SIZE.sub("(SIZE)", _COLOUR.sub("", text)) for text in self._capture.readouterr())
        return int(ended.value.code or 0), output, error

    def _keep(self, command: str, code: int, output: Any, error: str) -> None:
        error = "".join(_WAITED.sub(r"\1", line) for line in error.splitlines(keepends=True) if not _LOGGED.match(line))
        told = {"command": self._normal.text(command), "code": code, "output": output}
        self.told.append(told | ({"error": _lines(self._normal.text(error))} if error else {}))

    def _shared(self, value: Any, path: str) -> Any:
        """Return the document with a reference in place of every large part that was recorded before."""
        if not isinstance(value, (dict, list)):
            return value
        text = json.dumps(value)
        if len(text) > _SHORT and self._places.setdefault(text, path) != path:
            return f"as {self._places[text]}"
        if isinstance(value, list):
            return [self._shared(one, f"{path}[{place}]") for place, one in enumerate(value)]
        return {key: self._shared(one, f"{path}.{key}") for key, one in value.items()}


def leaf_commands() -> set[str]:
    """Return the names of all commands that run something, such as ``cluster add``."""
    return {" ".join(words) for words in _leaves(typer.main.get_command(app), ())}


def _leaves(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    below = getattr(command, "commands", None)
    if below is None:
        yield words
        return
    for name, one in below.items():
        yield from _leaves(one, (*words, name))


def _in_words(value: Any) -> Any:
    """Return the document with each layout in words."""
    if isinstance(value, list):
        return [_in_words(one) for one in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == _LAYOUT_FIELDS:
        return str(from_plain(Layout, value))
    return {key: _in_words(one) for key, one in value.items()}


def _shortened(value: Any) -> Any:
    """Return the document with only the first and the last item of every long list."""
    if isinstance(value, dict):
        return {key: _shortened(one) for key, one in value.items()}
    if not isinstance(value, list):
        return value
    if value and len(value) > (_MANY if isinstance(value[0], dict) else 2 * _MANY):
        value = [value[0], f"... of {len(value)} items ...", value[-1]]
    return [_shortened(one) for one in value]


def _lines(text: str) -> list[str]:
    """Return the lines of a text; the box around an error of usage depends on the terminal and becomes one line."""
    if "╭" in text:
        text = " ".join(_FRAME.sub(" ", text).split())
    return [_RULE.sub("---", line).rstrip() for line in text.splitlines()]
