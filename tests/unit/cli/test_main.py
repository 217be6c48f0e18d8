"""The command line as a user runs it: arguments in; text, JSON and an exit code out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from autotuner.cli import main
from autotuner.cli.main import app
from autotuner.domain.wire import to_dict
from tests.builders import tiny_model

JOB = ["--model", "llama-3-70b", "--cluster", "h100:64", "--global-batch", "1024", "--seq-len", "8192"]


class CommandLine:
    """Runs commands on a database of its own."""

    def __init__(self, directory: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self._capture = capture
        self.error = ""

    def run(self, *arguments: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        output, self.error = self._capture.readouterr()
        assert ended.value.code == code, self.error
        return output

    def run_json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self.run(*arguments, "--json", code=code))


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    monkeypatch.setenv("AUTOTUNER_DATABASE_URL", f"sqlite:///{tmp_path}/autotuner.db")
    monkeypatch.setenv("AUTOTUNER_WORK_DIR", str(tmp_path / "trials"))
    return CommandLine(tmp_path, capsys)


def tiny_sweep(directory: Path, *more: str) -> list[str]:
    """A sweep of the tiny model on two cores."""
    model = directory / "tiny.json"
    model.write_text(json.dumps(to_dict(tiny_model())))
    job = ["--model", str(model), "--cluster", "cpu:2", "--global-batch", "8", "--seq-len", "64"]
    return ["sweep", *job, "--warmup-steps", "0", "--measured-steps", "1", *more]


def test_predict_prints_the_ten_best_layouts_with_the_parts_of_their_steps(cli: CommandLine) -> None:
    text = cli.run("predict", *JOB)
    assert "tp" in text
    assert "comp" in text
    assert "nothing measured" in text
    assert [line.split()[0] for line in text.splitlines() if line.strip()[:2].strip().isdigit()] == [
        str(rank) for rank in range(1, 11)
    ]


def test_predict_as_json_holds_breakdowns_that_sum_to_the_step(cli: CommandLine) -> None:
    items = cli.run_json("predict", *JOB)["items"]
    assert len(items) == 10
    for item in items:
        parts = item["predicted"]["step_time"].values()
        assert sum(parts) == pytest.approx(item["predicted"]["step_time_s"])  # floating-point addition


def test_predict_says_every_number_with_its_interval(cli: CommandLine) -> None:
    text = cli.run("predict", *JOB, "--limit", "1")
    (row,) = [line for line in text.splitlines() if line.startswith(" 1 ")]
    assert re.search(r"\d ± \d+\.\d %", row)  # MFU, in points
    assert re.search(r"s ± \d+ %", row)
    assert "80 % interval" in text
    assert "not validated" not in text
    assert "not validated on this device" in cli.run("predict", *JOB[:2], "--cluster", "mi300x:64", *JOB[4:])


def test_predict_takes_the_software_that_would_run_it(cli: CommandLine) -> None:
    torch, other = (
        cli.run_json("predict", *JOB, "--space", '{"tensor_parallel_degree": [8]}', "--limit", "1", "--stack", stack)
        for stack in ("torch", "aleph-alpha")  # the second gathers the logits of tensor ranks
    )
    assert torch["items"][0]["predicted"]["step_time_s"] != other["items"][0]["predicted"]["step_time_s"]


def test_explain_prints_parts_limits_memory_and_changes_of_a_layout(cli: CommandLine) -> None:
    text = cli.run("explain", *JOB, "--layout", "zero2 tp8 pp4 mb1 sp recompute-full")
    assert "zero2 tp8 pp4 1f1b mb1 sp recompute-full flash bf16" in text
    assert "collectives of 8 tensor ranks over nvlink4" in text
    assert "the limit of" in text
    assert "recompute full → none removes" in text
    assert "8 kv heads do not split over 16 tensor ranks" in text


def test_explain_reads_a_layout_from_json_too(cli: CommandLine) -> None:
    layout = {"data_parallel_shard_degree": 64, "shard_level": "parameters"}
    path = cli.directory / "layout.json"
    path.write_text(json.dumps(layout))
    answers = [cli.run_json("explain", *JOB, "--layout", text) for text in (json.dumps(layout), str(path), "fsdp64")]
    assert answers[0] == answers[1] == answers[2]


def test_predict_stores_nothing(cli: CommandLine) -> None:
    cli.run("predict", *JOB)
    assert list(cli.directory.iterdir()) == []


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


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (["--model", "llama-3-70x"], 3, "did you mean 'llama-3-70b'"),
        (["--cluster", "h100:63"], 2, "nearest legal value"),
        (["--global-batch", "0"], 2, "global_batch_size"),
        (["--space", "{"], 2, "must be JSON"),
        (["--space", '{"recompte": ["none"]}'], 2, "recompute"),
        (["--model", "missing.json"], 2, "cannot be read"),
        (["--server", "http://127.0.0.1:9"], 5, "autotuner serve"),
        (["--limit", "0"], 2, "limit"),
        (["--stack", "megatrn"], 3, "did you mean 'megatron'"),
    ],
)
def test_wrong_input_ends_with_its_exit_code_and_says_what_is_right(
    cli: CommandLine, change: list[str], code: int, said: str
) -> None:
    cli.run("predict", *JOB, *change, code=code)
    assert said in " ".join(cli.error.split())


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


def test_the_rules_of_a_published_table_are_printed_without_a_service(cli: CommandLine) -> None:
    answer = cli.run_json("rules", "tests/published/aleph_alpha_layouts_sweep.csv")
    assert answer["num_measured"] == 267
    assert answer["items"][0]["statement"].startswith("recompute full → none: +30.8 % throughput")
    cli.run("rules", "missing.csv", code=2)
    assert "cannot be read" in cli.error


def test_a_sweep_keeps_the_gain_that_it_should_stop_below(cli: CommandLine) -> None:
    created = cli.run_json("sweep", *JOB, "--no-wait", "--min-gain", "0.05")
    assert created["budget"]["min_gain"] == 0.05
    cli.run("sweep", *JOB, "--no-wait", "--min-gain", "5", code=2)
    assert "min_gain" in cli.error


def test_a_sweep_that_is_not_waited_for_is_queued_shown_and_cancelled(cli: CommandLine) -> None:
    created = cli.run_json("sweep", *JOB, "--no-wait", "--name", "tonight")
    assert created["state"] == "queued"
    assert created["id"] in cli.run("show", created["id"])
    assert cli.run_json("cancel", created["id"])["state"] == "cancelled"


def test_showing_a_sweep_that_is_not_there_says_so(cli: CommandLine) -> None:
    cli.run("show", "sw-none", code=3)
    assert "sw-none" in cli.error


def test_a_sweep_that_is_waited_for_runs_its_trials_and_prints_their_ranking(cli: CommandLine) -> None:
    answer = cli.run_json(*tiny_sweep(cli.directory, "--trials", "1"))
    assert answer["sweep"]["state"] == "complete"
    assert [item["rank"] for item in answer["ranking"]] == [1]
    assert answer["ranking"][0]["measured"]["mfu"] > 0
    assert "limited by" in cli.run("explain", answer["trials"][0]["id"])


def test_a_sweep_in_which_nothing_is_measured_ends_with_its_own_exit_code(cli: CommandLine) -> None:
    text = cli.run(*tiny_sweep(cli.directory, "--trials", "1", "--timeout", "0.5"), code=6)
    assert "timeout: no result within 500 ms" in text


def test_a_sweep_on_devices_that_this_machine_does_not_have_is_refused_with_the_reason(cli: CommandLine) -> None:
    cli.run("sweep", *JOB[:2], "--cluster", "v100:512", *JOB[4:], "--space", '{"precision": ["fp32"]}', code=2)
    assert "GPUs" in cli.error


def test_the_catalog_lists_accelerators_and_models(cli: CommandLine) -> None:
    text = cli.run("catalog")
    assert "h100-sxm" in text
    assert "deepseek-v3" in text
    assert "megatron" in text


def test_migrate_makes_a_database_that_can_be_served(cli: CommandLine) -> None:
    cli.run("migrate")
    assert (cli.directory / "autotuner.db").exists()


def test_every_command_says_what_it_does(cli: CommandLine) -> None:
    text = cli.run("--help")
    for command in app.registered_commands:
        assert command.callback is not None
        assert command.callback.__doc__
        assert (command.name or command.callback.__name__) in text
