from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from autotuner.cli.inputs import read_model
from tests.unit.cli.command_line import JOB, CommandLine


def test_predict_prints_the_ten_best_layouts_with_the_parts_of_their_steps(cli: CommandLine) -> None:
    text = cli.run("predict", *JOB)
    assert "tp" in text
    assert "compute" in text
    assert "All figures are predicted" in text
    ranks = [line.split()[0].rstrip("*") for line in text.splitlines() if line.strip()]
    assert [rank for rank in ranks if rank.isdigit()] == [str(rank) for rank in range(1, 11)]


def test_predict_as_json_holds_breakdowns_that_sum_to_the_step(cli: CommandLine) -> None:
    items = cli.run_json("predict", *JOB)["items"]
    assert len(items) == 10
    for item in items:
        parts = item["predicted"]["step_time"].values()
        assert sum(parts) == pytest.approx(item["predicted"]["step_time_s"])  # floating-point addition


def test_predict_says_every_number_with_its_interval(cli: CommandLine) -> None:
    text = cli.run("predict", *JOB, "--limit", "1")
    (row,) = [line for line in text.splitlines() if line.startswith(" 1* ")]
    assert re.search(r"\d ± \d+\.\d %", row)  # MFU, in points
    assert re.search(r"s ± \d+ %", row)
    assert "80 % interval" in text


def test_predict_says_what_was_never_compared_with_a_measured_run(cli: CommandLine) -> None:
    def said(*more: str) -> str:
        return " ".join(cli.run("predict", *JOB, "--limit", "1", *more).split())

    assert "Predictions for dense models on nemo with h100-sxm were compared with" in said("--stack", "nemo")
    assert "Predictions for dense models on torch with h100-sxm were never compared with a measured run" in said()
    assert "activations offloaded." in said("--space", '{"offload_activations": [true]}')


def test_predict_takes_the_software_that_would_run_it(cli: CommandLine) -> None:
    torch, other = (
        cli.run_json("predict", *JOB, "--space", '{"tensor_parallel_degree": [8]}', "--limit", "1", "--stack", stack)
        for stack in ("torch", "aleph-alpha")  # the second gathers the logits of tensor ranks
    )
    assert torch["items"][0]["predicted"]["step_time_s"] != other["items"][0]["predicted"]["step_time_s"]


def test_predict_marks_fp8_and_shows_the_best_in_bf16_beside_it(cli: CommandLine) -> None:
    text = cli.run("predict", *JOB, "--limit", "2")
    ranks = [line.split()[0] for line in text.splitlines() if line.startswith((" 1", " 2", "  –"))]
    assert ranks == ["1*", "2*", "–"]
    assert "its losses may differ" in text


def test_predict_has_an_exit_code_of_its_own_where_nothing_fits(cli: CommandLine) -> None:
    job = ["--model", "llama-3-70b", "--cluster", "h100:8", "--global-batch", "64", "--seq-len", "8192"]
    text = cli.run("predict", *job, code=7)
    assert "nothing fits: the nearest layout lacks" in text
    assert "the smallest cluster that does: " in text
    assert json.loads(cli.run("predict", *job, "--json", code=7))["shortfall"]["missing_bytes"] > 0


def test_the_first_line_says_how_large_the_model_is_and_how_much_of_it_a_token_meets(cli: CommandLine) -> None:
    assert cli.run("predict", *JOB, "--limit", "1").startswith("llama-3-70b (70.6B parameters) on h100:64, 1024 ")
    sparse = ("--model", "mixtral-8x7b", "--cluster", "h100:8", "--global-batch", "64", "--seq-len", "8192")
    said = "mixtral-8x7b (46.7B parameters, 12.9B active)"
    assert cli.run("explain", *sparse, "--layout", "fsdp8 ep8").startswith(f"{said}\n")


def test_predict_predicts_one_layout(cli: CommandLine) -> None:
    text = cli.run("predict", *JOB, "--layout", "zero2 tp8 pp4 mb1 sp recompute-full")
    assert "zero2 tp8 pp4 1f1b mb1 sp recompute-full flash bf16" in text
    assert "legal layouts fit" not in text
    assert "no option" not in text.lower()
    assert "tensor_parallel_degree" in cli.error_of("predict", *JOB, "--layout", "tp3")
    cli.run("predict", *JOB, "--layout", "fsdp64 mb16", code=7)


def test_predict_shows_what_runs_today_beneath_the_best(cli: CommandLine) -> None:
    today = "zero2 tp8 pp4 1f1b mb1 sp flash bf16"
    lines = cli.run("predict", *JOB, "--limit", "1", "--current", today).splitlines()
    assert any(line.split()[:2] == ["now", "zero2"] and today in line for line in lines)
    assert any(line.startswith("now → 1: ") and "more tokens per second" in line for line in lines)
    assert any(line.startswith("now → –: ") for line in lines)


def test_what_cannot_run_today_does_not_keep_the_best_from_being_shown(cli: CommandLine) -> None:
    text = cli.run("predict", *JOB, "--limit", "1", "--current", "tp3 mb1")
    assert "\n 1*  " in text
    assert "What runs today cannot run here: tp3 mb1 flash bf16" in text
    assert "data_parallel_replicate_degree: the degrees multiply to 3 ranks, the cluster has 64" in text


def test_predict_stores_nothing(first_cli: CommandLine) -> None:
    first_cli.run("predict", *JOB)
    assert list(first_cli.directory.iterdir()) == []


def test_a_config_json_of_hugging_face_is_read(cli: CommandLine) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "num_hidden_layers": 4,
        "vocab_size": 1000,
    }
    path = cli.directory / "config.json"
    path.write_text(json.dumps(config))
    answer = cli.run_json("predict", "--model", str(path), *JOB[2:])
    assert answer["items"]


CONFIG = {"model_type": "llama", "hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 8}
CONFIG |= {"num_key_value_heads": 8, "num_hidden_layers": 4, "vocab_size": 1000}


@pytest.mark.parametrize(
    ("file", "own", "name"),
    [
        ("config.json", {"_name_or_path": "lab/Tiny-4L"}, "Tiny-4L"),
        ("tiny.json", {}, "tiny"),
        ("Tiny-4L/config.json", {}, "Tiny-4L"),
        ("config.json", {}, "llama"),
    ],
)
def test_a_model_from_a_config_json_has_the_name_that_the_file_or_its_path_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, own: dict[str, str], name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(file).parent.mkdir(exist_ok=True)
    Path(file).write_text(json.dumps({**CONFIG, **own}))
    assert read_model(file).name == name


def test_the_first_line_calls_a_cluster_by_its_name_and_not_by_its_file(cli: CommandLine) -> None:
    path = cli.directory / "written.json"
    path.write_text('{"name": "ours", "accelerator": "h100", "num_nodes": 1}')
    text = cli.run("predict", "--model", "llama-3-8b", "--cluster", str(path), *JOB[4:], "--limit", "1")
    assert " on ours, 1024 sequences" in text.splitlines()[0]


def test_predict_takes_lengths_from_a_file_or_as_a_histogram(cli: CommandLine, tmp_path: Path) -> None:
    counted = tmp_path / "lengths.txt"
    counted.write_text("1024\n1024\n8192\n")
    layout = ("--layout", "fsdp8 tp8 mb1 sp recompute-full")
    by_file, by_text, whole = (
        cli.run_json("predict", *JOB, *layout, *lengths)["items"][0]["predicted"]
        for lengths in (("--lengths", str(counted)), ("--lengths", "1024:2, 8192"), ())
    )
    assert by_file == by_text
    assert by_file["step_time_s"] < whole["step_time_s"]
    assert by_file["imbalance"] > 0
    assert whole["imbalance"] is None
