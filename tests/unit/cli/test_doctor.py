"""``autotuner doctor``, and the completion of words by a shell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotuner import extras
from autotuner.cli.complete import sweeps
from tests.unit.cli.command_line import CommandLine
from tests.unit.cli.test_sweeps import tiny_sweep


def test_each_part_of_an_installation_has_a_state_and_what_is_missing_the_command_that_adds_it(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "_is_installed", lambda package: package != "kubernetes")
    found = {one["part"]: one for one in cli.run_json("doctor")}
    assert {one["state"] for one in found.values()} == {"works", "missing"}
    assert found["extra kubernetes"]["mend"] == "pip install 'parallelism-autotuner[kubernetes]'"
    assert (found["database"]["state"], found["engine simulated"]["state"]) == ("works", "works")
    assert "pip install 'parallelism-autotuner[kubernetes]'  # extra kubernetes" in cli.run("doctor")


def test_a_broken_part_ends_with_an_exit_code_and_a_database_is_named_without_its_password(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNER_DATABASE_URL", "postgresql+psycopg://me:secret@127.0.0.1:9/nothing")
    said = cli.run("doctor", code=2)
    assert "1 of" in said
    assert "secret" not in said


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("autotuner pred", ["predict"]),
        ("autotuner predict --model llama-3-8", ["llama-3-8b"]),
        ("autotuner predict --cluster b200", ["b200:8", "b200:64"]),
        ("autotuner predict --cluster h100-sxm:1", ["h100-sxm:16", "h100-sxm:128", "h100-sxm:1024"]),
    ],
)
def test_a_shell_completes_commands_and_names(typed: str, completed: list[str], tmp_path: Path) -> None:
    asked = {"_AUTOTUNER_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    command = [str(Path(sys.executable).with_name("autotuner"))]
    ended = subprocess.run(command, env=os.environ | asked, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == completed


def test_a_shell_completes_stored_sweeps_and_makes_no_database_where_there_is_none(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep_id = cli.run_json(*tiny_sweep(cli.directory, "--no-wait"))["id"]
    assert sweeps("sw-") == [sweep_id]
    assert sweeps("sw-other") == []
    monkeypatch.setenv("AUTOTUNER_DATABASE_URL", f"sqlite:///{tmp_path}/nothing.db")
    assert sweeps("") == []
    assert not (tmp_path / "nothing.db").exists()
