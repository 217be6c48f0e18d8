"""Sweeps over REST whose trials other software runs: the training loop that users copy, and Hugging Face's Trainer."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from autotuner.core.codec import to_plain
from tests.api.bodies import CPU
from tests.builders import cpu_cluster, tiny_model
from tests.system.service import Service, until
from tests.trainers.registered import LOOP
from tests.trials.launching import left_over

TRAINERS = Path(__file__).parents[2] / "examples/trainers.toml"

ROUNDING = 5e-6
"""See tests/examples/test_examples.py."""

SHORT = {"warmup_steps": 1, "max_warmup_steps": 1, "measured_steps": 3, "max_measured_steps": 3, "max_repeats": 0}
ENDLESS = {"warmup_steps": 0, "max_warmup_steps": 0, "measured_steps": 100_000, "max_measured_steps": 100_000}
REPLICAS = {"data_parallel_shard_degree": [1], "micro_batch_size": [4], "recompute": ["none"]}
"""Two of them on two ranks: the first that such a sweep tries, where tensor ranks may be tried too."""

ON_ONE_RANK = """
[train]
format = "arguments"
command = ["{{python}}", "train.py", "--steps={{steps}}", "{{arguments}}"]
working_directory = "{examples}"
options = ["micro_batch_size", "recompute"]
values = {{ recompute = ["none", "full"] }}
fixed = {{ precision = "fp32" }}

[train.variables]
PYTHONPATH = ".."
RANK = "0"
LOCAL_RANK = "0"
WORLD_SIZE = "1"
MASTER_ADDR = "127.0.0.1"
MASTER_PORT = "0"
"""
"""Without torchrun, which imports torch once more: a third of the time."""

SLEEPING = f"""
[sleeping]
format = "arguments"
working_directory = "{LOOP.parent}"
command = [
    "{{python}}", "-S", "loop.py", "--ranks={{world_size}}", "--steps={{steps}}", "--spec={{spec}}", "{{arguments}}",
]
options = ["micro_batch_size", "recompute"]
values = {{ recompute = ["none", "full"] }}
fixed = {{ precision = "fp32" }}
"""
"""Its steps sleep 26 times as long where layers are computed again, on any machine."""

BOTH = pytest.mark.parametrize("trainer", ["train", "hugging-face"])


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOTUNER_TRAINERS", str(TRAINERS))
        with Service(tmp_path_factory.mktemp("service"), lease_s=15.0) as service:
            yield service


def started(service: Service, trainer: str = "train", **changes: Any) -> str:
    """A sweep on two cores, whose steps take milliseconds."""
    body = {
        "trainer": trainer,
        **CPU,
        "space": REPLICAS,
        "budget": {"num_trials": 2, "prune_below": 0.0, "min_gain": 0.0},
        "trial": SHORT,
        **changes,
    }
    sweep_id: str = service.post("/sweeps", body)["id"]
    return sweep_id


def ended(service: Service, sweep_id: str) -> list[dict[str, Any]]:
    """Its trials, when it has ended and no process of any is left."""
    until("the sweep ends", lambda: service.get(f"/sweeps/{sweep_id}")["state"] not in ("queued", "running"))
    ran = trials(service, sweep_id)
    assert [process for trial in ran for process in left_over(trial["id"])] == []
    return ran


def trials(service: Service, sweep_id: str) -> list[dict[str, Any]]:
    """In full, in their order."""
    items = service.trials(sweep_id)
    return [service.get(f"/trials/{item['id']}") for item in items]


def in_training(service: Service, sweep_id: str) -> str:
    """Id of the trial that runs, once a step of it was told."""
    found = until("a step", lambda: [trial for trial in trials(service, sweep_id) if trial["steps"]])
    trial_id: str = found[-1]["id"]
    return trial_id


def ranks(trial_id: str) -> list[psutil.Process]:
    """The processes that train: neither what keeps them nor torchrun."""
    return [process for process in left_over(trial_id) if process.environ().get("LOCAL_RANK")]


@pytest.mark.oracle
def test_a_users_own_loop_is_swept_and_ranked_and_trains_the_same_in_every_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered = tmp_path / "trainers.toml"
    registered.write_text(ON_ONE_RANK.format(examples=TRAINERS.parent))
    monkeypatch.setenv("AUTOTUNER_TRAINERS", str(registered))
    with Service(tmp_path) as service:
        assert_swept(service, 1, cluster=to_plain(cpu_cluster(1)), space={"micro_batch_size": [8]})


@pytest.mark.oracle
def test_a_registered_trainer_runs_trials_on_two_ranks_under_torchrun(service: Service) -> None:
    space = {"tensor_parallel_degree": [1], "micro_batch_size": [4], "recompute": ["none"]}
    assert_swept(service, 2, space=space)


def assert_swept(service: Service, num_ranks: int, **changes: Any) -> None:
    """Two layouts are measured, train alike and are ranked."""
    sweep_id = started(service, **changes)
    ran = ended(service, sweep_id)
    assert [trial["state"] for trial in ran] == ["complete", "complete"], [trial["failure"] for trial in ran]
    first, second = (trial["measurement"] for trial in ran)
    assert first["losses"] == pytest.approx(second["losses"], abs=ROUNDING, rel=0)
    for measured in (first, second):
        assert (len(measured["losses"]), measured["environment"]["trainer"]) == (4, "train")
        assert 0 < measured["mfu"] < 1
        assert len(measured["peak_bytes"]) == num_ranks
    ranking = service.get(f"/sweeps/{sweep_id}/ranking")["items"]
    assert [trial["measurement"]["mfu"] for trial in ranking] == sorted((first["mfu"], second["mfu"]), reverse=True)


@pytest.mark.oracle
@BOTH
def test_a_trainer_that_runs_out_of_its_memory_is_recorded_so(trainer: str, service: Service) -> None:
    model = tiny_model(hidden_size=512, ffn_size=1408, vocab_size=8192, head_dim=128)
    settings = {
        **SHORT,
        "memory_budget_bytes": 450_000_000,
    }  # the model's states take 340 MB, and torch itself the rest
    sweep_id = started(service, trainer, model=to_plain(model), trial=settings)
    failures = [trial["failure"] for trial in ended(service, sweep_id)]
    assert {failure["kind"] for failure in failures} == {"oom"}, failures


@pytest.mark.oracle
@BOTH
def test_a_trainer_whose_rank_is_killed_is_a_crash_of_that_rank(trainer: str, service: Service) -> None:
    sweep_id = started(service, trainer, trial=ENDLESS, budget={"num_trials": 1})
    killed = ranks(in_training(service, sweep_id))[-1]
    rank = int(killed.environ()["RANK"])
    killed.send_signal(signal.SIGKILL)
    (trial,) = ended(service, sweep_id)
    assert (trial["failure"]["kind"], trial["failure"]["rank"]) == ("crash", rank), trial["failure"]
    assert "SIGKILL" in trial["failure"]["message"]


@pytest.mark.oracle
@BOTH
def test_a_trainer_that_hangs_is_ended_at_its_limit(trainer: str, service: Service) -> None:
    sweep_id = started(service, trainer, trial={**ENDLESS, "timeout_s": 90.0}, budget={"num_trials": 1})
    ranks(in_training(service, sweep_id))[0].send_signal(signal.SIGSTOP)
    (trial,) = ended(service, sweep_id)
    assert trial["failure"]["kind"] == "timeout", trial["failure"]
    assert "the last step was" in trial["failure"]["message"]


@pytest.mark.oracle
def test_a_trainers_trial_that_loses_is_pruned_in_its_first_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered = tmp_path / "trainers.toml"
    registered.write_text(SLEEPING)
    monkeypatch.setenv("AUTOTUNER_TRAINERS", str(registered))
    steps = {**SHORT, "measured_steps": 200, "max_measured_steps": 200, "target_interval": 0.0}  # ten seconds if slow
    budget = {"num_trials": 2, "prune_below": 0.8, "min_gain": 0.0}
    wanted = {"cluster": to_plain(cpu_cluster(1)), "space": {"micro_batch_size": [8]}, "trial": steps, "budget": budget}
    with Service(tmp_path) as service:
        fast, slow = ended(service, started(service, "sleeping", **wanted))
    assert (fast["state"], slow["state"]) == ("complete", "pruned")
    assert (fast["layout"]["recompute"], slow["layout"]["recompute"]) == ("none", "full")
    assert 2 <= len(slow["steps"]) < 200


@pytest.mark.oracle
@BOTH
def test_a_cancelled_sweep_ends_its_trainer_at_once(trainer: str, service: Service) -> None:
    sweep_id = started(service, trainer, trial=ENDLESS)
    in_training(service, sweep_id)
    service.post(f"/runs/{sweep_id}/cancel", {})
    (trial,) = ended(service, sweep_id)
    assert trial["state"] == "cancelled"
    assert service.get(f"/sweeps/{sweep_id}")["stop_reason"] == "cancelled"
