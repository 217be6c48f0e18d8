from __future__ import annotations

import pytest

from tests.unit.cli.command_line import CommandLine

REGISTERED = """
[loop]
format = "arguments"
command = ["python", "train.py", "{arguments}"]
options = ["micro_batch_size"]
fixed = { precision = "fp32" }
"""


@pytest.fixture
def trainers(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    path = cli.directory / "trainers.toml"
    path.write_text(REGISTERED)
    monkeypatch.setenv("AUTOTUNER_TRAINERS", str(path))
    return cli


def test_trainers_lists_what_a_sweep_may_search_with_each(trainers: CommandLine) -> None:
    text = trainers.run("trainers")
    assert "loop: arguments" in text
    assert "searches micro_batch_size" in text
    assert "fixed precision fp32" in text


def test_trainers_as_json_is_the_answer_of_the_service(trainers: CommandLine) -> None:
    (item,) = trainers.run_json("trainers")["items"]
    assert item["options"] == ["micro_batch_size"]


def test_without_any_it_says_how_to_register_one(cli: CommandLine) -> None:
    assert "AUTOTUNER_TRAINERS" in cli.run("trainers")


def test_a_sweep_names_its_trainer(trainers: CommandLine) -> None:
    job = ("--model", "llama-3-8b", "--cluster", "cpu:1", "--global-batch", "4", "--seq-len", "64")
    created = trainers.run_json("sweep", *job, "--trainer", "loop", "--no-wait")
    assert created["trainer"] == "loop"
    trainers.run("sweep", *job, "--trainer", "lop", "--no-wait", code=3)
    assert "did you mean 'loop'?" in trainers.error


def test_a_wrong_registration_is_wrong_input(trainers: CommandLine) -> None:
    (trainers.directory / "trainers.toml").write_text("[loop]")
    trainers.run("trainers", code=2)
    assert "loop.format" in trainers.error
