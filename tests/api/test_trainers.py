"""Registered trainers over REST: named by a sweep, and never described by it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import httpx
import pytest

from autotuner.core.choices import ExportFormat
from autotuner.core.errors import InvalidInput
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial_spec import Trainer
from autotuner.store.sql import Store
from tests.api.bodies import CPU
from tests.api.service import StoreDriver, app_on, serve
from tests.builders import measurement, sweep_request

REGISTERED = """
[finetune]
format = "arguments"
command = ["/opt/secret/run", "--token-file=/etc/secret", "{arguments}"]
working_directory = "/opt/secret"
environment = ["SECRET_TOKEN"]
variables = { SECRET_PATH = "/etc/secret" }
stack = "megatron-deepspeed"
options = ["data_parallel_replicate_degree", "micro_batch_size", "recompute"]
fixed = { precision = "fp32", attention_kernel = "math" }

[other]
format = "arguments"
command = ["true"]
"""


@pytest.fixture
def address(store: Store, tmp_path: Path) -> Iterator[str]:
    path = tmp_path / "trainers.toml"
    path.write_text(REGISTERED)
    with serve(app_on(store, trainers=path)) as address:
        yield address


def request_of(name: str) -> SweepRequest:
    return sweep_request(trainer=Trainer(name=name, format=ExportFormat.ARGUMENTS))


def create(client: httpx.Client, **body: Any) -> httpx.Response:
    return client.post("/sweeps", json=CPU | body)


def test_trainers_are_listed_with_what_a_sweep_may_search(client: httpx.Client) -> None:
    first, second = client.get("/trainers").json()["items"]
    assert (first["name"], first["format"], first["stack"]) == ("finetune", "arguments", "megatron-deepspeed")
    assert first["options"] == ["data_parallel_replicate_degree", "micro_batch_size", "recompute"]
    assert first["fixed"] == {"precision": "fp32", "attention_kernel": "math"}
    assert "tensor_parallel_degree" in second["options"]


def test_nothing_of_how_a_trainer_is_started_leaves_the_service(client: httpx.Client) -> None:
    created = create(client, trainer="finetune")
    answers = [
        client.get("/trainers"),
        created,
        client.get("/sweeps"),
        client.get(f"/sweeps/{created.json()['id']}"),
        client.get("/openapi.json"),
    ]
    told = ("opt/secret", "etc/secret", "secret_path")
    assert [answer for answer in answers if any(word in answer.text.lower() for word in told)] == []


def test_a_sweep_of_a_trainer_says_which_and_searches_what_it_reads(client: httpx.Client) -> None:
    created = create(client, trainer="finetune").json()
    assert created["request"]["trainer"]["name"] == "finetune"
    assert created["request"]["trainer"]["stack"] == "megatron-deepspeed"
    assert created["request"]["job"]["stack"]["name"] == "megatron-deepspeed"
    space = created["request"]["space"]
    assert (space["tensor_parallel_degree"], space["precision"]) == ([1], ["fp32"])
    assert space["attention_kernel"] == ["math"]
    assert space["recompute"] == ["none", "selective", "full"]
    assert create(client).json()["request"]["trainer"] is None


def test_the_pages_of_a_sweep_and_of_a_trial_name_the_trainer(client: httpx.Client, driver: StoreDriver) -> None:
    asked = request_of("other")
    sweep = driver.sweep(asked)
    trial = driver.ended(sweep, 0, measurement(phases=None, breakdown=None, peak_bytes=()))
    site = str(client.base_url).removesuffix("/api/v1/")
    for path in (f"/sweeps/{sweep.id}", f"/trials/{trial.id}"):
        answer = client.get(f"{site}{path}", headers={"Accept": "text/html"})
        assert answer.status_code == 200
        assert re.search("trained by <(b|strong)>other<", answer.text)


REFUSED: tuple[tuple[int, str, dict[str, Any]], ...] = (
    (404, '"nearest":"finetune"', {"trainer": "fintune"}),
    (
        422,
        '"field":"space.tensor_parallel_degree"',
        {"trainer": "finetune", "space": {"tensor_parallel_degree": [1, 2]}},
    ),
    (422, '"field":"trial.proxy_layers_per_stage"', {"trainer": "other", "trial": {"proxy_layers_per_stage": [1, 2]}}),
    # no request brings a command, a path or a variable
    (422, "", {"trainer": {"name": "finetune", "command": ["rm"]}}),
    (422, "", {"trainer": {"name": "mine", "format": "arguments"}}),
    (422, "", {"trainer": ["rm", "-rf", "/"]}),
    (422, "", {"trainer": "finetune", "command": ["rm"]}),
    (422, "", {"trainer": "finetune", "working_directory": "/tmp"}),
    (422, "", {"trainer": "finetune", "environment": {"LD_PRELOAD": "/tmp/x.so"}}),
    (422, "", {"trainer": "finetune", "variables": {"LD_PRELOAD": "/tmp/x.so"}}),
    (422, "", {"trainer": "finetune", "trial": {"command": ["rm"]}}),
    (422, "", {"trainer": "finetune", "trial": {"environment": {"PATH": "/tmp"}}}),
    # whatever a name looks like, one that is not registered starts nothing
    *(
        (404, "", {"trainer": name})
        for name in ("/opt/secret/run", "../finetune", "finetune; rm -rf /", "$(id)", "{spec}", "", "true")
    ),
)


def test_a_sweep_that_a_trainer_cannot_run_is_refused_and_starts_nothing(client: httpx.Client) -> None:
    for status, says, body in REFUSED:
        problem = create(client, **body)
        assert problem.status_code == status, (body, problem.text)
        assert says in problem.text, (body, problem.text)
    assert client.get("/sweeps").json()["total"] == 0


def test_a_service_without_trainers_lists_none_and_finds_none(store: Store) -> None:
    with serve(app_on(store)) as address, httpx.Client(base_url=f"{address}/api/v1", timeout=60) as client:
        assert client.get("/trainers").json()["items"] == []
        assert create(client, trainer="finetune").status_code == 404


def test_a_service_whose_file_is_wrong_does_not_start(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "trainers.toml"
    path.write_text('[mine]\nformat = "arguments"\n')
    with pytest.raises(InvalidInput, match="command"):
        app_on(store, trainers=path)


def test_the_stored_trainer_of_a_sweep_cannot_start_a_program() -> None:
    assert {each.name for each in fields(Trainer)} == {"name", "format", "stack", "options", "fixed", "values"}
