"""Sweeps over REST whose trials are jobs on two nodes, while the service comes and goes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotuner.core.codec import to_plain
from tests.builders import cpu_cluster, tiny_model
from tests.system.service import Service, measuring, until
from tests.trials.launching import left_over

# ---------------------------------------------------------------- sweep

pytestmark = pytest.mark.engine

ENDLESS = measuring(100_000, timeout_s=300.0)
ON_TWO_NODES = {
    "model": to_plain(tiny_model()),
    "cluster": to_plain(replace(cpu_cluster(num_nodes=2, accelerators_per_node=1), engine="pair")),
    "workload": {"seq_len": 64, "global_batch_size": 8},
    "budget": {"num_trials": 3, "prune_below": 0.0, "min_gain": 0.0},
    "trial": measuring(40),
}


def has_steps(service: Service, sweep_id: str, number: int) -> bool:
    found = service.trials(sweep_id)
    return len(found) > number and bool(service.get(f"/trials/{found[number]['id']}")["steps"])


def begun(service: Service, **changes: Any) -> str:
    """A sweep whose first trial has told a step."""
    sweep_id: str = service.post("/sweeps", ON_TWO_NODES | changes)["id"]
    until("steps of the first trial", lambda: has_steps(service, sweep_id, 0))
    return sweep_id


def ended(service: Service, sweep_id: str) -> list[dict[str, Any]]:
    until("the sweep ends", lambda: service.get(f"/sweeps/{sweep_id}")["state"] == "complete")
    return [service.get(f"/trials/{trial['id']}") for trial in service.trials(sweep_id)]


def test_a_service_that_is_killed_or_stopped_finds_its_jobs_again_and_starts_none_twice(service: Service) -> None:
    with service:
        sweep_id = begun(service)
        service.kill()
        with service:
            until("steps of the second trial", lambda: has_steps(service, sweep_id, 1))
        with service:
            after = ended(service, sweep_id)
            assert [trial["state"] for trial in after] == ["complete"] * 3
            assert [len(trial["steps"]) for trial in after] == [41] * 3
            jobs = [trial["jobs"] for trial in after]
            assert [len(of_trial) for of_trial in jobs] == [2, 1, 1], "the first trial runs twice, for its noise floor"
            assert {job["phase"] for of_trial in jobs for job in of_trial} == {"ended"}
            assert not any(left_over(trial["id"]) for trial in after)


def test_a_pause_ends_the_job_of_the_running_trial_whose_next_run_is_another_job(service: Service) -> None:
    with service:
        sweep_id = begun(service, trial=ENDLESS)
        service.post(f"/runs/{sweep_id}/pause", {})
        until("the sweep pauses", lambda: service.get(f"/sweeps/{sweep_id}")["state"] == "paused")
        (trial,) = service.trials(sweep_id)
        assert (trial["state"], trial["attempts"]) == ("queued", 0)
        assert not left_over(trial["id"])
        service.post(f"/runs/{sweep_id}/resume", {})
        until("steps of the next run", lambda: has_steps(service, sweep_id, 0))
        first, second = service.get(f"/trials/{trial['id']}")["jobs"]
        assert (first["phase"], second["phase"]) == ("ended", "running")
        assert first["name"] != second["name"]


@pytest.mark.parametrize(("act", "state"), [("pause", "paused"), ("cancel", "cancelled")])
def test_a_job_that_nobody_follows_is_ended_by_the_next_service_when_its_sweep_is_paused_or_cancelled(
    service: Service, act: str, state: str
) -> None:
    with service:
        sweep_id = begun(service, trial=ENDLESS)
        (trial,) = service.trials(sweep_id)
        service.kill()
        assert left_over(trial["id"])
        with service:
            service.post(f"/runs/{sweep_id}/{act}", {})
            until(f"the sweep is {state}", lambda: service.get(f"/sweeps/{sweep_id}")["state"] == state)
            assert not left_over(trial["id"])
            (job,) = service.get(f"/trials/{trial['id']}")["jobs"]
            assert job["phase"] == "ended"


# ---------------------------------------------------------------- proxy trials

FOUR_FOR_TWO = {
    "model": to_plain(tiny_model()),
    "cluster": to_plain(replace(cpu_cluster(num_nodes=4, accelerators_per_node=1), name="four")),
    "trial_cluster": to_plain(replace(cpu_cluster(num_nodes=2, accelerators_per_node=1), name="two", engine="pair")),
    "workload": {"seq_len": 64, "global_batch_size": 8},
    "budget": {"num_trials": 3, "prune_below": 0.0, "min_gain": 0.0},
    "trial": measuring(3),
}


def test_trials_on_two_nodes_stand_for_layouts_of_four_and_are_ranked_by_estimates(service: Service) -> None:
    with service:
        sweep_id = service.post("/sweeps", FOUR_FOR_TWO)["id"]
        until("the sweep ends", lambda: service.get(f"/sweeps/{sweep_id}")["state"] == "complete")
        sweep, ranking = service.get(f"/sweeps/{sweep_id}"), service.get(f"/sweeps/{sweep_id}/ranking")["items"]
    assert (sweep["trial_cluster"], sweep["best_source"]) == ("two", "estimated")
    assert sweep["best_mfu"] == ranking[0]["estimate"]["mfu"]
    assert len(ranking) == 3
    for trial in ranking:
        ran = trial["proxy"]["num_ranks"]
        assert trial["measurement"] is None
        assert trial["proxy"]["measurement"]["step_time_s"] > 0
        assert (trial["estimate"]["num_trial_ranks"], trial["estimate"]["num_ranks"]) == (ran, 4)
        assert {job["engine"] for job in trial["jobs"]} == {"pair"}
