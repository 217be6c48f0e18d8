"""``autotuner gate``, with trials and by prediction."""

from __future__ import annotations

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from autotuner.catalog.hardware import load_cluster
from autotuner.core.codec import to_plain
from tests.unit.cli.command_line import CommandLine


@pytest.fixture
def job(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A job on a cluster on which nothing runs."""
    monkeypatch.setenv("AUTOTUNER_POLL_S", "0.05")
    path = cli.directory / "dream.json"
    path.write_text(json.dumps(to_plain(replace(load_cluster("h100:8"), name="dream", engine="simulated"))))
    return ["gate", "--model", "llama-3-8b", "--cluster", str(path), "--global-batch", "64", "--seq-len", "8192"]


def test_without_a_layout_the_best_that_is_found_is_judged(cli: CommandLine, job: list[str]) -> None:
    axes = '{"recompute": ["selective", "full"], "precision": ["bf16"], "tensor_parallel_degree": [1]}'
    search = [*job, "--space", axes, "--trials", "3"]
    found = cli.run_json(*search, "--set-baseline")
    assert (found["outcome"], found["request"]["gate"]["layout"]) == ("no_baseline", None)
    assert found["result"]["findings"]["measured"]["recompute"] == "selective"


JOB = ["--model", "llama-3-70b", "--cluster", "h100:64x8", "--global-batch", "1024", "--seq-len", "8192"]
TODAY = "fsdp16 tp8 pp4 1f1b mb1 sp"
PREDICT = ["gate", "--predict", "--no-dry-run", *JOB, "--against", TODAY]


def test_where_nobody_stored_a_baseline_it_is_said_how_one_is_stored(cli: CommandLine) -> None:
    assert "no baseline is stored; `autotuner gate --set-baseline` stores one" in cli.run("baselines")


def test_files_for_ci_are_written_where_it_failed_too(cli: CommandLine) -> None:
    junit, summary, badge = (cli.directory / "of-ci" / name for name in ("junit.xml", "summary.md", "badge.svg"))
    files = ["--junit", str(junit), "--summary", str(summary), "--badge", str(badge)]
    cli.run(*PREDICT, "--layout", "fsdp16 tp8 pp4 gpipe mb1 sp", *files, code=8)
    assert ElementTree.parse(junit).getroot().get("failures") == "1"
    assert summary.read_text().startswith("## ❌ llama-3-70b on h100:64x8, predicted: failed")
    assert ElementTree.parse(badge).getroot().get("aria-label", "").startswith("MFU: ")


def test_a_configuration_of_a_trainer_is_read_as_a_layout(cli: CommandLine) -> None:
    config = cli.directory / "train.toml"
    degrees = "data_parallel_shard_degree = 16\ntensor_parallel_degree = 8\npipeline_parallel_degree = 4"
    schedule = 'pipeline_parallel_schedule = "1F1B"\npipeline_parallel_microbatch_size = 1'
    config.write_text(f"[training]\nlocal_batch_size = 64\nseq_len = 8192\n[parallelism]\n{degrees}\n{schedule}\n")
    found = cli.run_json("gate", "--predict", "--no-dry-run", *JOB, "--layout", str(config))
    assert found["candidate"]["tensor_parallel_degree"] == 8
    assert found["candidate"]["pipeline_parallel_degree"] == 4


@pytest.mark.oracle
def test_memory_is_counted_in_a_dry_run(cli: CommandLine) -> None:
    job = ["--model", "llama-demo", "--cluster", "cpu:2", "--global-batch", "2", "--seq-len", "32"]
    found = cli.run_json("gate", "--predict", *job, "--layout", "zero2 mb1 fp32")
    assert found["peak"]["is_counted"]


def test_where_nothing_can_be_counted_the_prediction_stands_and_why_is_said(cli: CommandLine) -> None:
    refused = ["gate", "--predict", *JOB, "--layout", f"{TODAY} fp8 delayed"]
    assert "Its memory was predicted, not counted in a dry run: " in cli.run(*refused)
