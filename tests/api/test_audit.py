from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from autotuner.core.access import Scope
from autotuner.core.codec import to_plain
from autotuner.store.sql import Store, memory_store
from tests.api.access import People, bearing
from tests.api.bodies import CPU
from tests.api.service import NOW, app_on, serve
from tests.builders import tiny_model

# ---------------------------------------------------------------- audit


def actions(store: Store) -> list[tuple[str, int]]:
    return [(entry.action, entry.status) for entry in store.access.audit()[0]]


def test_changes_are_listed_with_their_caller_and_address(client: httpx.Client) -> None:
    created = client.post("/sweeps", json=CPU, headers={"X-Request-ID": "build-7"}).json()
    client.post(f"/runs/{created['id']}/cancel")
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
    assert (cancelled["action"], cancelled["subject"]) == ("cancel_run", f"/api/v1/runs/{created['id']}/cancel")


def test_reads_predictions_and_failed_requests_are_not_listed(client: httpx.Client, store: Store) -> None:
    client.get("/sweeps")
    assert client.post("/predictions", json=CPU).status_code == 200
    assert client.post("/sweeps", json=CPU | {"seed": -1}).status_code == 422
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


# ---------------------------------------------------------------- tokens


@pytest.fixture(scope="module")
def root() -> Iterator[httpx.Client]:
    """An admin of a service with tokens."""
    app = app_on(memory_store(), login="tokens")
    with serve(app) as address, People(app=app, address=address).client(Scope.ADMIN, "root") as client:
        yield client


def test_a_token_lets_in_whom_it_was_made_for_with_their_quota(root: httpx.Client) -> None:
    quota = {"unfinished_sweeps": 2, "accelerator_hours_per_day": 64.0, "requests_per_minute": 600}
    answer = root.post("/tokens", json={"name": "ada@example.com", "quota": quota})
    assert answer.status_code == 201
    made, text = answer.json()["token"], answer.json()["text"]
    assert (made["created_by"], made["created_at"], made["expires_at"], made["scope"]) == ("root", NOW, None, "run")
    who = root.get("/caller", headers=bearing(text)).json()
    nothing = {"unfinished_sweeps": 0, "accelerator_hours": 0.0, "promised_hours": 0.0}
    shown = {"name": "ada@example.com", "scope": "run", "quota": quota, "token_id": made["id"], "usage": nothing}
    assert who == shown


def test_a_list_of_tokens_shows_neither_texts_nor_digests(root: httpx.Client) -> None:
    text = root.post("/tokens", json={"name": "only here", "scope": "read"}).json()["text"]
    listed = root.get("/tokens")
    assert [one["scope"] for one in listed.json()["items"] if one["name"] == "only here"] == ["read"]
    assert text.rpartition("_")[2] not in listed.text
    assert "argon2" not in listed.text


def test_a_token_is_taken_back_once(root: httpx.Client) -> None:
    made = root.post("/tokens", json={"name": "ada"}).json()["token"]
    first, again = (root.post(f"/tokens/{made['id']}/revoke").json() for _ in range(2))
    assert first == again
    assert first["revoked_at"] == NOW
    assert root.post("/tokens/nobody/revoke").status_code == 404


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "a" * 129}, "name"),
        ({"name": "ada\n"}, "name"),
        ({"scope": "root"}, "scope"),
        ({"quota": {"unfinished_sweeps": 0}}, "quota"),
        ({"quota": {"accelerator_hours_per_day": -1.0}}, "quota"),
        ({"expires_at": NOW}, "expires_at"),
    ],
)
def test_a_text_that_cannot_be_a_token_is_refused_with_the_field(
    root: httpx.Client, changes: dict[str, object], field: str
) -> None:
    answer = root.post("/tokens", json={"name": "ada"} | changes)
    assert answer.status_code == 422, answer.text
    assert answer.json()["field"].startswith(field)
