from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from tests.unit.cli.command_line import JOB, CommandLine

LAYOUT = "fsdp8 tp8 mb1 sp recompute-full flash bf16"


@pytest.fixture
def script(cli: CommandLine) -> Path:
    """A launch of our own trial."""
    folder = cli.directory / "launch"
    return Path(cli.run("export", LAYOUT, *JOB, "--format", "torchrun", "--output", str(folder)).strip())


def test_a_script_is_read_as_the_layout_with_its_model_and_job(cli: CommandLine, script: Path) -> None:
    text = cli.run("import", str(script))
    assert LAYOUT in text
    assert "llama-3-70b: 70.6B parameters" in text
    assert "64 ranks; 1024 sequences of 8192 tokens" in text
    assert "ignored" in text
    job = "--model llama-3-70b --cluster CLUSTER --global-batch 1024 --seq-len 8192"
    assert f"autotuner explain {job} --layout '{LAYOUT}'" in text
    assert f"autotuner export '{LAYOUT}' {job} --format torchrun" in text


def test_a_configuration_may_come_from_a_pipe(cli: CommandLine, script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(script.read_text()))
    assert cli.run_json("import", "-") == cli.run_json("import", str(script))


def test_the_model_of_a_configuration_can_be_kept_as_a_file(cli: CommandLine, script: Path) -> None:
    path = cli.directory / "model.json"
    text = cli.run("import", str(script), "--save-model", str(path))
    assert f"--model {path}" in text
    assert json.loads(path.read_text())["num_layers"] == 80


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.sh"], "cannot be read"),
        (["--", "--some", "flags"], "looks like no configuration that is known"),
        (["--format", "fortran", "--", "--bf16"], "must be one of megatron-lm"),
        (["once upon a time"], "looks like no configuration that is known"),
    ],
)
def test_what_cannot_be_read_says_why(cli: CommandLine, arguments: list[str], said: str) -> None:
    cli.run("import", *arguments, code=2)
    assert said in " ".join(cli.error.split())
