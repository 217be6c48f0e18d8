"""What is read of sweeps and trials over REST."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import pytest

from autotuner.core.choices import Recompute
from autotuner.core.health import KnownWorker
from autotuner.core.link import LinkHealth
from autotuner.core.sweep import Sweep
from autotuner.core.trial import Trial
from autotuner.core.trial_spec import TrialSettings
from autotuner.core.upkeep import RegressionGateOutcome, Verdict
from autotuner.store.sql import Store
from tests.api.bodies import EIGHT
from tests.api.service import NOW, StoreDriver
from tests.browser.stores import finished_gate, finished_run, retune
from tests.builders import (
    cpu_cluster,
    cpu_layout,
    failure,
    measurement,
    sweep_request,
    tiny_job,
)
from tests.contracts.acts import claim_sweep
from tests.unit.catalog.topology import published


# ---------------------------------------------------------------- attention
def test_nothing_needs_anybody_where_nothing_went_wrong(client: httpx.Client, driver: StoreDriver) -> None:
    driver.finish(driver.sweep())
    assert client.get("/attention").json()["items"] == []


def test_incidents_are_listed_worst_first_with_their_pages(client: httpx.Client, driver: StoreDriver) -> None:
    retune(driver)
    finished_run(driver, Verdict.REGRESSION, 900.0, "lost 10 %")
    gate = finished_gate(driver, RegressionGateOutcome.FAILED, 940.0, "6 % slower")
    found = client.get("/attention").json()["items"]
    assert [(one["kind"], one["path"], one["detail"]) for one in found[1:]] == [
        ("regression", "/retunes/nightly", "lost 10 %"),
        ("gate_failed", f"/gates/{gate.id}", "6 % slower"),
    ]
    assert (found[0]["kind"], found[0]["count"]) == ("no_worker", 2)


def test_sweeps_that_wait_need_somebody_only_while_no_worker_lives(client: httpx.Client, driver: StoreDriver) -> None:
    driver.store.create_sweep(sweep_request(), now=NOW - 60)
    (waiting,) = client.get("/attention").json()["items"]
    assert (waiting["kind"], waiting["at"], waiting["path"]) == ("no_worker", NOW - 60, "/?state=queued")
    assert waiting["detail"] == "1 sweep waits, and no worker has given a sign of life for a minute"
    driver.store.health.tell(KnownWorker(name="node1", version="1", started_at=NOW - 99, seen_at=NOW - 3))
    assert client.get("/attention").json()["items"] == []


# ---------------------------------------------------------------- workers
def test_workers_are_listed_with_whether_they_live_and_what_they_run(client: httpx.Client, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    for name, silent_s in ((driver.owner, 10.0), ("idle", 20.0), ("dead", 3600.0)):
        driver.store.health.tell(KnownWorker(name=name, version="1", started_at=NOW - 7200, seen_at=NOW - silent_s))
    items = client.get("/workers").json()["items"]
    assert [(item["name"], item["is_alive"], item["sweep_id"]) for item in items] == [
        (driver.owner, True, sweep.id),
        ("idle", True, None),
        ("dead", False, None),
    ]
    assert client.get("/ready").json()["num_workers"] == 2


# ---------------------------------------------------------------- What waits says so, and why, in REST and on pages
REASON = "waits until other trials on this machine have ended (process 17 uses the devices)"


@pytest.fixture
def waiting(driver: StoreDriver) -> Trial:
    """A trial that has waited for devices for 35 s."""
    trial = driver.start(driver.sweep(), 0)
    return driver.store.set_waiting(trial.id, REASON, lease=driver.lease(trial.id), now=NOW - 35)


def test_a_sweep_whose_worker_died_says_that_it_waits_for_one(client: httpx.Client, address: str, store: Store) -> None:
    sweep, _ = store.create_sweep(sweep_request(), now=NOW - 100)
    claim_sweep(store, owner="dead", now=NOW - 50, lease_s=15.0)
    reason = "waits for a worker: its worker gives no sign of life, and the next free worker continues it"
    shown = client.get(f"/sweeps/{sweep.id}").json()
    assert (shown["state"], shown["waiting"]) == ("running", {"reason": reason, "since": NOW - 35})
    assert client.get("/sweeps").json()["items"][0]["waiting"] == shown["waiting"]
    page = httpx.get(f"{address}/sweeps/{sweep.id}", headers={"Accept": "text/html"}, timeout=60).text
    assert f"{reason}, 35 s" in page


@pytest.mark.parametrize("path", ["/sweeps/{0.sweep_id}", "/trials/{0.id}"])
def test_pages_say_what_a_trial_waits_for_and_for_how_long(address: str, waiting: Trial, path: str) -> None:
    page = httpx.get(address + path.format(waiting), headers={"Accept": "text/html"}, timeout=60).text
    assert f"{REASON[1:]}, 35 s" in page  # one begins a sentence with it
    assert "starting" not in page


# ---------------------------------------------------------------- tables
@pytest.fixture
def sweep_id(driver: StoreDriver) -> str:
    sweep = driver.sweep()
    for number, mfu in enumerate((0.2, 0.4, 0.3)):
        layout = cpu_layout(tensor_parallel_degree=2, micro_batch_size=2**number)
        driver.ended(sweep, number, measurement(mfu=mfu, tokens_per_s=1000 * mfu), layout)
    return sweep.id


def test_a_table_has_the_rows_the_order_and_the_columns_that_are_asked_for(client: httpx.Client, sweep_id: str) -> None:
    query = {"where": "mfu>25 tp=2", "sort": "mb", "columns": "mb,mfu,rank"}
    answer = client.get(f"/sweeps/{sweep_id}/table", params=query).json()
    assert [column["name"] for column in answer["columns"]] == ["mb", "mfu", "rank"]
    assert [(row["values"]["mb"], row["values"]["mfu"], row["values"]["rank"]) for row in answer["items"]] == [
        (2, 0.4, 1),
        (4, 0.3, 2),
    ]
    assert answer["items"][0]["source"] == "measured"
    assert (answer["total"], answer["num_rows"]) == (2, 3)


def test_untried_layouts_are_the_best_by_prediction_without_those_that_were_tried(
    client: httpx.Client, sweep_id: str
) -> None:
    answer = client.get(f"/sweeps/{sweep_id}/table", params={"rows": "untried", "limit": 1000}).json()
    tried = {item["label"] for item in client.get(f"/sweeps/{sweep_id}/table").json()["items"]}
    assert answer["items"]
    assert {item["source"] for item in answer["items"]} == {"predicted"}
    assert tried.isdisjoint(item["label"] for item in answer["items"])
    predicted = [item["values"]["predicted_mfu"] for item in answer["items"]]
    assert predicted == sorted(predicted, reverse=True)


def test_a_table_follows_its_sweep(client: httpx.Client, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    assert client.get(f"/sweeps/{sweep.id}/table").json()["items"] == []
    driver.ended(sweep, 0)
    assert client.get(f"/sweeps/{sweep.id}/table").json()["total"] == 1


@pytest.mark.parametrize(
    ("query", "field"), [({"where": "tpp=4"}, "where"), ({"sort": "speed"}, "sort"), ({"columns": "x"}, "columns")]
)
def test_an_illegal_query_of_a_table_is_refused(
    client: httpx.Client, sweep_id: str, query: dict[str, str], field: str
) -> None:
    refused = client.get(f"/sweeps/{sweep_id}/table", params=query)
    assert refused.status_code == 422
    assert refused.json()["field"] == field
    assert refused.json()["nearest"]


# ---------------------------------------------------------------- topologies


def test_files_are_read_and_said_and_stored_with_a_cluster(client: httpx.Client) -> None:
    cluster = {"name": "ours", "accelerator": "h100", "num_nodes": 16}
    body = {"files": [published.SLURM_TREE, published.DGX_H100], "cluster": cluster}
    found = client.post("/topologies", json=body).json()
    assert found["read"] == ["Slurm's topology.conf", "nvidia-smi topo -m"]
    assert (found["num_nodes"], found["num_accelerators"]) == (18, 8)
    saved = client.put("/clusters/ours", json=found["cluster"])
    assert saved.status_code == 200
    assert client.get("/clusters/ours").json()["network"] == found["network"]


def test_a_file_of_a_large_cluster_is_read_whole(client: httpx.Client) -> None:
    nodes = [[f"gpu-node-{16 * leaf + number:06d}" for number in range(16)] for leaf in range(64)]
    leaves = [f"SwitchName=leaf{number} Nodes={','.join(names)}" for number, names in enumerate(nodes)]
    text = "\n".join([*leaves, "SwitchName=spine Switches=leaf[0-63]"])
    assert len(text) > 15_000
    found = client.post("/topologies", json={"files": [text]})
    assert (found.status_code, found.json()["num_nodes"]) == (200, 1024)


def test_a_bad_file_is_refused_with_its_line_and_the_nearest(client: httpx.Client) -> None:
    refused = client.post("/topologies", json={"files": ["SwitchName=s0 Node=x"]})
    assert refused.status_code == 422
    assert "line 1" in refused.text
    assert "Nodes" in refused.text


def test_a_cluster_names_its_network_in_its_short_form_and_in_its_description(client: httpx.Client) -> None:
    assert client.get("/clusters/h100:64@torus-3d").json()["network"]["torus"] == [2, 2, 2]
    body = {"name": "ours", "accelerator": "h100", "num_nodes": 4, "network": "dgx-superpod"}
    assert client.put("/clusters/ours", json=body).json()["network"]["num_rails"] == 8
    unknown = client.put("/clusters/theirs", json=body | {"name": "theirs", "network": "fat-tree"})
    assert unknown.status_code == 404
    assert "fat-tree-" in unknown.text


# ---------------------------------------------------------------- results

PLAIN = cpu_layout(tensor_parallel_degree=2)
FULL = replace(PLAIN, recompute=Recompute.FULL)


@pytest.fixture
def measured_sweep(driver: StoreDriver) -> Sweep:
    """Two layouts that were measured, and one that ran out of memory."""
    made = driver.sweep()
    driver.ended(made, 0, measurement(step_time_s=0.75, mfu=0.2, tokens_per_s=700.0), layout=FULL)
    driver.ended(made, 1, measurement(step_time_s=0.5, mfu=0.3, tokens_per_s=1000.0), layout=PLAIN)
    driver.ended(made, 2, failure(), layout=replace(PLAIN, micro_batch_size=4))
    return made


def test_a_sweep_without_a_rank_has_no_answer(client: httpx.Client, driver: StoreDriver) -> None:
    made = driver.sweep()
    assert client.get(f"/sweeps/{made.id}/answer").json() == {"answer": None, "expected_improvement": None}
    assert client.get(f"/sweeps/{made.id}/failures").json()["items"] == []
    assert client.get(f"/sweeps/{made.id}/accuracy").json()["trials"] == []
    assert client.get(f"/sweeps/{made.id}/choices").json()["grid"]["cells"] == []


def test_choices_show_the_two_that_were_asked_for(client: httpx.Client, measured_sweep: Sweep) -> None:
    answer = client.get(f"/sweeps/{measured_sweep.id}/choices", params={"rows": "mb", "columns": "recompute"}).json()
    assert answer["grid"]["columns"] == ["full", "none"]
    assert [[cell["trial"] for cell in row] for row in answer["grid"]["cells"]] == [[0, 1], [None, 2]]
    effect = answer["choices"]["effects"][0]
    assert (effect["subject"], effect["before"], effect["after"]) == ("recompute", "full", "none")
    assert effect["median_gain"] == pytest.approx(0.5)


def test_a_choice_that_there_is_none_of_is_refused(client: httpx.Client, measured_sweep: Sweep) -> None:
    refused = client.get(f"/sweeps/{measured_sweep.id}/choices", params={"rows": "zp"})
    assert refused.status_code == 422
    assert "must be one of tp" in refused.text


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"metrics": "mfu,tokens_per_joule"}, "power_w"),
        ({"metrics": "mfu"}, "must name two or more metrics"),
        ({"metrics": "mfu,speed"}, "must be one of mfu"),
        ({"profile": "mfu=fast"}, "must be the name of a metric, =, and a weight above 0, for example mfu=2"),
    ],
)
def test_an_underivable_or_unreadable_setting_is_refused(
    client: httpx.Client, measured_sweep: Sweep, asked: dict[str, str], told: str
) -> None:
    refused = client.get(f"/sweeps/{measured_sweep.id}/front", params=asked)
    assert refused.status_code == 422
    assert told in refused.text


# ---------------------------------------------------------------- comparisons


@pytest.fixture
def ids(driver: StoreDriver) -> list[str]:
    """A sweep and three of its trials: the best, one slower, one that died."""
    measured_sweep = driver.sweep(sweep_request(name="nightly"))
    best = driver.ended(measured_sweep, 0, measurement(mfu=0.4, step_time_s=1.0), cpu_layout(tensor_parallel_degree=2))
    slow = driver.ended(
        measured_sweep, 1, measurement(mfu=0.2, step_time_s=2.0), cpu_layout(data_parallel_replicate_degree=2)
    )
    died = driver.ended(measured_sweep, 2, failure(), cpu_layout(pipeline_parallel_degree=2))
    return [measured_sweep.id, best.id, slow.id, died.id]


def test_a_layout_in_words_and_flags_are_of_the_job_of_the_first(client: httpx.Client, ids: list[str]) -> None:
    words = client.post("/comparisons", json={"of": [ids[1], "dp2 mb1 math fp32"]}).json()
    assert words["items"][1]["figures"]["source"] == "predicted"
    flags = "--pipeline-model-parallel-size 2 --micro-batch-size 1 --attention-backend unfused"
    read = client.post("/comparisons", json={"of": [ids[1]], "flags": flags}).json()
    assert read["items"][1]["layout"]["pipeline_parallel_degree"] == 2
    assert read["items"][1]["notes"]


def test_flags_may_be_a_whole_launch_script(client: httpx.Client, ids: list[str]) -> None:
    script = "--pipeline-model-parallel-size 2 --micro-batch-size 1 --attention-backend unfused".ljust(15_000)
    assert client.post("/comparisons", json={"of": [ids[1]], "flags": script}).status_code == 200


def test_a_trial_that_died_is_compared_by_its_prediction(client: httpx.Client, ids: list[str]) -> None:
    found = client.post("/comparisons", json={"of": [ids[1], ids[3]]}).json()
    assert [item["figures"]["source"] for item in found["items"]] == ["measured", "predicted"]


def test_an_address_that_explores_a_layout_is_compared_in_its_own_job(client: httpx.Client, ids: list[str]) -> None:
    address = "/explore?model=llama-3-8b&cluster=h100:8&seq_len=8192&global_batch_size=64&layout=fsdp8 mb1 flash bf16"
    found = client.post("/comparisons", json={"of": [ids[1], address]}).json()
    assert found["is_one_job"] is False
    assert [item["letter"] for item in found["items"] if item["beside"] is None] == [found["fastest"]]


def test_no_more_than_four_are_compared_and_equal_words_are_one(client: httpx.Client, ids: list[str]) -> None:
    five = [ids[1], ids[2], "dp2 mb1 math fp32", "dp2 mb2 math fp32", "dp2 mb4 math fp32"]
    refused = client.post("/comparisons", json={"of": five})
    assert (refused.status_code, refused.json()["nearest"]) == (422, 4)
    assert client.post("/comparisons", json={"of": [ids[1], ids[1]]}).status_code == 422


# ---------------------------------------------------------------- explanations

LAYOUT: dict[str, Any] = {"tensor_parallel_degree": 8, "recompute": "full"}


def test_an_explanation_is_of_the_layout_that_a_prediction_is_of(client: httpx.Client) -> None:
    (row,) = client.post("/predictions", json=EIGHT | {"layout": LAYOUT}).json()["items"]
    explained = client.post("/explanations", json=EIGHT | {"layout": LAYOUT}).json()
    assert (explained["label"], explained["layout"]) == (row["label"], row["layout"])
    assert explained["prediction"] == row["prediction"]


def test_a_trial_is_explained_within_the_memory_that_it_had(client: httpx.Client, driver: StoreDriver) -> None:
    measured_sweep = driver.sweep(sweep_request(trial=TrialSettings(memory_budget_bytes=10**8)))
    trial = driver.ended(measured_sweep, 0)
    explained = client.get(f"/trials/{trial.id}/explanation").json()
    assert explained["limit_bytes"] == 10**8
    assert explained["layout"] == client.get(f"/trials/{trial.id}").json()["layout"]


def test_a_trial_that_has_not_run_has_a_predicted_timeline_alone(client: httpx.Client, driver: StoreDriver) -> None:
    trial = driver.running(driver.sweep(), 0)
    found = client.get(f"/trials/{trial.id}/timeline").json()
    assert found["measured"] is None
    assert found["predicted"]["timeline"]["ranks"]


def test_a_trial_on_a_cluster_with_a_slow_link_reports_the_step_with_and_without_it(
    client: httpx.Client, driver: StoreDriver
) -> None:
    job = tiny_job(4, cluster=cpu_cluster(4, link_health=(LinkHealth(ends=(1, 2), delay_s=0.03),)))
    layout = cpu_layout(pipeline_parallel_degree=4)
    trial = driver.queued(driver.sweep(sweep_request(job=job)), 0, layout)
    found = client.get(f"/trials/{trial.id}/link-timelines").json()
    assert found["hops"][0]["ranks"] == [1, 2]
    assert {message["action"][1] for message in found["messages"]} == {"F", "B"}
    assert found["slow"]["timeline"]["ranks"][0]["actions"][0] == "0F0"
    assert found["links"][0]["delay_s"] == 0.03
    assert found["added_s"] > 0
