"""``--save-dir``: a folder to launch from."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

from autotuner.catalog.models import load_model
from autotuner.core.codec import from_plain, to_plain
from autotuner.core.layout import Layout
from autotuner.remote import Remote
from autotuner.store.sql import memory_store
from tests.api.service import app_on, serve
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


def texts(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_a_service_is_asked_four_questions_for_the_folder_that_this_process_writes(cli: CommandLine) -> None:
    ours = replace(load_model("llama-3-8b"), name="ours")
    (cli.directory / "ours.json").write_text(json.dumps(to_plain(ours)))
    with serve(app_on(memory_store())) as address:
        with Remote(address) as service:
            service.save_model("ours", ours)
        job = ["--cluster", "h100:8", "--global-batch-size", "64", "--seq-len", "8k", "--stack", "megatron-core"]
        here, there = cli.directory / "here", cli.directory / "there"
        cli.run("predict", "--model", str(cli.directory / "ours.json"), *job, "--save-dir", str(here))
        cli.run("predict", "--model", "ours", *job, "--save-dir", str(there), "--server", address, "-v")
    asked = [line.split()[1] for line in cli.error.splitlines() if line.startswith(("GET", "POST"))]
    assert asked == [f"/api/v1/{path}:" for path in ("predictions", "explanations", "models/ours", "clusters/h100:8")]
    assert texts(there) == texts(here)
