"""A client that a usual generator makes of the OpenAPI document, used beside the service that serves the document."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from autotuner.store.sql import memory_store
from tests.api.service import StoreDriver, app_on, serve
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.oracle  # it writes a thousand files

# Formats that the generator has no words for: their operations give no model, and are called as any other.
NO_MODELS = {"application/xml", "image/svg+xml", "application/atom+xml", "text/plain"}

PROGRAM = """
import sys
from parallelism_autotuner_client import Client
from parallelism_autotuner_client.api.runs import cancel_run
from parallelism_autotuner_client.api.sweeps import create_sweep, list_sweeps, rank_sweep
from parallelism_autotuner_client.models import Budget, SweepCreate, Workload

client = Client(base_url=sys.argv[1], timeout=300, raise_on_unexpected_status=True)
asked = SweepCreate(
    model="llama-3-8b",
    cluster="h100:8",
    workload=Workload(seq_len=4096, global_batch_size=64),
    budget=Budget(num_trials=3),
)
sweep = create_sweep.sync(client=client, body=asked, idempotency_key="generated")
again = create_sweep.sync(client=client, body=asked, idempotency_key="generated")
ended = cancel_run.sync(sweep.id, client=client)
print(sweep.id == again.id, sweep.request.budget.num_trials, ended.state)
print(list_sweeps.sync(client=client).total)
(ranked,) = rank_sweep.sync(sys.argv[2], client=client).items
print(ranked.layout.tensor_parallel_degree, ranked.measurement.mfu)
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds the generated package."""
    folder = tmp_path_factory.mktemp("generated")
    with serve(app_on(memory_store())) as address:
        document = httpx.get(f"{address}/api/v1/openapi.json", timeout=PATIENCE_S).json()
    (folder / "openapi.json").write_text(json.dumps(document))
    command = [sys.executable, "-m", "openapi_python_client", "generate"]
    files = ["--path", "openapi.json", "--output-path", "client"]
    tools = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}  # it formats what it wrote with ruff
    made = subprocess.run(
        [*command, *files], cwd=folder, env=os.environ | tools, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stdout + made.stderr
    (folder / "said").write_text(made.stdout + made.stderr)
    return folder


def test_the_generator_leaves_out_no_operation(package: Path) -> None:
    said = (package / "said").read_text()
    assert "Endpoint will not be generated" not in said
    left_out = {line.split("content_type ")[1].split(")")[0] for line in said.splitlines() if "content_type" in line}
    assert left_out <= NO_MODELS
    document = json.loads((package / "openapi.json").read_text())
    operations = {operation["operationId"] for path in document["paths"].values() for operation in path.values()}
    assert operations <= {path.stem for path in (package / "client").rglob("api/*/*.py")}


def test_the_generated_client_creates_lists_ranks_and_cancels(package: Path) -> None:
    store = memory_store()
    driver = StoreDriver(store=store)
    sweep = driver.sweep()
    trial = driver.ended(sweep, 0)
    driver.finish(sweep)
    assert trial.measurement is not None
    with serve(app_on(store)) as address:
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM, address, sweep.id],
            env=os.environ | {"PYTHONPATH": str(package / "client")},
            capture_output=True,
            text=True,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        "True 3 cancelled",
        "2",
        f"{trial.layout.tensor_parallel_degree} {trial.measurement.mfu}",
    ]
