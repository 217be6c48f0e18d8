"""Announcements of a real service, to a receiver that listens."""

from __future__ import annotations

from pathlib import Path

import pytest
from standardwebhooks.webhooks import Webhook as Verifier

from tests.announcements import receiver, status
from tests.system.service import Service, until

SWEEP = {
    "model": "llama-demo",
    "cluster": {"base": "h100:8", "name": "dream", "engine": "simulated"},
    "workload": {"seq_len": 128, "global_batch_size": 16},
    "budget": {"num_trials": 1},
}


@pytest.mark.oracle
def test_what_was_announced_before_a_kill_arrives_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
