"""Tokens over REST."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from autotuner.core.access import Scope
from autotuner.store.sql import memory_store
from tests.api.access import People, bearing
from tests.api.service import NOW, app_on, serve


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
def test_what_can_be_no_token_is_refused_with_the_field(
    root: httpx.Client, changes: dict[str, object], field: str
) -> None:
    answer = root.post("/tokens", json={"name": "ada"} | changes)
    assert answer.status_code == 422, answer.text
    assert answer.json()["field"].startswith(field)
