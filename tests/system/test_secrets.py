"""Secrets that an operator, a caller and their machine have, and everything that a service says or keeps."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.bodies import CPU
from tests.patience import PATIENCE_S
from tests.system.service import Service, until

IN_VARIABLES = {
    "HF_TOKEN": "hf_planted1",
    "AWS_SECRET_ACCESS_KEY": "planted2",
    "NCCL_MY_PASSWORD": "planted3",
    "TORCH_NOTES": "planted4",
    "PGPASSWORD": "planted5",
    "CUDA_SOMETHING": "planted6",
}

WEBHOOK = {"name": "ours", "url": "https://127.0.0.1:9/planted7", "secret": "whsec_cGxhbnRlZDhwbGFudGVkOHBsYW50ZWQ4"}
"""What is posted is signed with that secret, and goes where only the operator knows: both are in its row alone."""

SECRETS = (*IN_VARIABLES.values(), "planted7", WEBHOOK["secret"])

SWEEP: dict[str, Any] = {
    **CPU,
    "budget": {"num_trials": 1},
    "trial": {"measuring_budget_s": 0.5, "max_measured_steps": 4, "max_repeats": 0},
}

API = "api/v1"

PATHS = (
    *(f"{API}/sweeps", f"{API}/sweeps/{{id}}", f"{API}/sweeps/{{id}}/trials", f"{API}/sweeps/{{id}}/ranking"),
    *(f"{API}/runs/{{id}}/events?wait=false", f"{API}/trials/{{trial}}", f"{API}/trials/{{trial}}/explanation"),
    *(f"{API}/trials/{{trial}}/export?format=arguments", f"{API}/webhooks", f"{API}/webhooks/ours"),
    *(f"{API}/deliveries", f"{API}/feed.json", f"{API}/feed.atom", f"{API}/workers", f"{API}/audit", "metrics"),
    *("", "sweeps/{id}", "trials/{trial}", "webhooks"),
)


def stored(directory: Path) -> str:
    """Every row of the database but those of webhooks."""
    with sqlite3.connect(directory / "autotuner.db") as connection:
        return "\n".join(line for line in connection.iterdump() if not line.startswith('INSERT INTO "webhooks"'))


@pytest.mark.oracle  # it runs a trial
def test_private_facts_of_machines_and_people_are_neither_reported_nor_stored(tmp_path: Path) -> None:
    service = Service(tmp_path)
    service.variables = IN_VARIABLES | {"AUTOTUNER_WEBHOOK_ALLOW": "127.0.0.1"}
    with service:
        assert service.post("/webhooks", WEBHOOK)["secret"] == WEBHOOK["secret"]
        sweep = service.post("/sweeps", SWEEP)
        until("the end of the sweep", lambda: service.get(f"/sweeps/{sweep['id']}")["state"] == "complete")
        (trial,) = service.get(f"/sweeps/{sweep['id']}/trials")["items"]
        assert "OMP_NUM_THREADS" in service.get(f"/trials/{trial['id']}")["measurement"]["environment"]
        until("a delivery that fails", lambda: service.get("/deliveries")["items"][0]["detail"])
        paths = [path.format(id=sweep["id"], trial=trial["id"]) for path in PATHS]
        told = [httpx.get(f"{service.address}/{path}", timeout=PATIENCE_S) for path in paths]
        refused = httpx.post(f"{service.address}/api/v1/sweeps", json={"name": 1}, timeout=PATIENCE_S)
    assert [answer.url.path for answer in told if not answer.is_success] == []
    for where in (*(answer.text for answer in (*told, refused)), service.log, stored(tmp_path)):
        assert [secret for secret in SECRETS if secret in where] == []


@pytest.mark.oracle
@pytest.mark.parametrize("command", [["migrate"], ["webhook", "list"]])
def test_the_password_of_a_database_that_does_not_answer_is_hidden(tmp_path: Path, command: list[str]) -> None:
    url = "postgresql://tuner:planted9@127.0.0.1:1/autotuner"
    environment = {"AUTOTUNER_DATABASE_URL": url, "PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path.cwd())}
    ended = subprocess.run(
        [sys.executable, "-m", "autotuner.cli", *command],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode != 0
    assert "planted9" not in ended.stdout + ended.stderr
