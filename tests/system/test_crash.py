"""The service killed in the middle of a sweep of real trials."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotuner.core.codec import to_plain
from tests.builders import cpu_cluster, tiny_model
from tests.system.service import Service, until
from tests.trials.launching import left_over

BODY = {
    "model": to_plain(tiny_model()),
    "cluster": to_plain(cpu_cluster(2)),
    "workload": {"seq_len": 64, "global_batch_size": 8},
    "budget": {"num_trials": 3, "prune_below": 0.0, "min_gain": 0.0},
    "trial": {
        "warmup_steps": 1,
        "max_warmup_steps": 1,
        "measured_steps": 2,
        "max_measured_steps": 2,
        "profiled_steps": 0,
        "max_repeats": 0,
    },
}


def trials(service: Service, sweep_id: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = service.get(f"/sweeps/{sweep_id}/trials")["items"]
    return items


def states(service: Service, sweep_id: str) -> list[str]:
    return [trial["state"] for trial in trials(service, sweep_id)]


@pytest.mark.oracle  # half a minute
def test_a_service_killed_in_a_trial_finishes_the_sweep_after_a_restart_with_nothing_lost(tmp_path: Path) -> None:
    with Service(tmp_path) as service:
        sweep_id = service.post("/sweeps", BODY)["id"]
        until("a second trial", lambda: states(service, sweep_id) == ["complete", "running"])
        before = trials(service, sweep_id)
        until("processes of the trial", lambda: left_over(before[1]["id"]))
        service.kill()
        until("no process of the trial is left", lambda: not left_over(before[1]["id"]))
        with service:
            until("the sweep ends", lambda: service.get(f"/sweeps/{sweep_id}")["state"] == "complete")
            after = trials(service, sweep_id)
            events = service.get(f"/sweeps/{sweep_id}")
    assert after[0] == before[0]
    assert [trial["number"] for trial in after] == [0, 1, 2]
    assert [trial["attempts"] for trial in after] == [1, 2, 1]
    assert [trial["layout"] for trial in after[:2]] == [trial["layout"] for trial in before]
    assert {trial["state"] for trial in after} == {"complete"}
    assert events["stop_reason"] == "trial_budget"


@pytest.mark.oracle  # a quarter of a minute
def test_a_service_told_to_stop_ends_its_trial_and_gives_the_sweep_back_at_once(tmp_path: Path) -> None:
    with Service(tmp_path, lease_s=3600.0) as service:
        sweep_id = service.post("/sweeps", BODY)["id"]
        until("a first trial", lambda: states(service, sweep_id) == ["running"])
    assert left_over(sweep_id) == []
    with service:  # an hour's lease has not lapsed: only one that was given back can be taken again
        until("the sweep ends", lambda: service.get(f"/sweeps/{sweep_id}")["state"] == "complete")
        assert [trial["attempts"] for trial in trials(service, sweep_id)] == [1, 1, 1]
