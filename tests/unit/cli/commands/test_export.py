from __future__ import annotations

import pytest
import typer

from autotuner.cli.main import app
from autotuner.core.layout import Layout
from autotuner.core.trial_spec import ExportFormat
from autotuner.store.sql import open_store
from tests.builders import prediction
from tests.contracts.acts import claim_sweep, lease_of
from tests.unit.cli.command_line import JOB, CommandLine

LAYOUT = "fsdp8 tp8 mb1 sp recompute-full"


def test_what_can_be_pasted_is_on_standard_output_and_all_else_on_standard_error(cli: CommandLine) -> None:
    text = cli.run("export", LAYOUT, *JOB, "--format", "arguments")
    assert "--tensor-parallel-degree 8 \\\n" in text
    assert "--recompute full" in text
    assert all(line.startswith("--") for line in text.splitlines())
    assert "arguments" in cli.error
    assert "use: append them" in cli.error
    assert "left as it is there:" in cli.error


def test_what_a_trainer_cannot_say_is_told_with_what_would_run_instead(cli: CommandLine) -> None:
    cli.run("export", "fsdp64 mb1 fp8 delayed", *JOB, "--format", "torchtitan")
    assert "what it cannot say:" in cli.error
    assert "delayed" in cli.error


@pytest.mark.parametrize("wanted", ["torchrun", "sbatch"])
def test_a_script_that_its_own_trial_would_refuse_is_not_written(cli: CommandLine, wanted: str) -> None:
    arguments = ["fsdp64 mb1 flash_3", *JOB, "--stack", "megatron-core", "--format", wanted]
    assert cli.run("export", *arguments, code=2) == ""
    assert "layout.attention_kernel = 'flash_3'" in cli.error
    assert "nearest legal value: flash" in cli.error


def test_the_files_are_written_into_a_folder(cli: CommandLine) -> None:
    folder = cli.directory / "new" / "launch"
    printed = cli.run("export", LAYOUT, *JOB, "--format", "torchrun", "--output", str(folder))
    (path,) = folder.iterdir()
    assert printed == f"{path}\n"
    assert path.read_text() == cli.run("export", LAYOUT, *JOB, "--format", "torchrun")
    cli.run("export", LAYOUT, *JOB, "--format", "arguments", "--output", str(folder))
    assert "--sequence-parallel" in (folder / "arguments.txt").read_text()


def test_arguments_and_a_file_are_parted_into_a_folder(cli: CommandLine) -> None:
    folder = cli.directory / "launch"
    cli.run("export", "fsdp64 mb1 reshard", *JOB, "--format", "accelerate")
    assert "one after the other: arguments, accelerate.yaml" in cli.error
    cli.run("export", "fsdp64 mb1 reshard", *JOB, "--format", "accelerate", "--output", str(folder))
    assert (folder / "accelerate.yaml").read_text().startswith("compute_environment")
    assert "compute_environment" not in (folder / "arguments.txt").read_text()


def test_a_program_gets_all_of_it(cli: CommandLine) -> None:
    answer = cli.run_json("export", LAYOUT, *JOB, "--format", "arguments")
    assert answer["arguments"][:2] == ["--seq-len", "8192"]
    assert answer["label"] == "fsdp8 tp8 mb1 sp recompute-full flash bf16"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([LAYOUT, *JOB, "--format", "fortran"], 2, "must be one of megatron-lm"),
        ([LAYOUT, *JOB[:-2], "--format", "torchrun"], 2, "--seq-len"),
        (["fsdp7", *JOB, "--format", "torchrun"], 2, "the cluster has 64"),
        (["fspd8", *JOB, "--format", "torchrun"], 2, "nearest legal value: fsdp8"),
        (["sw-none-0000", "--format", "torchrun"], 3, "no trial 'sw-none-0000'"),
        (["sw-none-0000", *JOB, "--format", "torchrun"], 2, "must be left out when a trial is given"),
        ([LAYOUT, *JOB, "--format", "torchrun", "--output", "/dev/null/x"], 2, "cannot be written"),
    ],
)
def test_what_cannot_be_exported_says_why(cli: CommandLine, arguments: list[str], code: int, said: str) -> None:
    cli.run("export", *arguments, code=code)
    assert said in " ".join(cli.error.split())


def test_a_stored_trial_is_exported_for_the_job_of_its_sweep(cli: CommandLine) -> None:
    cli.run("sweep", *JOB, "--no-wait")  # makes the database
    store = open_store(f"sqlite:///{cli.directory}/autotuner.db")
    claimed = claim_sweep(store, owner="test", now=0.0, lease_s=60.0)
    assert claimed is not None
    layout = Layout(tensor_parallel_degree=8, data_parallel_shard_degree=8)
    trial = store.add_trial(
        claimed.id, lease=lease_of(store, claimed.id, "test"), number=0, layout=layout, prediction=prediction()
    )
    store.close()
    text = cli.run("export", trial.id, "--format", "arguments")
    assert "--seq-len 8192" in text
    assert "--tensor-parallel-degree 8" in text


def test_the_help_names_every_format() -> None:
    command = typer.main.get_group(app).commands["export"]
    (said,) = (parameter.help for parameter in command.params if parameter.name == "wanted")  # type: ignore[attr-defined]  # click.Option has it
    assert [name for name in ExportFormat if name not in said] == []
