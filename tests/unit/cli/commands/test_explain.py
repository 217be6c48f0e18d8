from __future__ import annotations

import json

import pytest

from tests.unit.cli.command_line import JOB, CommandLine


def test_explain_prints_parts_limits_memory_and_changes_of_a_layout(cli: CommandLine) -> None:
    text = cli.run("explain", *JOB, "--layout", "zero2 tp8 pp4 mb1 sp recompute-full")
    assert "zero2 tp8 pp4 1f1b mb1 sp recompute-full flash bf16" in text
    assert "collectives of 8 tensor ranks over nvlink4" in text
    assert "the limit of" in text
    assert "recompute interval 1 → 2 removes" in text
    assert "8 kv heads do not split over 16 tensor ranks" in text


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


def test_the_rules_of_a_published_table_are_printed_without_a_service(cli: CommandLine) -> None:
    answer = cli.run_json("rules", "tests/published/aleph_alpha_layouts_sweep.csv")
    assert answer["num_measured"] == 267
    assert answer["items"][0]["statement"].startswith("recompute full → none: +30.8 % throughput")
    cli.run("rules", "missing.csv", code=2)
    assert "cannot be read" in cli.error
