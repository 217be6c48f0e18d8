"""Engines, checks of clusters and their links over REST."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from autotuner.core.cluster_check import CheckFindings
from autotuner.core.codec import to_plain
from autotuner.core.profile import DeviceProfile, with_links
from autotuner.core.run import RunState
from autotuner.costmodel.profile_fit import fit_profile
from autotuner.store.sql import Store
from tests import runs
from tests.api.service import NOW, app_on, serve
from tests.builders import cpu_cluster, cpu_core, engine_job, link_point, measurement, pair_measurements, profile

REGISTERED = """
[two]
kind = "processes"
folder = "{folder}"
queues = ["short", "long"]
max_parallel_trials = 3
environment = {{ SECRET_TOKEN = "told-to-nobody" }}
"""

PAIR = replace(cpu_cluster(2), name="pair", num_nodes=2, engine="two")


@pytest.fixture
def address(store: Store, tmp_path: Path) -> Iterator[str]:
    path = tmp_path / "engines.toml"
    path.write_text(REGISTERED.format(folder=tmp_path / "secret-folder"))
    with serve(app_on(store, engines=path)) as address:
        yield address


def stored(client: httpx.Client, **changes: object) -> httpx.Response:
    return client.put("/clusters/pair", json=to_plain(PAIR) | changes)


def test_nothing_of_how_an_engine_is_reached_leaves_the_service(client: httpx.Client) -> None:
    stored(client)
    check = client.post("/clusters/pair/checks", json={})
    answers = [client.get("/engines"), check, client.get(f"/runs/{check.json()['id']}"), client.get("/openapi.json")]
    told = ("secret_token", "secret-folder", "told-to-nobody")
    assert [answer for answer in answers if any(word in answer.text.lower() for word in told)] == []


REFUSED: tuple[tuple[dict[str, Any], tuple[str, ...]], ...] = (
    ({"engine": "tow"}, ('"field":"engine"', '"nearest":"two"')),
    ({"engine": "Two"}, ('"field":"engine"', '"nearest":"two"')),
    ({"queue": "shrt"}, ('"field":"queue"', '"nearest":"short"')),
    ({"engine": "local", "queue": "gpu"}, ('"field":"queue"', "must be left out")),
    *(
        ({"num_nodes": 4, "link_health": [entry]}, (says, "ends"))
        for entry, says in (
            (
                {"ends": [1, 4], "delay_s": 0.03},
                "must be the numbers of two nodes, or on one node of two accelerators; the cluster has 4 of them, "
                "numbered from 0",
            ),
            ({"ends": [2, 2], "delay_s": 0.03}, "0 or more, with the lower number first"),
            ({"delay_s": 0.03}, "must name either two ends, or a class of links"),
        )
    ),
    ({"num_nodes": 4, "link_health": [{"ends": [0, 1], "delay_s": -1.0}]}, ("0 or more", "link_health")),
    ({"num_nodes": 4, "link_health": [{"ends": [0, 1], "bandwidth_bytes_per_s": 0}]}, ("above 0", "link_health")),
    ({"num_nodes": 4, "link_health": [{"link_class": "between", "delay_s": 0.1}]}, ("inter_node", "link_health")),
)
"""A cluster whose engine, queue or links there are not, and what is said of it."""


def test_a_cluster_that_cannot_be_is_refused_with_what_there_is(client: httpx.Client) -> None:
    for changes, says in REFUSED:
        problem = stored(client, **changes)
        assert problem.status_code == 422, (changes, problem.text)
        assert [words for words in says if words not in problem.text] == [], (changes, problem.text)
    assert client.get("/clusters").json()["items"] == []


def test_a_service_without_workers_does_not_check_engines(store: Store) -> None:
    with serve(app_on(store)) as address, httpx.Client(base_url=f"{address}/api/v1", timeout=60) as client:
        assert stored(client, engine="only-there", queue="gpu").status_code == 200
        assert client.post("/clusters/pair/checks", json={}).status_code == 201


def test_a_running_check_shows_what_it_found_by_now(client: httpx.Client, store: Store) -> None:
    stored(client)
    check_id = client.post("/clusters/pair/checks", json={}).json()["id"]
    found = CheckFindings(engine="processes", trial=measurement(), jobs=(engine_job(),)).said("trial: 5 steps", NOW)
    runs.report(store, runs.claimed(store, "check", now=NOW), found)
    check = client.get(f"/runs/{check_id}").json()
    found = check["progress"]
    assert (check["state"], found["engine"], found["jobs"][0]["handle"]) == ("running", "processes", "17")
    assert found["lines"] == [{"at": NOW, "text": "trial: 5 steps"}]
    assert (found["trial"]["step_time_s"], check["lease"]) == (0.5, None)


def test_a_second_check_while_one_runs_is_a_conflict(client: httpx.Client) -> None:
    stored(client)
    first = client.post("/clusters/pair/checks", json={}).json()
    again = client.post("/clusters/pair/checks", json={})
    assert again.status_code == 409
    assert first["id"] in again.json()["detail"]


def test_a_check_is_cancelled_and_a_finished_one_stays(client: httpx.Client, store: Store) -> None:
    stored(client)
    waiting = client.post("/clusters/pair/checks", json={}).json()["id"]
    assert client.post(f"/runs/{waiting}/cancel").json()["state"] == "cancelled"
    running = client.post("/clusters/pair/checks", json={}).json()["id"]
    taken = runs.claimed(store, "check", now=NOW)
    asked = client.post(f"/runs/{running}/cancel").json()
    assert (asked["state"], asked["wanted"]) == ("running", "cancel")
    runs.end(store, taken, RunState.COMPLETE, now=NOW)
    assert client.post(f"/runs/{running}/cancel").json()["state"] == "complete"


@pytest.mark.parametrize("engine", ["local", "simulated"])
def test_a_cluster_without_nodes_is_not_checked(client: httpx.Client, engine: str) -> None:
    stored(client, engine=engine)
    problem = client.post("/clusters/pair/checks", json={})
    assert (problem.status_code, problem.json()["field"], problem.json()["value"]) == (422, "engine", engine)


def test_a_check_of_nothing_is_not_found(client: httpx.Client) -> None:
    stored(client)
    missing = client.post("/clusters/pai/checks", json={})
    assert (missing.status_code, missing.json()["nearest"]) == (404, "pair")
    for path in ("/runs/ck-missing", "/clusters/h100:8/links"):
        assert client.get(path).status_code == 404


@pytest.mark.parametrize("body", [{"num_nodes": 0}, {"max_queued_s": 0.0}, {"command": ["rm"]}, {"queue": "gpu"}])
def test_a_check_is_asked_for_by_what_it_knows_alone(client: httpx.Client, body: dict[str, object]) -> None:
    stored(client)
    assert client.post("/clusters/pair/checks", json=body).status_code == 422


def measured(store: Store) -> None:
    taken = fit_profile(pair_measurements(), name="pair", measured_at=NOW, num_ranks=4, accelerator=cpu_core())
    store.descriptions.save(replace(taken, cluster="pair"))


def test_links_are_those_that_were_described_until_a_check_measured_them(client: httpx.Client, store: Store) -> None:
    stored(client)
    before = client.get("/clusters/pair/links").json()
    assert (before["measured_at"], before["num_nodes"]) == (None, 0)
    assert [link["measured"] for link in before["items"]] == [None, None]
    measured(store)
    after = client.get("/clusters/pair/links").json()
    assert (after["measured_at"], after["num_nodes"]) == (NOW, 2)
    assert [link["described"]["bandwidth_bytes_per_s"] for link in after["items"]] == [1e9, 1e9]
    assert [link["measured"]["bandwidth_bytes_per_s"] for link in after["items"]] == pytest.approx([1e9, 0.5e9])


def test_predictions_for_a_checked_cluster_use_what_was_measured_and_say_so(client: httpx.Client, store: Store) -> None:
    stored(client)
    body = {
        "model": "llama-demo",
        "cluster": "pair",
        "workload": {"seq_len": 64, "global_batch_size": 8},
        "layout": {"data_parallel_replicate_degree": 4, "precision": "fp32", "attention_kernel": "math"},
    }
    before = client.post("/predictions", json=body).json()
    measured(store)
    after = client.post("/predictions", json=body).json()
    assert after["items"][0]["prediction"]["step_time_s"] != before["items"][0]["prediction"]["step_time_s"]
    assert _measured_links(before) == []
    assert _measured_links(after) == [(["2 nodes, 2025-10-09", "2 nodes, 2025-10-09"], "pair")]
    assert client.get("/clusters/pair").json()["inter_node_link"]["source"] == "2 nodes, 2025-10-09"
    assert client.get("/clusters").json()["items"][0]["inter_node_link"]["source"] == ""  # as it was stored


def _measured_links(answer: dict[str, Any]) -> list[tuple[list[str], str]]:
    found = [one for one in answer["caveats"] if one["kind"] == "measured_links"]
    return [(one["subjects"], one["cluster"]) for one in found]


def test_a_machines_profile_of_the_clusters_name_says_nothing_of_the_cluster(
    client: httpx.Client, store: Store
) -> None:
    stored(client)
    store.descriptions.save(profile("pair"))
    assert client.get("/clusters/pair").json() == to_plain(PAIR)


def test_a_clusters_profile_describes_no_machine(client: httpx.Client, store: Store) -> None:
    stored(client)
    measured(store)
    problem = client.get("/clusters/profile:pair")
    assert (problem.status_code, problem.json()["nearest"]) == (422, "pair")


def test_a_removed_cluster_is_gone_with_what_was_measured(client: httpx.Client, store: Store) -> None:
    stored(client)
    measured(store)
    assert client.delete("/clusters/pair").json() == to_plain(PAIR)
    assert client.get("/clusters/pair").status_code == 404
    assert client.delete("/clusters/pair").status_code == 404
    assert store.descriptions.stored(DeviceProfile).items == ()


def test_a_cluster_that_is_being_checked_is_not_removed(client: httpx.Client) -> None:
    stored(client)
    client.post("/clusters/pair/checks", json={})
    assert client.delete("/clusters/pair").status_code == 409


# ---------------------------------------------------------------------- links one by one
LATE = {"ends": [1, 2], "delay_s": 0.03}


def test_a_cluster_is_stored_with_the_state_of_its_links(client: httpx.Client) -> None:
    stored(client, num_nodes=4, link_health=[LATE, {"link_class": "intra_node", "bandwidth_bytes_per_s": 1e9}])
    late, narrow = client.get("/clusters/pair").json()["link_health"]
    assert (late["ends"], late["delay_s"], late["source"]) == ([1, 2], 0.03, "")
    assert (narrow["ends"], narrow["link_class"]) == (None, "intra_node")
    assert client.get("/clusters/pair/links").json()["health"] == [late, narrow]


def test_a_prediction_takes_a_cluster_that_is_written_down_with_the_state_of_its_links(client: httpx.Client) -> None:
    cluster = {"accelerator": "h100", "num_nodes": 2, "link_health": [{"ends": [0, 1], "delay_s": 0.03}]}
    body = {"model": "llama-3-8b", "cluster": cluster, "workload": {"global_batch_size": 64, "seq_len": 4096}}
    answer = client.post("/predictions", json=body | {"limit": 1})
    assert answer.status_code == 200, answer.text


def test_links_that_were_measured_one_by_one_are_listed_and_count_in_the_cluster(
    client: httpx.Client, store: Store
) -> None:
    stored(client, num_nodes=4)
    points = tuple(
        link_point(*ends, delay=0.03 if ends == (2, 3) else 50e-6) for ends in itertools.combinations(range(4), 2)
    )
    taken = fit_profile(pair_measurements(), name="pair", measured_at=3.0, num_ranks=4, accelerator=cpu_core())
    taken = with_links(replace(taken, cluster="pair"), points, measured_at=86_400.0, num_nodes=4)
    store.descriptions.save(taken)
    links = client.get("/clusters/pair/links").json()
    assert len(links["one_by_one"]) == 6
    assert (links["one_by_one_at"], links["one_by_one_nodes"]) == (86_400.0, 4)
    assert links["norm"]["delay_s"] == 50e-6
    (late,) = client.get("/clusters/pair").json()["link_health"]
    assert (late["ends"], late["source"]) == ([2, 3], "measured 1970-01-02")
    assert links["health"] == [late]
