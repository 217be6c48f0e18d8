from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from autotuner.catalog.hardware import link_names
from autotuner.core.access import Scope
from autotuner.service.build import build
from autotuner.service.settings import Settings
from autotuner.store.sql import memory_store
from tests.api.service import serve
from tests.fake_launcher import FakeLauncher

# ---------------------------------------------------------------- docs

DOCUMENT = (Path(__file__).parents[2] / "docs/how-to/call-the-api-from-ci.md").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Service:
    """A service whose own worker runs trials that take no time, and a token of it."""

    address: str
    token: str

    def run_ci_job(self, **environment: str) -> subprocess.CompletedProcess[str]:
        found = re.search(r"^```sh\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)
        assert found is not None
        given = {"AUTOTUNER_SERVER": self.address, "AUTOTUNER_TOKEN": self.token, "CI_JOB_ID": "build-1"}
        variables = os.environ | given | {"POLL_S": "0.1", "CLUSTER": "h100:8"} | environment
        return subprocess.run(
            ["sh", "-c", found[1]], env=variables, capture_output=True, text=True, timeout=60, check=False
        )


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    settings = Settings(num_workers=1, poll_s=0.05, login="tokens")
    app = build(settings, store=memory_store(), launcher=FakeLauncher())
    with serve(app) as address:
        yield Service(address, app.tokens.add("ci", Scope.RUN)[1])


def test_the_python_program_follows_a_sweep_and_prints_the_flags_of_its_best_layout(
    service: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/call-the-service-from-python.md").read_text(encoding="utf-8")
    found = re.search(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert found is not None
    monkeypatch.setenv("GIT_COMMIT", "abc")
    monkeypatch.setenv("AUTOTUNER_TOKEN", service.token)
    exec(compile(found[1].replace("https://autotuner.example", service.address), "page", "exec"), {})  # our own page
    printed = capsys.readouterr().out
    assert "sweep.finished" in printed
    assert "--tensor-model-parallel-size" in printed


def test_the_ci_job_creates_waits_for_and_reads_a_sweep_and_the_same_one_when_it_is_run_again(service: Service) -> None:
    job, again = (service.run_ci_job() for _ in range(2))
    assert job.returncode == 0, job.stderr
    assert "is complete" in job.stdout
    assert '"rank":1' in job.stdout
    assert '"rank":4' not in job.stdout
    assert again.stdout == job.stdout


@pytest.mark.parametrize(
    ("changed", "problem"),
    [({"AUTOTUNER_TOKEN": "none"}, "not-let-in"), ({"CLUSTER": "h1000:8"}, '"nearest":"h100"')],
    ids=["token", "cluster"],
)
def test_the_ci_job_stops_with_the_problem_when_it_is_refused(
    service: Service, changed: dict[str, str], problem: str
) -> None:
    job = service.run_ci_job(**changed)
    assert job.returncode == 1
    assert problem in job.stderr


# ---------------------------------------------------------------- written down

GUIDES = ("describe-your-model", "describe-your-cluster")
TEXT = "".join((Path(__file__).parents[2] / f"docs/how-to/{name}.md").read_text(encoding="utf-8") for name in GUIDES)
BLOCKS: list[dict[str, Any]] = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)]
WORKLOAD = {"seq_len": 1024, "global_batch_size": 1152}
FEW = {"tensor_parallel_degree": [1], "pipeline_parallel_degree": [1], "micro_batch_size": [1], "recompute": ["none"]}
JOB: dict[str, Any] = {"model": "llama-demo", "cluster": "h100:8", "workload": WORKLOAD, "space": FEW, "limit": 1}


def is_cluster(block: dict[str, Any]) -> bool:
    return "accelerator" in block or ":" in str(block.get("base"))


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: str(block.get("name", "by names")))
def test_every_description_of_a_guide_is_predicted_with(client: httpx.Client, block: dict[str, Any]) -> None:
    answer = client.post("/predictions", json=JOB | {"cluster" if is_cluster(block) else "model": block})
    assert answer.status_code == 200, answer.text
    assert answer.json()["items"]


def test_the_guides_show_models_and_clusters_whole_and_in_short() -> None:
    kinds = {(is_cluster(block), "base" in block) for block in BLOCKS}
    assert len(kinds) == 4


def test_the_guides_name_every_link_of_the_catalog() -> None:
    assert [name for name in link_names() if f"`{name}`" not in TEXT] == []


def test_a_stored_description_may_be_written_in_short(client: httpx.Client) -> None:
    saved = client.put("/clusters/mine", json={"name": "mine", "accelerator": "h100", "num_nodes": 4})
    assert saved.status_code == 200
    assert saved.json()["accelerator"]["name"] == "h100-sxm"
    model = client.put("/models/mine", json={"base": "llama-3-8b", "name": "mine", "num_layers": 16})
    assert model.json()["num_layers"] == 16
    assert client.post("/predictions", json=JOB | {"model": "mine", "cluster": "mine"}).json()["items"]


def test_a_config_json_is_read_where_a_request_has_a_model(client: httpx.Client) -> None:
    config = {"model_type": "gpt2", "n_layer": 2, "n_embd": 256, "n_head": 4, "n_positions": 1024, "vocab_size": 5000}
    size = client.post("/predictions", json=JOB | {"model": config}).json()["model_size"]
    assert (size["name"], size["num_parameters"]) == ("gpt2", 3_122_176)


# ---------------------------------------------------------------- imports

READ = """
import sys

opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
import autotuner.api.main

for path in opened:
    if {package!r} in path and not path.endswith((".py", ".pyc")):
        print(path)
"""


def test_importing_the_service_reads_no_file_of_ours_but_code() -> None:
    package = str(Path(__file__).parents[2])
    script = READ.format(package=package)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=package)
    read = [line for line in done.stdout.splitlines() if "/.venv/" not in line and "/__pycache__/" not in line]
    assert read == []
