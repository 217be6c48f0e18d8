"""A retune that a real service runs by itself: the clock, real trials, a slowdown, and a service that was killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotuner.core.codec import to_plain
from tests.builders import cpu_cluster, cpu_layout, tiny_model
from tests.system.service import Service, until
from tests.trainers.registered import LOOP

PACED = f"""
[paced]
format = "arguments"
working_directory = "{LOOP.parent}"
command = ["{{python}}", "-S", "loop.py", "--ranks={{world_size}}", "--steps={{steps}}", "--spec={{spec}}"]
environment = ["TORCH_PACE_S"]
fixed = {{ precision = "fp32" }}
"""
"""Steps that sleep most of the time: a busy machine hardly changes what they take."""

BODY = {
    "name": "every-minute",
    "cron": "* * * * *",
    "sweep": {
        "model": to_plain(tiny_model()),
        "cluster": to_plain(cpu_cluster(2)),
        "workload": {"seq_len": 64, "global_batch_size": 8},
        "trial": {"measuring_budget_s": 0.5, "max_measured_steps": 8, "max_repeats": 0},
        "trainer": "paced",
    },
    "incumbent": to_plain(cpu_layout(data_parallel_replicate_degree=2, micro_batch_size=4)),
    "searches": False,
    "test": {"tolerance": 0.2, "loss": 0.4},
}


def ended(service: Service) -> list[dict[str, Any]]:
    """The runs that ended, the oldest first."""
    return [run for run in reversed(service.get("/retunes/every-minute/runs")["items"]) if run["outcome"]]


@pytest.mark.oracle  # it waits for the clock
def test_a_slowdown_is_found_by_the_clock_and_the_variable_that_brought_it_is_named(tmp_path: Path) -> None:
    trainers = tmp_path / "trainers.toml"
    trainers.write_text(PACED)
    service = Service(tmp_path)
    service.variables = {
        "AUTOTUNER_TRAINERS": str(trainers),
        "AUTOTUNER_ALSO_RECORDED": "TORCH_PACE_S",
        "TORCH_PACE_S": "0.1",
    }
    with service:
        service.post("/retunes", BODY)
        until("a run that the clock began", lambda: ended(service), 150)
        service.kill()
    service.variables["TORCH_PACE_S"] = "0.2"
    with service:
        until("a run after the slowdown", lambda: ended(service)[1:], 150)
        service.post("/retunes/every-minute/pause", None)
        first, later = ended(service)[:2]
    assert [run["trigger"] for run in (first, later)] == ["cron", "cron"]
    assert (first["outcome"]["verdict"], later["outcome"]["verdict"]) == ("unchanged", "regression")
    assert {"name": "TORCH_PACE_S", "then": "0.1", "now": "0.2"} in later["outcome"]["changes"]
    assert "TORCH_PACE_S was 0.1 and is 0.2" in later["outcome"]["detail"]
