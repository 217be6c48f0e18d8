from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.command_line import CommandLine


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output goes to a pipe of no width, whatever ran the tests has set."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    monkeypatch.setenv("AUTOTUNER_DATABASE_URL", f"sqlite:///{tmp_path}/autotuner.db")
    monkeypatch.setenv("AUTOTUNER_WORK_DIR", str(tmp_path / "trials"))
    return CommandLine(tmp_path, capsys)
