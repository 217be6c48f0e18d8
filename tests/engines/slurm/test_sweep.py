"""Sweeps of the real service on a real Slurm, which loses its controller and a node in the middle."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotuner.core.codec import to_plain
from tests.builders import h100_cluster, tiny_model
from tests.engines.slurm.cluster import SlurmCluster
from tests.engines.slurm.conftest import table
from tests.system.service import Service, measuring, until
from tests.trials.launching import left_over

pytestmark = pytest.mark.engine

PACED = Path(__file__).with_name("paced.py")

TRAINER = f"""
[paced]
format = "arguments"
command = [
  "{{python}}", "-S", "{PACED}", "{{node_rank}}", "{{num_nodes}}", "{{master_address}}", "{{master_port}}", "{{steps}}",
]
options = ["data_parallel_replicate_degree", "micro_batch_size", "recompute"]
fixed = {{ precision = "bf16" }}
"""

LAYOUTS = {
    "data_parallel_shard_degree": [1],
    "pipeline_parallel_degree": [1],
    "tensor_parallel_degree": [1],
    "micro_batch_size": [1, 2, 4, 8],
    "recompute": ["none", "full"],
}
"""Eight layouts, each of which the trainer makes at least a quarter slower than the next: their order is no matter of
luck, however busy the machine is, so a sweep that was disturbed has to find it too."""


def body(**changes: Any) -> dict[str, Any]:
    """A sweep over all of them on two nodes."""
    return {
        "model": to_plain(tiny_model()),
        "cluster": CLUSTER,
        "trainer": "paced",
        "workload": {"seq_len": 64, "global_batch_size": 16},
        "space": LAYOUTS,
        "max_parallel_trials": 4,
        "budget": {"num_trials": 8, "prune_below": 0.0, "min_gain": 0.0},
        "trial": measuring(4),
        **changes,
    }


# pretended: the trainer computes nothing, and only of data sheets' devices it is known what MFU is a share of
CLUSTER = to_plain(h100_cluster(num_nodes=2, accelerators_per_node=1, engine="slurm"))


@pytest.fixture
def folder(tmp_path: Path, slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a service that knows the Slurm and the trainer."""
    slurm.calm()
    said = table(slurm, max_parallel_trials=4)
    (tmp_path / "engines.toml").write_text(f"[slurm]\n{said}")
    (tmp_path / "trainers.toml").write_text(TRAINER)
    monkeypatch.setenv("AUTOTUNER_ENGINES", str(tmp_path / "engines.toml"))
    monkeypatch.setenv("AUTOTUNER_TRAINERS", str(tmp_path / "trainers.toml"))
    return tmp_path


def undone(service: Service, sweep_id: str) -> dict[int, Any]:
    """What became of the trials that did not come to a measurement, by number."""
    return {
        trial["number"]: {name: trial[name] for name in ("state", "failure", "jobs")}
        for trial in service.trials(sweep_id)
        if trial["state"] != "complete"
    }


def num_complete(service: Service, sweep_id: str) -> int:
    return sum(trial["state"] == "complete" for trial in service.trials(sweep_id))


def has_begun(service: Service, sweep_id: str, slurm: SlurmCluster) -> bool:
    """Whether a trial runs that is none of the first four: those begin together, and may end at this moment."""
    later = [trial for trial in service.trials(sweep_id) if trial["number"] >= 4]
    phases = [job["phase"] for trial in later for job in trial["jobs"]]
    return "running" in phases and bool(slurm.processes_of("n2"))


def operated(slurm: SlurmCluster, what: str, ask: Callable[[], Any]) -> Any:
    """The first answer that is not false, while an operator looks after the nodes: those may be drained at any time."""

    def looked_after() -> Any:
        slurm.resume()
        return ask()

    return until(what, looked_after)


def ranking(service: Service, sweep_id: str, slurm: SlurmCluster) -> list[tuple[int, str]]:
    """Micro-batch size and recomputation of the trials when the sweep has ended, the best first."""

    def has_ended() -> bool:
        return service.get(f"/sweeps/{sweep_id}")["state"] not in ("queued", "running")

    operated(slurm, "the sweep ends", has_ended)
    ranked = service.get(f"/sweeps/{sweep_id}/ranking")["items"]
    return [(trial["layout"]["micro_batch_size"], trial["layout"]["recompute"]) for trial in ranked]


IN_ORDER = [(size, recompute) for size in (8, 4, 2, 1) for recompute in ("none", "full")]
"""As the trainer's pace has it."""


def test_a_sweep_whose_controller_and_a_node_are_killed_ends_with_the_ranking_of_an_undisturbed_one(
    folder: Path, slurm: SlurmCluster
) -> None:
    with Service(folder) as service:
        undisturbed = service.post("/sweeps", body())["id"]
        operated(slurm, "four trials run at once", lambda: len(slurm.jobs("RUNNING")) == 4)
        ranked = ranking(service, undisturbed, slurm)
        assert undone(service, undisturbed) == {}
        assert ranked == IN_ORDER
        disturbed = service.post("/sweeps", body())["id"]
        operated(slurm, "two trials are complete", lambda: num_complete(service, disturbed) >= 2)
        operated(slurm, "a later trial has just begun", lambda: has_begun(service, disturbed, slurm))
        slurm.kill_controller()
        slurm.kill_node("n2")
        time.sleep(3.0)  # nobody answers meanwhile
        slurm.start_controller()
        slurm.start_node("n2")
        ranked = ranking(service, disturbed, slurm)
        assert undone(service, disturbed) == {}
        assert ranked == IN_ORDER
        ran = service.trials(disturbed)
    assert len(ran) == 8
    assert max(trial["attempts"] for trial in ran) > 1, "the node was lost in the middle of a trial"
    assert [process for trial in ran for process in left_over(trial["id"])] == []
    assert [job for job in slurm.shared.iterdir() if disturbed in job.name] == []
