"""The whole path over a real database: service, worker, SQLite, REST."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from autotuner.core.measurement import Measurement
from autotuner.core.trial import TrialFailure
from autotuner.core.trial_spec import TrialSpec
from autotuner.launch.contract import Launcher
from autotuner.service.build import build
from autotuner.service.settings import Settings
from autotuner.store.schema import migrate
from tests.api.bodies import CPU
from tests.api.service import serve
from tests.api.test_events import stream
from tests.builders import failure
from tests.fake_launcher import FakeLauncher, plain_measurement


def oom_unless_split(spec: TrialSpec) -> Measurement | TrialFailure:
    """Runs out of memory with one data-parallel replica per rank; else the larger the micro-batch the faster."""
    if spec.layout.data_parallel_replicate_degree > 1:
        return failure()
    return plain_measurement(spec, step_time_s=1.0 / spec.layout.micro_batch_size)


@contextmanager
def client_of(settings: Settings, launcher: Launcher) -> Iterator[httpx.Client]:
    """A client of a service that starts and stops with it."""
    app = build(settings, launcher=launcher)
    with serve(app) as address, httpx.Client(base_url=f"{address}/api/v1", timeout=30) as client:
        yield client
    app.close()


def test_a_sweep_runs_to_its_end_and_is_read_back_after_a_restart(tmp_path: Path) -> None:
    settings = Settings(database_url=f"sqlite:///{tmp_path}/autotuner.db", num_workers=1, poll_s=0.05)
    migrate(settings.database_url)
    with client_of(settings, FakeLauncher(oom_unless_split)) as client:
        space = {"recompute": ["none"], "tensor_parallel_degree": [1, 2]}
        body = CPU | {"space": space, "budget": {"num_trials": 12}}
        sweep_id = client.post("/sweeps", json=body).json()["id"]
        kinds = [event.kind for event in stream(client, sweep_id)]
        finished = client.get(f"/sweeps/{sweep_id}").json()
    assert kinds[0] == "sweep.created"
    assert kinds[-1] == "sweep.finished"
    assert finished["state"] == "complete"
    assert finished["num_trials"]["failed"] > 0
    with client_of(settings, FakeLauncher()) as client:
        assert client.get(f"/sweeps/{sweep_id}").json() == finished
        ranking = client.get(f"/sweeps/{sweep_id}/ranking").json()["items"]
        assert client.get("/ready").json()["status"] == "ready"
    mfus = [trial["measurement"]["mfu"] for trial in ranking]
    assert mfus == sorted(mfus, reverse=True)
    assert ranking[0]["layout"]["micro_batch_size"] == 8
