"""Real services and commands that are killed, told to end, paused, extended, or announce what came of a sweep."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook as Verifier

from autotuner.core.codec import to_plain
from autotuner.core.errors import StoreUnavailable
from autotuner.store.sql import Store, open_store
from tests.announcements import receiver, status
from tests.api.bodies import CPU
from tests.builders import tiny_model
from tests.patience import PATIENCE_S
from tests.system.service import Service, measuring, until
from tests.trials.launching import left_over

# ---------------------------------------------------------------- crash

BODY = {
    **CPU,
    "budget": {"num_trials": 3, "prune_below": 0.0, "min_gain": 0.0},
    "trial": measuring(2),
}


def states(service: Service, sweep_id: str) -> list[str]:
    return [trial["state"] for trial in service.trials(sweep_id)]


@pytest.mark.oracle  # half a minute
def test_a_service_killed_in_a_trial_finishes_the_sweep_after_a_restart_with_nothing_lost(tmp_path: Path) -> None:
    with Service(tmp_path) as service:
        sweep_id = service.post("/sweeps", BODY)["id"]
        until("a second trial", lambda: states(service, sweep_id) == ["complete", "running"])
        before = service.trials(sweep_id)
        until("processes of the trial", lambda: left_over(before[1]["id"]))
        service.kill()
        until("no process of the trial is left", lambda: not left_over(before[1]["id"]))
        with service:
            until("the sweep ends", lambda: service.get(f"/sweeps/{sweep_id}")["state"] == "complete")
            after = service.trials(sweep_id)
            events = service.get(f"/sweeps/{sweep_id}")
    assert after[0] == before[0]
    assert [trial["number"] for trial in after] == [0, 1, 2]
    assert [trial["attempts"] for trial in after] == [1, 2, 1]
    assert [trial["layout"] for trial in after[:2]] == [trial["layout"] for trial in before]
    assert {trial["state"] for trial in after} == {"complete"}
    assert events["stop_reason"] == "trial_budget"


@pytest.mark.oracle  # a quarter of a minute
def test_a_service_that_stops_ends_its_trial_and_gives_the_sweep_back_at_once(tmp_path: Path) -> None:
    with Service(tmp_path, lease_s=3600.0) as service:
        sweep_id = service.post("/sweeps", BODY)["id"]
        until("a first trial", lambda: states(service, sweep_id) == ["running"])
    assert left_over(sweep_id) == []
    with service:  # an hour's lease has not lapsed: only one that was given back can be taken again
        until("the sweep ends", lambda: service.get(f"/sweeps/{sweep_id}")["state"] == "complete")
        assert [trial["attempts"] for trial in service.trials(sweep_id)] == [1, 1, 1]


# ---------------------------------------------------------------- interrupt


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.oracle)])
def test_an_interrupted_sweep_command_ends_its_trial_and_gives_the_sweep_back(
    tmp_path: Path, number: signal.Signals
) -> None:
    url = f"sqlite:///{tmp_path}/autotuner.db"
    store = open_store(url)
    model = tmp_path / "tiny.json"
    model.write_text(json.dumps(to_plain(tiny_model())))
    # as in a terminal: a test run that a script started in the background has SIGINT ignored, and passes that on
    listening = ["env", "--default-signal=INT"]
    command = [*listening, sys.executable, "-m", "autotuner.cli", "sweep", "--model", str(model), "--cluster", "cpu:2"]
    environment = {**os.environ, "AUTOTUNER_DATABASE_URL": url, "AUTOTUNER_WORK_DIR": str(tmp_path / "trials")}
    with subprocess.Popen(
        [*command, "--global-batch-size", "8", "--seq-len", "64"],
        env=environment,
        stderr=subprocess.DEVNULL,
    ) as sweep:
        trial_id = until("a running trial", lambda: running_trial(store))
        until("its processes", lambda: left_over(trial_id))
        sweep.send_signal(number)
        assert sweep.wait(timeout=PATIENCE_S) == 130
    assert left_over(trial_id) == []
    (given_back,), _ = store.runs.list("sweep")
    assert given_back.lease is None
    store.close()


def running_trial(store: Store) -> Any:
    try:
        sweeps, _ = store.runs.list("sweep")
        trials = store.list_trials(sweeps[0].id)[0] if sweeps else []
    except StoreUnavailable:
        return None  # not migrated yet
    return trials[0].id if trials else None


# ---------------------------------------------------------------- steering


def state(service: Service, sweep_id: str) -> str:
    return str(service.get(f"/sweeps/{sweep_id}")["state"])


@pytest.mark.oracle  # half a minute
def test_a_pause_an_extension_and_a_rerun_outlive_the_service_and_lose_nothing(tmp_path: Path) -> None:
    with Service(tmp_path) as service:
        sweep_id = service.post("/sweeps", {**BODY, "budget": {**BODY["budget"], "num_trials": 50}})["id"]
        until("a second trial", lambda: states(service, sweep_id)[:1] == ["complete"])
        service.post(f"/runs/{sweep_id}/pause", {})  # heard within seconds, in the middle of whichever trial
        until("the pause", lambda: state(service, sweep_id) == "paused")
        before = service.trials(sweep_id)
        number = len(before)
        assert states(service, sweep_id)[:-1] == ["complete"] * (number - 1)
        assert not left_over(before[-1]["id"])
        service.kill()
        with service:
            assert state(service, sweep_id) == "paused"
            service.post(f"/sweeps/{sweep_id}/budget", {"budget": {"num_trials": number}})
            service.post(f"/runs/{sweep_id}/resume", {})
            until("the end", lambda: state(service, sweep_id) == "complete")
            service.post(f"/sweeps/{sweep_id}/budget", {"budget": {"num_trials": number + 1}})
            service.kill()
            with service:
                until("the later end", lambda: states(service, sweep_id) == ["complete"] * (number + 1))
                until("the end of the sweep", lambda: state(service, sweep_id) == "complete")
                service.post(f"/trials/{before[0]['id']}/rerun", {})
                until("the repeat", lambda: states(service, sweep_id) == ["complete"] * (number + 2))
                until("the last end", lambda: state(service, sweep_id) == "complete")
                after = service.trials(sweep_id)
    assert after[0] == before[0]
    assert [trial["number"] for trial in after] == list(range(number + 2))
    assert [trial["repeats"] for trial in after] == [*[None] * (number + 1), 0]
    assert [trial["layout"] for trial in after[:number]] == [trial["layout"] for trial in before]


# ---------------------------------------------------------------- announcing

SWEEP = {
    "model": "llama-demo",
    "cluster": {"base": "h100:8", "name": "dream", "engine": "simulated"},
    "workload": {"seq_len": 128, "global_batch_size": 16},
    "budget": {"num_trials": 1},
}


@pytest.mark.oracle
def test_an_announcement_from_before_a_kill_arrives_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNER_WEBHOOK_ALLOW", "127.0.0.1")
    monkeypatch.setenv("AUTOTUNER_PUBLIC_URL", "https://tuner.example")
    with receiver(status(503), status(204)) as there:
        with Service(tmp_path) as service:
            hook = service.post("/webhooks", {"name": "ours", "url": f"http://127.0.0.1:{there.port}/in"})
            sweep = service.post("/sweeps", SWEEP)["id"]
            until("a first post", lambda: there.received)
            until("its note", lambda: service.get("/deliveries")["items"][0]["detail"])
            service.kill()
        with Service(tmp_path) as service:
            until("a delivery", lambda: service.get("/deliveries?state=delivered")["items"])
            (item,) = service.get("/feed.json")["items"]
    told = [Verifier(hook["secret"]).verify(got.body, got.headers) for got in there.received]
    assert len(told) == 2
    assert told[0] == told[1]
    assert (told[0]["type"], told[0]["data"]["subject_id"]) == ("sweep.finished", sweep)
    assert told[0]["data"]["url"] == item["url"] == f"https://tuner.example/sweeps/{sweep}"
