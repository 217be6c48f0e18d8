from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tests.unit.cli.command_line import CommandLine

JOB = ["--model", "llama-3-70b", "--cluster", "h100:64x8", "--global-batch", "1024", "--seq-len", "8192"]
TODAY = "fsdp16 tp8 pp4 1f1b mb1 sp"
PREDICT = ["gate", "--predict", "--no-dry-run", *JOB, "--against", TODAY]


def test_files_for_ci_are_written_where_it_failed_too(cli: CommandLine) -> None:
    junit, summary, badge = (cli.directory / "of-ci" / name for name in ("junit.xml", "summary.md", "badge.svg"))
    files = ["--junit", str(junit), "--summary", str(summary), "--badge", str(badge)]
    cli.run(*PREDICT, "--layout", "fsdp16 tp8 pp4 gpipe mb1 sp", *files, code=8)
    assert ElementTree.parse(junit).getroot().get("failures") == "1"
    assert summary.read_text().startswith("### ❌ llama-3-70b on h100:64x8, predicted: failed")
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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--layout", TODAY, "--against", "fsdp16 tp8 pp5 1f1b mb1 sp"], "--against"),
        (["--layout", "fsdp16 tp8 pp4 1f1b mb1 spp"], "spp"),
        ([], "--layout"),
        (["--layout", TODAY, "--junit", "/dev/null/junit.xml"], "--junit"),
    ],
    ids=["a baseline that cannot run", "an unknown word", "no layout", "a file that cannot be written"],
)
def test_a_mistake_is_told_apart_from_a_gate_that_failed(cli: CommandLine, arguments: list[str], said: str) -> None:
    assert said in cli.error_of("gate", "--predict", "--no-dry-run", *JOB, *arguments)
