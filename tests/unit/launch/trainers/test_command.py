"""A trainer's command, filled in for one trial."""

from __future__ import annotations

import sys
from pathlib import Path

from autotuner.core.trial_spec import TrialSettings
from autotuner.launch.trainers.command import PLACEHOLDERS, check_command, num_steps, on_this_machine, rendered
from tests.builders import cpu_layout
from tests.trials.launching import spec

SPEC = Path("/trial/spec.json")


def vector(*command: str, arguments: tuple[str, ...] = (), file: Path | None = None) -> list[str]:
    check_command(command)
    trial = spec("command", layout=cpu_layout(data_parallel_replicate_degree=2, micro_batch_size=2))
    return rendered(command, trial, on_this_machine(2), arguments=arguments, file=file, spec_file=SPEC)


def test_every_placeholder_is_filled_in() -> None:
    for name in PLACEHOLDERS:
        check_command(["train", f"{{{name}}}"])
        assert vector("train", f"{{{name}}}", arguments=("x",), file=Path("f")) != ["train", f"{{{name}}}"]


def test_numbers_are_those_of_the_trial() -> None:
    words = "{world_size} {micro_batch_size} {num_micro_batches} {global_batch_size} {seq_len} {seed}"
    assert vector("train", *words.split()) == ["train", "2", "2", "2", "8", "64", "0"]


def test_arguments_become_as_many_as_there_are() -> None:
    arguments = ("--a", "b c; rm -rf /", "{steps}", "$(x)")
    assert vector("train", "{arguments}", "end", arguments=arguments) == ["train", *arguments, "end"]
    assert vector("train", "{arguments}", "end") == ["train", "end"]


def test_files_are_paths_and_a_layout_without_one_leaves_it_empty() -> None:
    assert vector("{python}", "--file={file}", "{spec}") == [sys.executable, "--file=", str(SPEC)]
    assert vector("train", "--file={file}", file=Path("/trial/ds.json")) == ["train", "--file=/trial/ds.json"]


def test_a_brace_that_is_meant_is_written_twice() -> None:
    assert vector("train", '{{"steps": {seed}}}') == ["train", '{"steps": 0}']


def test_a_trainer_is_asked_for_the_most_steps_that_a_trial_may_take_and_one_to_spare() -> None:
    settings = TrialSettings(warmup_steps=2, max_warmup_steps=20, measured_steps=50, max_measured_steps=40)
    assert num_steps(settings) == 20 + 50 + 1
