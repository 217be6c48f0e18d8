from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from autotuner.store.schema import migrate
from tests.unit.cli.command_line import CommandLine

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output goes to a pipe of no width, whatever ran the tests has set."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database without anything in it, as the first command would leave it."""
    path = tmp_path_factory.mktemp("migrated") / "autotuner.db"
    migrate(f"sqlite:///{path}")
    return path


@pytest.fixture
def cli(migrated_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> CommandLine:
    """Commands on a database of the test's own."""
    shutil.copy(migrated_file, tmp_path)
    return new_cli(tmp_path, monkeypatch, capsys)


@pytest.fixture
def first_cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> CommandLine:
    """Commands where nobody ever ran one."""
    return new_cli(tmp_path, monkeypatch, capsys)


def new_cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> CommandLine:
    monkeypatch.setenv("AUTOTUNER_DATABASE_URL", f"sqlite:///{tmp_path}/autotuner.db")
    monkeypatch.setenv("AUTOTUNER_WORK_DIR", str(tmp_path / "trials"))
    return CommandLine(tmp_path, capsys)
