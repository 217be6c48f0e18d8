"""``--save-dir``: a folder to launch from."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from autotuner.core.codec import from_plain
from autotuner.core.layout import Layout
from tests.unit.cli.command_line import JOB, CommandLine, simulated_sweep

LAUNCHES = Path(__file__).parents[1] / "exports" / "launches"
SCRIPTS = {"launch.sh", "launch.sbatch", "launch.yaml"}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def layout(folder: Path) -> Layout:
    return from_plain(Layout, json.loads((folder / "layout.json").read_text()))


def test_a_prediction_is_saved_with_scripts_for_the_trainer_of_its_stack(cli: CommandLine) -> None:
    folder = cli.directory / "saved"
    found = cli.run_json("predict", *JOB, "--stack", "megatron-core", "--save-dir", str(folder))
    best = found["items"][0]["label"]
    assert names(folder) == {
        *SCRIPTS,
        "layout.json",
        "layouts.csv",
        "explanation.md",
        "report.html",
        "README.md",
        "exports",
    }
    assert str(layout(folder)) == best
    with (folder / "layouts.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["layout"] for row in rows] == [one["label"] for one in found["items"]]
    assert "pretrain_gpt.py" in (folder / "launch.sh").read_text()
    read_me = (folder / "README.md").read_text()
    assert read_me.startswith(f"# {best}\n")
    assert "bash launch.sh" in read_me
    assert "### Predicted, not measured" in read_me
    assert "README.md says how to start" in cli.error


def test_an_export_is_saved_for_its_own_trainer_and_all_others_that_can_express_it(cli: CommandLine) -> None:
    folder = cli.directory / "saved"
    cli.run("export", "fsdp64 mb1 reshard", *JOB, "--format", "deepspeed", "--save-dir", str(folder))
    assert {*SCRIPTS, "ds_config.json"} <= names(folder)
    assert names(folder / "exports") >= {"deepspeed", "accelerate", "transformers"}


def test_an_import_is_saved_as_it_runs_today(cli: CommandLine) -> None:
    folder = cli.directory / "saved"
    script = "torchrun --nproc-per-node 8 --nnodes 8 train.py --tensor-parallel-degree 8"
    (cli.directory / "train.sh").write_text(script)
    cli.run("import", str(cli.directory / "train.sh"), *JOB, "--save-dir", str(folder))
    assert layout(folder).tensor_parallel_degree == 8
    assert "train.py" in (folder / "launch.sh").read_text()


def test_a_sweep_is_saved_with_its_best_layout(cli: CommandLine) -> None:
    sweep = cli.run_json(*simulated_sweep(cli.directory))
    best = sweep["ranking"]["items"][0]
    for number, command in enumerate((["show", sweep["sweep"]["id"]], ["export", best["id"], "--format", "arguments"])):
        folder = cli.directory / str(number)
        cli.run(*command, "--save-dir", str(folder))
        assert str(layout(folder)) == best["label"]
        assert "measured" in (folder / "explanation.md").read_text()
