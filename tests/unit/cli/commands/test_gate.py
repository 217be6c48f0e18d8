from __future__ import annotations

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from autotuner.catalog.hardware import load_cluster
from autotuner.core.codec import to_plain
from tests.unit.cli.command_line import CommandLine

TODAY = "fsdp8 mb1 recompute-selective"
SLOWER = "fsdp8 mb1 recompute-full"


@pytest.fixture
def job(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A job on a cluster on which nothing runs."""
    monkeypatch.setenv("AUTOTUNER_POLL_S", "0.05")
    path = cli.directory / "dream.json"
    path.write_text(json.dumps(to_plain(replace(load_cluster("h100:8"), name="dream", engine="simulated"))))
    return ["gate", "--model", "llama-3-8b", "--cluster", str(path), "--global-batch", "64", "--seq-len", "8192"]


@pytest.mark.oracle
def test_a_branch_sets_a_baseline_that_changes_pass_or_fail(cli: CommandLine, job: list[str]) -> None:
    first = cli.run(*job, "--layout", TODAY, "--set-baseline")
    assert "no baseline: nothing is stored under main for this job" in first
    assert "llama-3-8b" in cli.run("baselines")
    junit = cli.directory / "gate.xml"
    again = cli.run(*job, "--layout", TODAY, "--junit", str(junit))
    assert "passed: beside main it is" in again
    assert "Nothing was measured again: " in again
    assert ElementTree.parse(junit).getroot().get("failures") == "0"
    failed = cli.run(*job, "--layout", SLOWER, "--junit", str(junit), code=8)
    assert "failed: beside main it is" in failed
    assert ElementTree.parse(junit).getroot().get("failures") == "1"


def test_without_a_baseline_the_code_says_so_until_one_is_set(cli: CommandLine, job: list[str]) -> None:
    assert "--set-baseline" in cli.run(*job, "--layout", TODAY, code=10)
    assert "no baseline is stored" in cli.run("baselines")
    cli.run(*job, "--layout", TODAY, "--set-baseline")
    (removed,) = cli.run_json("baselines", "--remove", "main")["items"]
    assert removed["name"] == "main"
    assert "mian" in cli.error_of("baselines", "--remove", "mian", code=3)


def test_without_a_layout_the_best_that_is_found_is_judged(cli: CommandLine, job: list[str]) -> None:
    axes = '{"recompute": ["selective", "full"], "precision": ["bf16"], "tensor_parallel_degree": [1]}'
    search = [*job, "--space", axes, "--trials", "3"]
    found = cli.run_json(*search, "--set-baseline")
    assert (found["outcome"], found["layout"]) == ("no_baseline", None)
    assert found["findings"]["measured"]["recompute"] == "selective"


def test_a_layout_that_runs_out_of_memory_fails_however_fast_it_is(cli: CommandLine, job: list[str]) -> None:
    found = cli.run_json(*job, "--layout", "fsdp8 mb8", code=8)
    assert found["outcome"] == "failed"
    assert "(oom)" in found["detail"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--layout", TODAY, "--against", TODAY], "--against"),
        (["--layout", "fsdp7"], "7 ranks"),
        (["--layout", TODAY, "--tolerance", "0.2"], "tolerance"),
        (["--layout", TODAY, "--trainer", "ours"], "ours"),
    ],
    ids=["a layout to predict against", "a layout that cannot run", "tolerance", "trainer"],
)
def test_a_mistake_is_told_apart_from_a_gate_that_failed(
    cli: CommandLine, job: list[str], arguments: list[str], said: str
) -> None:
    assert said in cli.error_of(*job, *arguments, code=3 if said == "ours" else 2)
