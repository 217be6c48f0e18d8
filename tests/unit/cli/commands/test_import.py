from __future__ import annotations

import io
import json
import re
import shlex
from pathlib import Path

import pytest

from autotuner.cli.inputs import read_text
from autotuner.core.errors import InvalidInput
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
    assert "llama-3-70b (70.6B parameters)" in text
    assert "64 ranks; 1024 sequences of 8192 tokens" in text
    assert "ignored" in text
    job = "--model llama-3-70b --cluster CLUSTER --global-batch 1024 --seq-len 8192"
    assert f"autotuner explain {job} --layout '{LAYOUT}'" in text
    assert f"autotuner predict {job} --current '{LAYOUT}' --format torchrun" in text


def test_a_configuration_may_come_from_a_pipe(cli: CommandLine, script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(script.read_text()))
    assert cli.run_json("import", "-") == cli.run_json("import", str(script))


def test_a_file_without_end_is_refused() -> None:
    with pytest.raises(InvalidInput, match="config = '/dev/zero': must have 2,000,000 characters or fewer"):
        read_text("/dev/zero", "config")


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


LAUNCHES = Path(__file__).parents[2] / "export" / "launches"


def test_a_published_launch_stands_beneath_the_best_that_its_trainer_can_be_told(cli: CommandLine) -> None:
    text = cli.run("import", str(LAUNCHES / "llama3_8b_fp8.sh"), "--cluster", "h100:8")
    assert "zero8 mb1 cudnn fp8 delayed" in text
    assert "changed  --sequence-parallel: with one tensor rank Megatron switches it off" in text
    assert "the best that megatron-lm can run" in text
    assert re.search(r"now → 1: .* tokens per second .predicted.; it changes", text)
    assert "--stack megatron-core --format megatron-lm" in text
    best = re.search(r"autotuner (export .*)", text)
    assert best is not None
    cli.run(*shlex.split(best[1]))
    assert "cannot say" not in cli.error


def test_flags_may_be_given_as_they_are_typed(cli: CommandLine) -> None:
    flags = ["--num-layers", "32", "--tensor-model-parallel-size", "4", "--sequence-parallel", "--bf16"]
    text = cli.run("import", "--ranks", "16", "--", *flags)
    assert "dp4 tp4 mb1 sp fp32-reduce flash bf16" in text
    assert "--model MODEL --cluster CLUSTER" in text
    assert "--seq-len TOKENS" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--seq-len"),
        (["--seq-len", "4096"], "--model"),
        (["--seq-len", "4096", "--model", "llama-3-8b", "--stack", "megatrn"], "did you mean 'megatron'"),
    ],
)
def test_what_is_missing_for_a_comparison_is_named_below_what_was_read(
    cli: CommandLine, arguments: list[str], said: str
) -> None:
    path = str(LAUNCHES / "llama_8b_zero_offload.json")
    text = cli.run("import", path, "--cluster", "h100:4", *arguments, code=3 if "--stack" in arguments else 2)
    assert "fsdp4 mb1 reshard flash bf16" in text
    assert said in " ".join(cli.error.split())


def test_what_runs_today_is_told_that_it_does_not_fit_or_cannot_run_here(cli: CommandLine) -> None:
    job = ["--cluster", "h100:4", "--seq-len", "4096", "--model", "llama-3-70b"]
    path = str(LAUNCHES / "llama_8b_zero_offload.json")
    assert "what runs today: fsdp4 mb1" in cli.run("import", path, *job)
    assert "What runs today cannot run here" in cli.run("import", path, *job, "--ranks", "2", "--model", "llama-3-8b")


def test_a_program_gets_what_was_read_with_the_comparison(cli: CommandLine) -> None:
    answer = cli.run_json("import", str(LAUNCHES / "llama3_8b_fp8.sh"), "--cluster", "h100:8")
    assert answer["label"] == answer["compared"]["current"]["label"] == "zero8 mb1 cudnn fp8 delayed"
    assert cli.run_json("import", str(LAUNCHES / "llama3_8b_fp8.sh"))["compared"] is None
