from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotuner.core.access import Scope
from autotuner.launch.fake import FakeLauncher
from autotuner.service.build import build
from autotuner.service.settings import Settings
from autotuner.store.sql import memory_store
from tests.api.service import openapi_document, serve

DOCUMENT = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")


@pytest.fixture
def working_address() -> Iterator[str]:
    """A service whose own worker runs trials that take no time."""
    app = build(Settings(num_workers=1, poll_s=0.05), store=memory_store(), launcher=FakeLauncher())
    with serve(app) as address:
        yield address


def run_ci_job(address: str, **environment: str) -> subprocess.CompletedProcess[str]:
    found = re.search(r"^```sh\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)
    assert found is not None
    variables = os.environ | {"AUTOTUNER_SERVER": address, "POLL_S": "0.1", "CLUSTER": "h100:8"} | environment
    return subprocess.run(
        ["sh", "-c", found[1]], env=variables, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_ci_job_creates_waits_for_and_reads_a_sweep(working_address: str) -> None:
    job = run_ci_job(working_address, CI_JOB_ID="build-1")
    assert job.returncode == 0, job.stderr
    assert "is complete" in job.stdout
    assert '"rank":1' in job.stdout
    assert '"rank":4' not in job.stdout


def test_the_ci_job_shows_the_token_that_it_was_given() -> None:
    settings = Settings(num_workers=1, poll_s=0.05, login="tokens")
    app = build(settings, store=memory_store(), launcher=FakeLauncher())
    with serve(app) as address:
        _, token = app.tokens.add("ci", Scope.RUN)
        assert run_ci_job(address, CI_JOB_ID="build-1", AUTOTUNER_TOKEN=token).returncode == 0
        refused = run_ci_job(address, CI_JOB_ID="build-1")
    assert refused.returncode == 1
    assert "not-let-in" in refused.stderr


def test_the_ci_job_run_again_reads_the_same_sweep(working_address: str) -> None:
    first, again = (run_ci_job(working_address, CI_JOB_ID="build-1").stdout for _ in range(2))
    assert first == again


def test_the_ci_job_stops_with_the_problem_when_the_request_is_refused(working_address: str) -> None:
    job = run_ci_job(working_address, CLUSTER="h1000:8")
    assert job.returncode == 1
    assert '"nearest":"h100"' in job.stderr


def test_every_operation_is_in_the_document_and_nothing_else() -> None:
    documented = set(re.findall(r"^\| `([A-Z]+ /api/v1/\S*)` \|", DOCUMENT, re.MULTILINE))
    paths = openapi_document()["paths"]
    assert documented == {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
