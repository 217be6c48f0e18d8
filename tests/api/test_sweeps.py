from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from autotuner.core.sweep import Budget
from autotuner.core.trial import Stopped
from autotuner.host.machine_facts import host_hash
from autotuner.launch import this_machine
from autotuner.launch.this_machine import forget_cluster
from autotuner.store.schema import memory_engine
from autotuner.store.sql import Store
from tests.api.bodies import CPU, LARGE, STUDY
from tests.api.service import NOW, StoreDriver, app_on, serve
from tests.builders import (
    cpu_cluster,
    cpu_layout,
    failure,
    measurement,
    profile,
    proxy_trial,
    sweep_request,
    tiny_job,
)
from tests.patience import PATIENCE_S


@pytest.fixture
def measurings(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Grows each time that this machine's cores are measured, which costs nothing here."""
    asked: list[str] = []

    def measure() -> tuple[float, float]:
        asked.append("cores")
        return 1e11, 2e11

    monkeypatch.setattr(this_machine, "gemm_flop_per_s", measure)
    monkeypatch.setattr(this_machine, "visible_gpus", tuple)
    forget_cluster()
    yield asked
    forget_cluster()


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({"space": {"tensor_parallel_degree": [3]}}, 422),
        ({"space": {"tensor_parallel_degree": ["many"]}}, 422),
        ({"trial_cluster": "nowhere"}, 404),
        ({"budget": {"num_trials": 0}}, 422),
    ],
)
def test_a_sweep_on_this_machine_is_refused_before_the_machine_is_measured(
    client: httpx.Client, measurings: list[str], wrong: dict[str, Any], status: int
) -> None:
    assert client.post("/sweeps", json=CPU | {"cluster": "local"} | wrong).status_code == status
    assert measurings == []


def test_a_sweep_on_this_machine_has_its_measured_peaks(client: httpx.Client, measurings: list[str]) -> None:
    created = client.post("/sweeps", json=CPU | {"cluster": "local"})
    assert created.status_code == 201
    accelerator = created.json()["request"]["job"]["cluster"]["accelerator"]
    assert (accelerator["fp32_flop_per_s"], accelerator["peak_is_measured"]) == (1e11, True)
    assert measurings == ["cores"]


@pytest.mark.parametrize("name", ["local", "profile:local"])
def test_a_sweep_on_this_machine_takes_its_peaks_from_a_profile_without_measuring_again(
    client: httpx.Client, driver: StoreDriver, measurings: list[str], name: str
) -> None:
    taken = replace(profile("local"), host=host_hash())
    driver.store.descriptions.save(taken)
    created = client.post("/sweeps", json=CPU | {"cluster": name})
    assert created.status_code == 201
    accelerator = created.json()["request"]["job"]["cluster"]["accelerator"]
    peaks = (accelerator["fp32_flop_per_s"], accelerator["bf16_flop_per_s"], accelerator["peak_is_measured"])
    assert peaks == (taken.fp32_flop_per_s, taken.bf16_flop_per_s, True)
    assert measurings == []


@pytest.mark.parametrize(
    ("path", "body", "changed"),
    [("/sweeps", CPU, {"seed": 7}), ("/optimizer-studies", STUDY, {"target_loss": 4.0})],
)
def test_a_key_creates_one_run_and_is_a_conflict_with_another_request(
    client: httpx.Client, path: str, body: dict[str, Any], changed: dict[str, Any]
) -> None:
    key = {"Idempotency-Key": "run-1"}
    first, again = (client.post(path, json=body, headers=key) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json()
    assert again.headers["Location"] == first.headers["Location"]
    other = client.post(path, json=body | changed, headers=key)
    assert (other.status_code, other.json()["type"]) == (409, "urn:autotuner:problem:conflict")


def test_a_running_sweep_says_how_long_the_budget_nearest_its_end_will_last(
    driver: StoreDriver,
) -> None:
    sweep = driver.sweep(sweep_request(budget=Budget(num_trials=8, wall_clock_s=100.0)))
    for number in range(2):
        driver.ended(sweep, number)
    overview = driver.store.overview(sweep.id, now=NOW + 20)
    assert overview.progress.remaining_s == pytest.approx(60.0)  # 2 of 8 ran in 20 s
    later = driver.store.overview(sweep.id, now=NOW + 60)
    assert later.progress.remaining_s == pytest.approx(40.0)  # of the time
    driver.finish(sweep)
    ended = driver.store.overview(sweep.id, now=NOW + 60)
    assert ended.progress.remaining_s is None


def test_trials_are_listed_by_number_in_pages_and_by_filter(client: httpx.Client, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    driver.ended(sweep, 0, layout=cpu_layout(tensor_parallel_degree=2))
    driver.ended(sweep, 1, failure(), layout=cpu_layout(pipeline_parallel_degree=2))
    driver.queued(sweep, 2, cpu_layout(data_parallel_replicate_degree=2, micro_batch_size=4))

    def numbers(**params: str | int) -> list[int]:
        return [trial["number"] for trial in client.get(f"/sweeps/{sweep.id}/trials", params=params).json()["items"]]

    assert numbers() == [0, 1, 2]
    assert numbers(limit=1, offset=1) == [1]
    assert numbers(state="failed") == [1]
    assert numbers(tensor_parallel_degree=2) == [0]
    assert numbers(pipeline_parallel_degree=2) == [1]
    assert numbers(micro_batch_size=4) == [2]


def test_a_loss_that_is_no_number_reads_as_null(client: httpx.Client, driver: StoreDriver) -> None:
    trial = driver.ended(driver.sweep(), 0, measurement(losses=(5.0, float("nan"))))
    assert client.get(f"/trials/{trial.id}").json()["measurement"]["losses"] == [5.0, None]


def test_a_ranking_is_by_measured_mfu_and_keeps_its_ranks_from_page_to_page(
    client: httpx.Client, driver: StoreDriver
) -> None:
    sweep = driver.sweep()
    for number, mfu in enumerate((0.1, 0.3, 0.2)):
        driver.ended(sweep, number, measurement(mfu=mfu))
    driver.ended(sweep, 3, failure())
    ranking = client.get(f"/sweeps/{sweep.id}/ranking").json()
    assert [(t["rank"], t["number"]) for t in ranking["items"]] == [(1, 1), (2, 2), (3, 0)]
    second = client.get(f"/sweeps/{sweep.id}/ranking", params={"limit": 1, "offset": 1}).json()
    assert [(t["rank"], t["number"]) for t in second["items"]] == [(2, 2)]
    assert second["total"] == 3


def test_a_sweep_keeps_what_it_maximises_how_many_trials_run_at_once_and_its_convergence_gate(
    client: httpx.Client,
) -> None:
    asked = {"objective": {"metric": "tokens_per_s"}, "max_parallel_trials": 4, "convergence_gate": {"num_seeds": 5}}
    created = client.post("/sweeps", json=CPU | asked).json()
    assert created["objective"] == {"metric": "tokens_per_s", "under_faults": False, "profile": [], "front": []}
    assert created["request"]["max_parallel_trials"] == 4
    assert created["request"]["convergence_gate"]["num_seeds"] == 5
    refused = client.post("/sweeps", json=CPU | {"convergence_gate": {"num_seeds": 1}, "max_parallel_trials": 0}).json()
    assert [error["field"] for error in refused["errors"]] == ["max_parallel_trials", "convergence_gate.num_seeds"]


def test_a_trial_that_was_ended_says_why(client: httpx.Client, driver: StoreDriver) -> None:
    sentence = "its steps take 1.4 s, the best 0.5 s"
    trial = driver.ended(driver.sweep(), 0, Stopped(reason="pruned", detail=sentence))
    assert client.get(f"/trials/{trial.id}").json()["stopped"] == {"reason": "pruned", "detail": sentence}


def test_the_utilization_of_the_precision_in_use_stands_beside_mfu(client: httpx.Client, driver: StoreDriver) -> None:
    found = measurement(mfu=0.6, model_flop_per_s=60.0, precision_flop_per_s=200.0)
    read = client.get(f"/trials/{driver.ended(driver.sweep(), 0, found).id}").json()
    assert (read["measurement"]["mfu"], read["measurement"]["precision_utilization"]) == (0.6, 0.3)


class WithoutTrials(Store):
    """A store that reads no trial."""

    def list_trials(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("a list of sweeps reads no trial")

    ranking = get_trial = list_sweeps = list_trials


@pytest.mark.parametrize("path", ["/api/v1/sweeps", "/"])
def test_a_list_of_sweeps_reads_no_trial(path: str) -> None:
    driver = StoreDriver(store=WithoutTrials(memory_engine()))
    sweep = driver.sweep(sweep_request(name="nightly"))
    driver.ended(sweep, 0, measurement(mfu=0.25))
    with serve(app_on(driver.store)) as address:
        answer = httpx.get(f"{address}{path}", timeout=PATIENCE_S)
    assert answer.status_code == 200
    assert "nightly" in answer.text


def test_a_sweep_for_a_large_cluster_says_where_it_is_tried(client: httpx.Client) -> None:
    body = {**LARGE, "trial_cluster": "h100:8"}
    created = client.post("/sweeps", json=body).json()
    assert (created["cluster"], created["trial_cluster"]) == ("h100:64", "h100:8")
    assert created["request"]["trial_cluster"]["accelerators_per_node"] == 8
    assert (created["best_mfu"], created["best_source"]) == (None, "estimated")


def test_a_proxy_trial_is_never_shown_as_a_measurement_of_its_layout(client: httpx.Client, driver: StoreDriver) -> None:
    sweep = driver.sweep(sweep_request(job=tiny_job(8), trial_cluster=cpu_cluster(2)))
    trial = driver.estimated(sweep, 0)
    read = client.get(f"/trials/{trial.id}").json()
    assert read["measurement"] is None
    assert read["proxy"]["measurement"]["mfu"] == 0.9
    assert (read["proxy"]["label"], read["proxy"]["num_ranks"]) == (str(proxy_trial().layout), 2)
    found = read["estimate"]
    assert (found["num_trial_ranks"], found["num_ranks"]) == (2, 8)
    assert (found["mfu"], found["full_size"]["measured_share"]) == (0.1875, 0.75)
    detail = client.get(f"/sweeps/{sweep.id}").json()
    assert (detail["best_mfu"], detail["best_source"]) == (0.1875, "estimated")
    (ranked,) = client.get(f"/sweeps/{sweep.id}/ranking").json()["items"]
    assert (ranked["measurement"], ranked["estimate"]["step_time_s"]) == (None, 0.625)


def test_a_fault_trace_is_sent_as_lines_and_read_as_what_they_say(client: httpx.Client) -> None:
    created = client.post("/sweeps", json=CPU | {"fault_trace": "7;0_1;0.06\n30;0_1;0"}).json()
    trace = created["request"]["fault_trace"]
    assert [(fault["step"], fault["health"]["delay_s"]) for fault in trace["faults"]] == [(7, 0.06), (30, 0.0)]
    assert created["objective"]["under_faults"]
    again = client.post("/sweeps", json=CPU | {"fault_trace": trace | {"num_steps": 40}}).json()
    assert again["request"]["fault_trace"] == trace | {"num_steps": 40}
