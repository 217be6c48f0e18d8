"""The examples of CI jobs, run by their own steps against a live service."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from autotuner.catalog.hardware import load_cluster
from autotuner.core.codec import to_plain
from tests.patience import PATIENCE_S
from tests.system.ci_jobs import EXAMPLES, Done, github_job, gitlab_job
from tests.system.service import Service, until

TODAY = {"data_parallel_shard_degree": 8, "shard_level": "parameters", "recompute": "selective"}
SLOWER = {**TODAY, "recompute": "full"}
TOO_LARGE = {**TODAY, "recompute": "none", "micro_batch_size": 8}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service on whose cluster nothing runs: what a simulated trial takes is the same on a busy machine."""
    with Service(tmp_path_factory.mktemp("service")) as service:
        ours = replace(load_cluster("h100:8"), name="ours", engine="simulated")
        service.put("/clusters/ours", to_plain(ours))
        yield service


def repository(folder: Path, layout: dict[str, Any]) -> Path:
    """A checkout of a repository that trains with that layout."""
    (folder / "train").mkdir(parents=True)
    (folder / "train/layout.json").write_text(json.dumps(layout))
    return folder


class GitHub:
    """Runs jobs of the workflow, each in a folder of its own."""

    def __init__(self, service: Service, folder: Path) -> None:
        self._server = service.address
        self._folder = folder
        self._num_runs = 0
        self.summary = folder / "summary.md"
        self.workspace = folder

    def push(self, layout: dict[str, Any], branch: str) -> Done:
        """A push to the branch itself."""
        return self._job("measure", layout, GITHUB_EVENT_NAME="push", GITHUB_BASE_REF="", GITHUB_REF_NAME=branch)

    def pull_request(self, layout: dict[str, Any], branch: str, job: str = "measure") -> Done:
        """A pull request that trains with that layout."""
        event = {"GITHUB_EVENT_NAME": "pull_request", "GITHUB_BASE_REF": branch, "GITHUB_REF_NAME": "7/merge"}
        return self._job(job, layout, **event)

    def _job(self, job: str, layout: dict[str, Any], **event: str) -> Done:
        self._num_runs += 1
        checkout = repository(self._folder / f"run-{self._num_runs}", layout)
        base = repository(self._folder / f"base-{self._num_runs}", TODAY)
        self.workspace = checkout / "workspace"
        event |= {"GITHUB_SHA": f"commit {self._num_runs}", "GITHUB_STEP_SUMMARY": str(self.summary)}
        context = {"vars.AUTOTUNER_SERVER": self._server}
        return github_job(job, checkout=checkout, base=base, context=context, event=event)

    @property
    def case(self) -> ElementTree.Element:
        """The case of the JUnit file that the last run left."""
        (written,) = self.workspace.glob("*.xml")
        found = ElementTree.parse(written).find("testsuite/testcase")
        assert found is not None
        return found


@pytest.mark.oracle  # a service and a dozen commands: half a minute on a busy machine
def test_the_action_sets_a_baseline_passes_what_is_as_fast_and_fails_what_is_slower(
    service: Service, tmp_path: Path
) -> None:
    github = GitHub(service, tmp_path)
    pushed = github.push(TODAY, "main")
    assert (pushed.code, [child.tag for child in github.case]) == (0, ["system-out"]), pushed.output

    same = github.pull_request(TODAY, "main")
    assert (same.code, [child.tag for child in github.case]) == (0, ["system-out"]), same.output
    assert github.summary.read_text().startswith("## ✅ MFU of llama-3-8b on ours: passed")

    assert f"{service.address}/gates/mg-" in github.summary.read_text()

    slower = github.pull_request(SLOWER, "main")
    assert (slower.code, [child.tag for child in github.case]) == (8, ["failure"]), slower.output
    assert github.summary.read_text().startswith("## ❌ MFU of llama-3-8b on ours: failed")
    assert [one["result"]["outcome"] for one in service.get("/runs?kind=gate&subject=main")["items"]] == [
        "failed",
        "passed",
        "no_baseline",
    ]


@pytest.mark.oracle
def test_the_action_predicts_a_pull_request_that_would_run_out_of_memory(service: Service, tmp_path: Path) -> None:
    github = GitHub(service, tmp_path)
    fits = github.pull_request(TODAY, "main", "predict")
    assert fits.code == 0, fits.output
    too_large = github.pull_request(TOO_LARGE, "main", "predict")
    assert (too_large.code, [child.tag for child in github.case]) == (8, ["failure"]), too_large.output
    assert "counted in a dry run" in too_large.output


@pytest.mark.oracle
def test_the_job_of_gitlab_sets_a_baseline_and_fails_what_is_slower(service: Service, tmp_path: Path) -> None:
    def job(name: str, layout: dict[str, Any], **variables: str) -> Done:
        checkout = repository(tmp_path / name, layout)
        project = {"AUTOTUNER_SERVER": service.address, "CI_DEFAULT_BRANCH": "trunk", "CI_COMMIT_SHA": name}
        return gitlab_job("mfu-gate", checkout=checkout, variables=project | variables)

    pushed = job("pushed", TODAY, CI_COMMIT_BRANCH="trunk")
    assert pushed.code == 0, pushed.output
    slower = job("merge request", SLOWER, CI_MERGE_REQUEST_TARGET_BRANCH_NAME="trunk")
    assert slower.code == 8, slower.output
    assert "failed" in (tmp_path / "merge request/gate.md").read_text()
    assert ElementTree.parse(tmp_path / "merge request/gate.xml").getroot().get("failures") == "1"


@pytest.mark.oracle
def test_the_job_of_gitlab_counts_memory(service: Service, tmp_path: Path) -> None:
    checkout = repository(tmp_path, TOO_LARGE)
    done = gitlab_job("mfu-memory", checkout=checkout, variables={"AUTOTUNER_SERVER": service.address})
    assert done.code == 8, done.output
    assert ElementTree.parse(tmp_path / "predicted.xml").getroot().get("failures") == "1"


@pytest.mark.oracle
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_gate_whose_job_is_cancelled_is_cancelled_with_it(
    service: Service, tmp_path: Path, number: signal.Signals
) -> None:
    slow = replace(load_cluster("h100:8"), name="slow", engine="simulated", queue="watched")
    service.put("/clusters/slow", to_plain(slow))
    job = ["--model", "llama-3-8b", "--cluster", "slow", "--global-batch-size", "64", "--seq-len", "8192"]
    options = [*job, "--layout", json.dumps(TODAY), "--baseline", number.name, "--server", service.address]
    listening = ["env", "--default-signal=INT"]  # tests in the background have it ignored
    command = [*listening, sys.executable, "-m", "autotuner.cli", "gate", *options]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as waiting:
        gates = f"/runs?kind=gate&subject={number.name}"
        gate = until("a gate", lambda: service.get(gates)["items"])[0]
        until("its trial", lambda: service.get(f"/sweeps/{gate['child_id']}/trials")["items"])
        waiting.send_signal(number)
        errors = waiting.communicate(timeout=PATIENCE_S)[1]
        assert waiting.returncode == 130, errors.decode()
    ended = until("its end", lambda: service.get(f"/runs/{gate['id']}")["result"])
    assert ended["outcome"] == "cancelled"


def test_gitlab_gets_the_codes_of_outcomes_that_are_no_failure() -> None:
    job = yaml.safe_load((EXAMPLES / "gitlab-ci.yml").read_text())["mfu-gate"]
    assert job["allow_failure"]["exit_codes"] == [9, 10]
    assert job["artifacts"]["when"] == "always"


def test_both_examples_are_named_in_the_page_on_ci() -> None:
    page = (EXAMPLES.parent / "how-to/gate-a-pull-request.md").read_text()
    assert [path.name for path in EXAMPLES.iterdir() if f"examples/{path.name}" not in page] == []
