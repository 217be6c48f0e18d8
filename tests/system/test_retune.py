"""A retune that a real service runs by itself: the clock, real trials, a slowdown, and a service that was killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotuner.domain.wire import to_dict
from tests.builders import cpu_cluster, cpu_layout, tiny_model
from tests.system.service import Service, until

SLOWDOWN = {"MKL_CBWR": "COMPATIBLE"}
"""Has MKL use no instructions that the oldest processors lack: products of this model take several times as long."""

BODY = {
    "name": "every-minute",
    "cron": "* * * * *",
    "sweep": {
        "model": to_dict(tiny_model(hidden_size=512, head_dim=128, ffn_size=2048)),
        "cluster": to_dict(cpu_cluster(2)),
        "workload": {"seq_len": 64, "global_batch_size": 8},
        "trial": {"profiled_steps": 0, "measuring_budget_s": 0.5, "max_measured_steps": 8, "max_repeats": 0},
    },
    "incumbent": to_dict(cpu_layout(data_parallel_replicate_degree=2, micro_batch_size=4)),
    "searches": False,
    "test": {"tolerance": 0.2, "loss": 0.4, "max_runs": 4},
}


def outcomes(service: Service) -> list[dict[str, Any]]:
    """Of the runs that ended, the oldest first."""
    runs = service.get("/retunes/every-minute/runs")["items"]
    return [run["outcome"] for run in reversed(runs) if run["outcome"]]


@pytest.mark.oracle
@pytest.mark.timeout(400)  # two coming minutes, and a handful of real trials in each
def test_a_slowdown_is_found_by_the_clock_and_the_variable_that_brought_it_is_named(tmp_path: Path) -> None:
    service = Service(tmp_path)
    with service:
        service.post("/retunes", BODY)
        first = until("a run that the clock began", lambda: outcomes(service), 180)[0]
        service.post("/retunes/every-minute/pause", None)
        until("no run goes on", lambda: not service.get("/sweeps?state=running")["items"], 60)
        num_before = len(outcomes(service))
        service.kill()
    service.variables = SLOWDOWN
    with service:
        service.post("/retunes/every-minute/resume", None)
        later = until("a run after the slowdown", lambda: outcomes(service)[num_before:], 180)[0]
        service.post("/retunes/every-minute/pause", None)
    assert (first["verdict"], later["verdict"]) == ("unchanged", "regression")
    assert {"name": "MKL_CBWR", "then": None, "now": "COMPATIBLE"} in later["changes"]
    assert "MKL_CBWR is COMPATIBLE and was not set" in later["detail"]
