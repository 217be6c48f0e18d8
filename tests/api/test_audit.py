"""The audit log: what is listed of what was changed, and what is not."""

from __future__ import annotations

import json

import httpx

from autotuner.core.codec import to_plain
from autotuner.store.sql import Store
from tests.api.service import NOW
from tests.builders import cpu_cluster, tiny_model

WORKLOAD = {"seq_len": 64, "global_batch_size": 8}


def actions(store: Store) -> list[tuple[str, int]]:
    return [(entry.action, entry.status) for entry in store.access.audit()[0]]


def test_what_changes_something_is_listed_with_who_asked_and_from_where(client: httpx.Client) -> None:
    body = {"model": to_plain(tiny_model()), "cluster": to_plain(cpu_cluster()), "workload": WORKLOAD}
    created = client.post("/sweeps", json=body, headers={"X-Request-ID": "build-7"}).json()
    client.post(f"/sweeps/{created['id']}/cancel")
    listed = client.get("/audit").json()
    cancelled, asked = sorted(listed["items"], key=lambda entry: entry["action"])  # the clock stands still
    assert listed["total"] == 2
    assert asked == {
        "at": NOW,
        "caller": "",
        "token_id": None,
        "action": "create_sweep",
        "subject": "/api/v1/sweeps",
        "status": 201,
        "request_id": "build-7",
        "address": "127.0.0.1",
    }
    assert (cancelled["action"], cancelled["subject"]) == ("cancel_sweep", f"/api/v1/sweeps/{created['id']}/cancel")


def test_what_only_looks_predicts_or_is_wrong_is_not_listed(client: httpx.Client, store: Store) -> None:
    client.get("/sweeps")
    body = {"model": to_plain(tiny_model()), "cluster": to_plain(cpu_cluster()), "workload": WORKLOAD}
    assert client.post("/predictions", json=body).status_code == 200
    assert client.post("/sweeps", json=body | {"seed": -1}).status_code == 422
    assert client.delete("/models/none").status_code == 404
    assert client.post("/nothing").status_code in (404, 405)
    assert actions(store) == []


def test_the_entry_is_there_when_the_answer_is(client: httpx.Client, store: Store) -> None:
    for number in range(20):
        client.put(f"/models/m{number}", json=to_plain(tiny_model(name=f"m{number}")))
        assert store.access.audit()[1] == number + 1


def test_a_page_of_another_site_is_refused_and_listed_once(client: httpx.Client, store: Store) -> None:
    for _ in range(3):
        refused = client.put("/models/tiny", json=to_plain(tiny_model()), headers={"Origin": "https://evil.example"})
        assert refused.status_code == 403
    assert actions(store) == [("put", 403)]


def test_the_list_is_of_one_caller_where_one_is_named(client: httpx.Client) -> None:
    client.put("/models/tiny", json=to_plain(tiny_model()))
    assert client.get("/audit", params={"caller": "ada"}).json()["items"] == []
    assert json.dumps(client.get("/audit").json()["items"]).count("save_model") == 1
