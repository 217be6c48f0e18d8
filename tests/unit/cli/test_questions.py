"""Questions: predict, explain, plan, export and import."""

from __future__ import annotations

import io
import json
import re
import shlex
from pathlib import Path

import pytest
import typer

from autotuner.catalog.named import model_described
from autotuner.cli.files import read_text
from autotuner.cli.main import app
from autotuner.core.choices import ExportFormat
from autotuner.core.errors import InvalidInput
from autotuner.core.text import described
from tests.unit.cli.command_line import JOB, CommandLine

# ---------------------------------------------------------------- predict


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
    assert torch["items"][0]["prediction"]["step_time_s"] != other["items"][0]["prediction"]["step_time_s"]


def test_predict_marks_fp8_and_shows_the_best_though_what_runs_today_cannot(cli: CommandLine) -> None:
    text = cli.run("predict", *JOB, "--limit", "2")
    ranks = [line.split()[0] for line in text.splitlines() if line.startswith((" 1", " 2", "  –"))]
    assert ranks == ["1*", "2*", "–"]
    assert "its losses may differ" in text
    text = cli.run("predict", *JOB, "--limit", "1", "--current", "tp3 mb1")
    assert "\n 1*  " in text
    assert "The layout in use cannot run here: tp3 mb1 flash bf16" in text
    assert "accelerators of the cluster, 64, but it is 3" in text


def test_the_first_line_says_how_large_a_model_is_and_names_a_cluster_not_its_file(cli: CommandLine) -> None:
    assert cli.run("predict", *JOB, "--limit", "1").startswith("llama-3-70b (70.6B parameters) on h100:64, 1024 ")
    sparse = ("--model", "mixtral-8x7b", "--cluster", "h100:8", "--global-batch-size", "64", "--seq-len", "8192")
    said = "mixtral-8x7b (46.7B parameters, 12.9B active)"
    assert cli.run("explain", *sparse, "--layout", "fsdp8 ep8").startswith(f"{said}: fsdp8 ep8")
    path = cli.directory / "written.json"
    path.write_text('{"name": "ours", "accelerator": "h100", "num_nodes": 1}')
    text = cli.run("predict", "--model", "llama-3-8b", "--cluster", str(path), *JOB[4:], "--limit", "1")
    assert " on ours, 1024 sequences" in text.splitlines()[0]


def test_predict_stores_nothing(first_cli: CommandLine) -> None:
    first_cli.run("predict", *JOB)
    assert list(first_cli.directory.iterdir()) == []


def test_a_config_json_of_hugging_face_is_read(cli: CommandLine) -> None:
    path = cli.directory / "config.json"
    path.write_text(json.dumps(CONFIG))
    assert cli.run_json("predict", "--model", str(path), *JOB[2:])["items"]


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
    assert model_described(described(file, "model", read_text)).name == name


def test_predict_takes_lengths_from_a_file_or_as_a_histogram(cli: CommandLine, tmp_path: Path) -> None:
    counted = tmp_path / "lengths.txt"
    counted.write_text("1024\n1024\n8192\n")
    layout = ("--layout", "fsdp8 tp8 mb1 sp recompute-full")
    by_file, by_text, whole = (
        cli.run_json("predict", *JOB, *layout, *lengths)["items"][0]["prediction"]
        for lengths in (("--lengths", str(counted)), ("--lengths", "1024:2, 8192"), ())
    )
    assert by_file == by_text
    assert by_file["step_time_s"] < whole["step_time_s"]
    assert by_file["imbalance"] > 0
    assert whole["imbalance"] is None


# ---------------------------------------------------------------- explain


def test_explain_says_below_which_bandwidth_a_lossy_exchange_is_faster(cli: CommandLine) -> None:
    model = ["--model", "llama-3-8b", *JOB[2:]]
    layout = ["--layout", "dp8 fsdp8 mb1 reshard recompute-selective flash bf16"]
    text = cli.run("explain", *model, *layout)
    assert "between nodes" in text
    assert "Shorter than with every full exchange: demo below " in " ".join(text.split())
    curve = cli.run_json("explain", *model, *layout)["bandwidth"]
    assert curve["own"] == "HSDP"
    assert curve["spans"][-1]["high_bytes_per_s"] == curve["bandwidths_bytes_per_s"][-1]


def test_explain_reads_a_layout_from_json_too(cli: CommandLine) -> None:
    layout = {"data_parallel_shard_degree": 64, "shard_level": "parameters"}
    path = cli.directory / "layout.json"
    path.write_text(json.dumps(layout))
    answers = [cli.run_json("explain", *JOB, "--layout", text) for text in (json.dumps(layout), str(path), "fsdp64")]
    assert answers[0] == answers[1] == answers[2]


def test_the_rules_of_a_sweep_that_measured_nothing_have_no_pairs(cli: CommandLine) -> None:
    created = cli.run_json("sweep", *JOB, "--no-wait")
    text = cli.run("rules", created["id"])
    assert "From 0 measured trials" in text
    assert text.count("no pairs") == 6


# ---------------------------------------------------------------- plan
RUN = ("--model", "llama-3-8b", "--tokens", "100B", "--global-batch-size", "256")
SMALL = ("--accelerators", "h100", "--sizes", "16", "--space", '{"recompute": ["none"], "tensor_parallel_degree": [1]}')


def test_own_prices_are_called_yours_and_one_that_nobody_looked_up_recalled(cli: CommandLine) -> None:
    recalled = cli.run("plan", *RUN, "--accelerators", "b200", *SMALL[2:])
    assert "Modal price list, per second times 3,600; recalled, not looked up" in " ".join(recalled.split())
    assert "may be different today. Give your own" in recalled
    assert "recalled" not in cli.run("plan", *RUN, *SMALL)
    text = cli.run("plan", *RUN, *SMALL, "--price", "h100=2.1")
    assert "2.10" in text
    assert "yours" in text


def test_a_region_says_what_its_energy_emits_and_leaves_what_hosts_draw(cli: CommandLine) -> None:
    here, there = (cli.run_json("plan", *RUN, *SMALL, *said) for said in ((), ("--tariff", "france")))
    plain, in_france = (one["result"]["candidates"][0]["predicted"]["energy_kwh"]["median"] for one in (here, there))
    assert in_france == pytest.approx(1.2 * plain)  # the effectiveness of buildings that regions come with


def test_a_deadline_that_nothing_keeps_is_said(cli: CommandLine) -> None:
    text = cli.run("plan", *RUN, *SMALL, "--deadline", "1h")
    assert "The chance to meet the deadline of 1 h is <1 %; no compared cluster is likely to meet it" in text
    assert "turns out to be the best choice" not in text  # of one cluster nobody asks


# ---------------------------------------------------------------- export


def test_a_folder_parts_arguments_from_the_file_and_notes_options_that_the_trainer_lacks(cli: CommandLine) -> None:
    cli.run("export", "fsdp64 mb1 fp8 delayed", *JOB, "--format", "torchtitan")
    assert "Options that the format cannot express" in cli.error
    assert "delayed" in cli.error
    folder = cli.directory / "launch"
    cli.run("export", "fsdp64 mb1 reshard", *JOB, "--format", "accelerate")
    assert "one file after the other: arguments, accelerate.yaml" in cli.error
    cli.run("export", "fsdp64 mb1 reshard", *JOB, "--format", "accelerate", "--output", str(folder))
    assert (folder / "accelerate.yaml").read_text().startswith("compute_environment")
    assert "compute_environment" not in (folder / "arguments.txt").read_text()


def test_the_help_names_every_format() -> None:
    command = typer.main.get_group(app).commands["export"]
    (said,) = (parameter.help for parameter in command.params if parameter.name == "format")  # type: ignore[attr-defined]  # click.Option has it
    assert [name for name in ExportFormat if name not in said] == []


WRITTEN = "fsdp8 tp8 mb1 sp recompute-full flash bf16"


@pytest.fixture
def script(cli: CommandLine) -> Path:
    """A launch of our own trial."""
    folder = cli.directory / "launch"
    return Path(cli.run("export", WRITTEN, *JOB, "--format", "torchrun", "--output", str(folder)).strip())


def test_a_script_is_read_as_the_layout_with_its_model_and_job(cli: CommandLine, script: Path) -> None:
    text = cli.run("import", str(script))
    assert WRITTEN in text
    assert "llama-3-70b (70.6B parameters)" in text
    assert "64 ranks; 1024 sequences of 8192 tokens" in text
    assert "ignored" in text
    job = "--model llama-3-70b --cluster CLUSTER --global-batch-size 1024 --seq-len 8192"
    assert f"autotuner explain {job} --layout '{WRITTEN}'" in text
    assert f"autotuner predict {job} --current '{WRITTEN}' --format torchrun" in text


def test_a_configuration_may_come_from_a_pipe(cli: CommandLine, script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(script.read_text()))
    assert cli.run_json("import", "-") == cli.run_json("import", str(script))


def test_a_file_without_end_is_refused() -> None:
    with pytest.raises(
        InvalidInput, match="config = '/dev/zero': has more than 2,000,000 characters, the most that can be read"
    ):
        read_text("/dev/zero", "config")


def test_the_model_of_a_configuration_can_be_kept_as_a_file(cli: CommandLine, script: Path) -> None:
    path = cli.directory / "model.json"
    text = cli.run("import", str(script), "--save-model", str(path))
    assert f"--model {path}" in text
    assert json.loads(path.read_text())["num_layers"] == 80


LAUNCHES = Path(__file__).parents[1] / "exports" / "launches"


def test_a_published_launch_stands_beneath_the_best_that_its_trainer_can_run(cli: CommandLine) -> None:
    text = cli.run("import", str(LAUNCHES / "llama3_8b_fp8.sh"), "--cluster", "h100:8")
    assert "zero8 mb1 cudnn fp8 delayed" in text
    assert "changed  --sequence-parallel" in text
    assert "Megatron turns it off, because there is one tensor rank" in text
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
def test_facts_that_a_comparison_lacks_are_named_below_the_read_configuration(
    cli: CommandLine, arguments: list[str], said: str
) -> None:
    path = str(LAUNCHES / "llama_8b_zero_offload.json")
    text = cli.run("import", path, "--cluster", "h100:4", *arguments, code=3 if "--stack" in arguments else 2)
    assert "fsdp4 mb1 reshard flash bf16" in text
    assert said in " ".join(cli.error.split())


def test_a_layout_in_use_that_does_not_fit_or_cannot_run_is_marked(cli: CommandLine) -> None:
    job = ["--cluster", "h100:4", "--seq-len", "4096", "--model", "llama-3-70b"]
    path = str(LAUNCHES / "llama_8b_zero_offload.json")
    assert "layout in use: fsdp4 mb1" in cli.run("import", path, *job)
    assert "The layout in use cannot run here" in cli.run("import", path, *job, "--ranks", "2", "--model", "llama-3-8b")


def test_a_program_gets_what_was_read_with_the_comparison(cli: CommandLine) -> None:
    answer = cli.run_json("import", str(LAUNCHES / "llama3_8b_fp8.sh"), "--cluster", "h100:8")
    assert answer["label"] == answer["compared"]["current"]["label"] == "zero8 mb1 cudnn fp8 delayed"
    assert cli.run_json("import", str(LAUNCHES / "llama3_8b_fp8.sh"))["compared"] is None
