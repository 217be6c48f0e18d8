"""Who may change what: who made it, and an admin; and how much one caller may take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, get_args

import httpx
import pytest

from autotuner.api.routes.runs import AnyRun
from autotuner.core.access import Quota, Scope
from autotuner.core.codec import to_plain
from autotuner.core.run import kind_of
from autotuner.store.sql import Store
from tests.announcements import announce
from tests.api.access import People, bearing
from tests.api.bodies import CPU as SWEEP
from tests.api.bodies import PLAN, STUDY
from tests.api.service import app_on, serve
from tests.api.test_upkeep import LAYOUT, run
from tests.builders import cpu_cluster, tiny_model
from tests.contracts.upkeep import announcement, webhook
from tests.patience import PATIENCE_S

PAIR = to_plain(replace(cpu_cluster(2), name="pair", num_nodes=2, engine="two"))
RETUNE = {"name": "nightly", "cron": "0 3 * * *", "sweep": SWEEP}


@dataclass(frozen=True, kw_only=True)
class Team:
    """Two who run sweeps, and an admin."""

    people: People
    ada: httpx.Client
    bob: httpx.Client
    root: httpx.Client

    def newcomer(self, **quota: Any) -> dict[str, str]:
        """Headers of somebody with that quota."""
        return bearing(self.people.token(name="eve", quota=Quota(**quota)))


@pytest.fixture
def team(store: Store) -> Iterator[Team]:
    app = app_on(store, login="tokens")
    with ExitStack() as stack:
        people = People(app=app, address=stack.enter_context(serve(app)))
        ada, bob = (stack.enter_context(people.client(name=name)) for name in ("ada", "bob"))
        yield Team(people=people, ada=ada, bob=bob, root=stack.enter_context(people.client(Scope.ADMIN, "root")))


def made(answer: httpx.Response) -> dict[str, Any]:
    assert answer.is_success, answer.text
    document: dict[str, Any] = answer.json()
    return document


def test_an_object_names_its_creator_and_only_the_creator_and_admins_change_it(team: Team) -> None:
    sweep = made(team.ada.post("/sweeps", json=SWEEP))
    gate = made(team.ada.post("/gates", json=SWEEP | {"baseline": "main"}))
    retune = made(team.ada.post("/retunes", json=RETUNE))
    made(team.ada.put("/clusters/pair", json=PAIR))
    made(team.ada.put("/models/tiny", json=to_plain(tiny_model())))
    check = made(team.ada.post("/clusters/pair/checks", json={}))
    assert {each["created_by"] for each in (sweep, gate, retune, check)} == {"ada"}
    assert team.bob.get("/models").json()["created_by"] == {"tiny": "ada"}
    assert team.bob.get("/clusters").json()["created_by"] == {"pair": "ada"}
    changes = [
        ("POST", f"/runs/{sweep['id']}/cancel"),
        ("POST", f"/runs/{gate['id']}/cancel"),
        *(("POST", f"/retunes/nightly/{verb}") for verb in ("pause", "resume", "runs")),
        ("POST", f"/runs/{check['id']}/cancel"),
        ("DELETE", "/models/tiny"),
        ("DELETE", "/clusters/pair"),
    ]
    for method, path in changes:
        refused = team.bob.request(method, path)
        assert (refused.status_code, refused.json()["type"]) == (403, "urn:autotuner:problem:not-yours"), path
        assert "'ada' made it" in refused.json()["detail"]
    half = len(changes) // 2
    assert all(team.ada.request(*change).is_success for change in changes[:half])
    assert all(team.root.request(*change).is_success for change in changes[half:])


def test_a_run_of_every_kind_is_stopped_by_who_asked_for_it_and_an_admin_alone(team: Team) -> None:
    made(team.ada.post("/retunes", json=RETUNE))
    made(team.ada.put("/clusters/pair", json=PAIR))
    asked = {
        "sweep": made(team.ada.post("/sweeps", json=SWEEP)),
        "gate": made(team.ada.post("/gates", json=SWEEP | {"baseline": "main"})),
        "retune": made(team.ada.post("/retunes/nightly/runs")),
        "study": made(team.ada.post("/optimizer-studies", json=STUDY)),
        "check": made(team.ada.post("/clusters/pair/checks", json={})),
        "plan": made(team.ada.post("/plans", json=PLAN)),
    }
    assert asked.keys() == {kind_of(one) for one in get_args(AnyRun)}
    reader = bearing(team.people.token(Scope.READ, "rita"))
    for kind, one in asked.items():
        path = f"/runs/{one['id']}"
        assert made(team.bob.get(path, headers=reader))["kind"] == kind
        refused = [team.bob.post(f"{path}/cancel", headers=each).json()["type"] for each in (reader, {})]
        assert refused[0] == "urn:autotuner:problem:not-allowed"
        assert refused[1] == f"urn:autotuner:problem:not-{'allowed' if kind == 'plan' else 'yours'}"
        who = team.root if kind == "plan" else team.ada
        assert made(who.post(f"{path}/cancel"))["kind"] == kind
        assert made(team.root.post(f"{path}/cancel"))["kind"] == kind


def test_a_run_of_a_kind_that_is_not_listed_is_missing(team: Team, store: Store) -> None:
    store.announcements.save_webhook(webhook())
    announce(store.announcements, announcement())
    (delivery,), _ = store.announcements.deliveries()
    for method, path in (("GET", ""), ("POST", "/cancel"), ("POST", "/pause"), ("POST", "/resume"), ("GET", "/events")):
        assert team.root.request(method, f"/runs/{delivery.id}{path}").status_code == 404, path
    assert made(team.root.get("/runs"))["items"] == []
    assert team.root.get("/runs", params={"kind": "delivery"}).status_code == 422


def test_a_baseline_is_replaced_by_who_set_it_and_an_admin_alone(team: Team, store: Store) -> None:
    body = SWEEP | {"layout": to_plain(LAYOUT), "baseline": "main", "sets_baseline": True}
    first = made(team.ada.post("/gates", json=body))
    run(store, (1000.0, 1001.0, 999.0, 1000.5))
    assert made(team.ada.get(f"/runs/{first['id']}"))["is_passed"] is True
    num_sweeps = made(team.ada.get("/sweeps"))["total"]
    refused = team.bob.post("/gates", json=body)
    assert (refused.status_code, refused.json()["type"]) == (403, "urn:autotuner:problem:not-yours")
    assert (
        refused.json()["detail"] == "only its creator or an administrator can change the baseline 'main': 'ada' made it"
    )
    assert made(team.ada.get("/sweeps"))["total"] == num_sweeps
    for who, is_set in ((team.bob, False), (team.ada, True), (team.root, True)):
        made(who.post("/gates", json=body | {"sets_baseline": is_set}))


def test_a_gate_that_was_asked_for_before_another_set_the_baseline_does_not_replace_it(
    team: Team, store: Store
) -> None:
    body = SWEEP | {"layout": to_plain(LAYOUT), "baseline": "main", "sets_baseline": True}
    asked = {made(who.post("/gates", json=body))["id"] for who in (team.ada, team.bob)}
    run(store, (1000.0, 1001.0, 999.0, 1000.5))
    (first,) = made(team.ada.get("/baselines"))["items"]
    run(store, (1000.0, 1001.0, 999.0, 1000.5))
    assert made(team.ada.get("/baselines"))["items"] == [first]
    (late,) = asked - {first["gate_id"]}
    assert "no baseline was set" in made(team.ada.get(f"/runs/{late}"))["detail"]


def test_a_clone_is_theirs_who_asks_for_it_and_held_to_their_quota(team: Team) -> None:
    sweep = made(team.ada.post("/sweeps", json=SWEEP))
    assert made(team.bob.post(f"/sweeps/{sweep['id']}/clone", json={}))["created_by"] == "bob"
    eve = team.newcomer(accelerator_hours_per_day=8.0)
    assert (
        made(team.bob.post(f"/sweeps/{sweep['id']}/clone", json={}, headers=eve))["budget"]["accelerator_hours"] == 8.0
    )
    assert team.bob.post(f"/sweeps/{sweep['id']}/clone", json={}, headers=eve).status_code == 429


def test_a_run_that_an_admin_starts_counts_as_its_maker_s(team: Team) -> None:
    made(team.ada.post("/retunes", json=RETUNE))
    run = made(team.root.post("/retunes/nightly/runs"))
    assert made(team.root.get(f"/sweeps/{run['child_id']}"))["created_by"] == "ada"


def test_equal_keys_of_two_callers_are_two_sweeps(team: Team) -> None:
    key = {"Idempotency-Key": "nightly"}
    ids = [made(who.post("/sweeps", json=SWEEP, headers=key))["id"] for who in (team.ada, team.bob, team.ada)]
    assert ids[0] == ids[2] != ids[1]


def test_more_sweeps_than_a_quota_has_are_refused_with_numbers(team: Team) -> None:
    eve = team.newcomer(unfinished_sweeps=1)
    made(team.ada.post("/sweeps", json=SWEEP, headers=eve))
    refused = team.ada.post("/sweeps", json=SWEEP, headers=eve)
    assert (refused.status_code, refused.json()["type"]) == (429, "urn:autotuner:problem:quota-exceeded")
    assert refused.json()["detail"].startswith("you have 1 unfinished sweeps")


def test_a_sweep_is_held_to_the_hours_that_are_left_and_the_caller_sees_what_is_taken(team: Team) -> None:
    eve = team.newcomer(accelerator_hours_per_day=8.0)
    asked = made(team.ada.post("/sweeps", json=SWEEP | {"budget": {"accelerator_hours": 3.0}}, headers=eve))
    rest = made(team.ada.post("/sweeps", json=SWEEP, headers=eve))
    assert [each["budget"]["accelerator_hours"] for each in (asked, rest)] == [3.0, 5.0]
    assert team.ada.get("/caller", headers=eve).json()["usage"] == {
        "unfinished_sweeps": 2,
        "accelerator_hours": 0.0,
        "promised_hours": 8.0,
    }
    refused = team.ada.post("/sweeps", json=SWEEP, headers=eve)
    assert (refused.status_code, "8 more are reserved" in refused.json()["detail"]) == (429, True)
    never = team.ada.post("/sweeps", json=SWEEP | {"budget": {"accelerator_hours": 9.0}}, headers=eve)
    assert (never.status_code, never.json()["field"], never.json()["nearest"]) == (422, "budget.accelerator_hours", 8.0)


def test_the_audit_log_says_who_did_what_and_who_was_refused_to_admins_alone(team: Team) -> None:
    sweep = made(team.ada.post("/sweeps", json=SWEEP))
    team.bob.post(f"/runs/{sweep['id']}/cancel")
    httpx.post(f"{team.people.address}/api/v1/sweeps", json=SWEEP, timeout=PATIENCE_S)
    assert team.bob.get("/audit").status_code == 403
    listed = {(one["caller"], one["action"], one["status"]) for one in team.root.get("/audit").json()["items"]}
    assert listed == {
        ("ada", "create_sweep", 201),
        ("bob", "cancel_run", 403),
        ("", "post", 401),
        ("bob", "read_audit", 403),
    }
    mine = team.root.get("/audit", params={"caller": "ada"}).json()["items"]
    assert [one["token_id"] for one in mine] == [team.ada.get("/caller").json()["token_id"]]
