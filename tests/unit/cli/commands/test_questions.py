from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from autotuner.cli.inputs import read_model
from autotuner.cli.main import app
from autotuner.core.choices import ExportFormat
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


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([*JOB, "--layout", "tp8"], 2, "the degrees multiply to 8 ranks, the cluster has 64"),
        ([*JOB, "--layout", "fspd64"], 2, "nearest legal value: fsdp64"),
        ([*JOB, "--layout", "{"], 2, "must be words or JSON"),
        ([*JOB, "--layout", '{"tensor_paralel_degree": 8}'], 2, "tensor_parallel_degree"),
        ([*JOB, "--layout", "missing.json"], 2, "cannot be read"),
        ([*JOB, "--layout", "fsdp64", "--stack", "megatrn"], 3, "did you mean 'megatron'"),
        (JOB, 2, "--layout"),
        (["sw-none-0000"], 3, "no trial 'sw-none-0000'"),
        (["sw-none-0000", "--global-batch", "8"], 2, "must be left out when a trial is given"),
        (["sw-none-0000", "--stack", "torch"], 2, "must be left out when a trial is given"),
    ],
)
def test_explaining_what_cannot_be_explained_says_why(
    cli: CommandLine, arguments: list[str], code: int, said: str
) -> None:
    cli.run("explain", *arguments, code=code)
    assert said in " ".join(cli.error.split())


def test_the_rules_of_a_sweep_that_measured_nothing_have_no_pairs(cli: CommandLine) -> None:
    created = cli.run_json("sweep", *JOB, "--no-wait")
    text = cli.run("rules", created["id"])
    assert "from 0 measured trials" in text
    assert text.count("no pairs") == 6
    cli.run("rules", "sw-none", code=3)
    assert "sw-none" in cli.error


# ---------------------------------------------------------------- plan
RUN = ("--model", "llama-3-8b", "--tokens", "100B", "--global-batch", "256")
SMALL = ("--accelerators", "h100", "--sizes", "16", "--space", '{"recompute": ["none"], "tensor_parallel_degree": [1]}')


def test_a_price_that_nobody_looked_up_is_said_to_be_recalled(cli: CommandLine) -> None:
    recalled = cli.run("plan", *RUN, "--accelerators", "b200", *SMALL[2:])
    assert "Modal price list, per second times 3,600; recalled, not looked up" in " ".join(recalled.split())
    assert "may differ today. Give yours with --price" in recalled
    assert "recalled" not in cli.run("plan", *RUN, *SMALL)


def test_own_prices_are_called_yours(cli: CommandLine) -> None:
    text = cli.run("plan", *RUN, *SMALL, "--price", "h100=2.1")
    assert "2.10" in text
    assert "yours" in text


@pytest.mark.parametrize(
    ("options", "said", "code"),
    [
        (("--deadline", "30"), "30d", 2),
        (("--price", "h100"), "h100=2.1", 2),
        (("--price", "2.3"), "h100=2.3", 2),
        (("--sizes", "many"), "must be a number", 2),
        (("--sizes", "8.5"), "must be a whole number, others behind commas; nearest legal value: 8", 2),
        (("--more-memory", "40GB"), "nearest legal value: 40", 2),
        (("--accelerators", "h10"), "h100", 3),
    ],
)
def test_what_is_wrong_is_said_with_what_is_near(
    cli: CommandLine, options: tuple[str, str], said: str, code: int
) -> None:
    assert said in cli.error_of("plan", *RUN, *options, code=code)


def test_a_region_says_what_its_energy_emits_and_leaves_what_hosts_draw(cli: CommandLine) -> None:
    here, there = (cli.run_json("plan", *RUN, *SMALL, *said) for said in ((), ("--tariff", "france")))
    plain, in_france = (one["answer"]["contenders"][0]["predicted"]["energy_kwh"]["median"] for one in (here, there))
    assert in_france == pytest.approx(1.2 * plain)  # the effectiveness of buildings that regions come with


def test_a_deadline_that_nothing_keeps_is_said(cli: CommandLine) -> None:
    text = cli.run("plan", *RUN, *SMALL, "--deadline", "1h")
    assert "The chance to meet the deadline of 1 h is <1 %; no cluster that was compared is likely to" in text
    assert "turns out to be the best choice" not in text  # of one cluster nobody asks


# ---------------------------------------------------------------- export
LAYOUT = "fsdp8 tp8 mb1 sp recompute-full"


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


def test_arguments_and_a_file_are_parted_into_a_folder(cli: CommandLine) -> None:
    folder = cli.directory / "launch"
    cli.run("export", "fsdp64 mb1 reshard", *JOB, "--format", "accelerate")
    assert "one after the other: arguments, accelerate.yaml" in cli.error
    cli.run("export", "fsdp64 mb1 reshard", *JOB, "--format", "accelerate", "--output", str(folder))
    assert (folder / "accelerate.yaml").read_text().startswith("compute_environment")
    assert "compute_environment" not in (folder / "arguments.txt").read_text()


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


def test_the_help_names_every_format() -> None:
    command = typer.main.get_group(app).commands["export"]
    (said,) = (parameter.help for parameter in command.params if parameter.name == "wanted")  # type: ignore[attr-defined]  # click.Option has it
    assert [name for name in ExportFormat if name not in said] == []
