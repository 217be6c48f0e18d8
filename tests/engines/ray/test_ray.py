"""What Ray itself has to do with a job: make it wait, guard it, and lose it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import psutil
import pytest

from autotuner.core.choices import AttentionKernel
from autotuner.core.trial import EngineJobPhase, Stopped
from autotuner.launch.engines.engine import Engine, EngineUnavailable, JobOrder
from autotuner.launch.trainers.registration import read_trainers
from tests.builders import cpu_cluster, cpu_layout
from tests.contracts.engine_contract import EngineSubject
from tests.engines.ray.cluster import RayCluster, running_cluster
from tests.engines.ray.held import held_ray
from tests.patience import PATIENCE_S
from tests.trials.launching import ENDLESS, Watcher, left_over, measured, spec
from tests.unit.launch.engines.ray.scripted import order

pytestmark = pytest.mark.engine

TOKEN = "5f3c02aa" * 8

TRAINERS = read_trainers(Path(__file__).parents[3] / "examples/trainers.toml")


@pytest.fixture
def engine(ray_cluster: RayCluster, tmp_path: Path) -> Iterator[Engine]:
    made = held_ray(ray_cluster).registration(tmp_path).engine()
    yield made
    made.close()


def sleeping(name: str, *, num_nodes: int = 2) -> JobOrder:
    """A job whose nodes do nothing, for minutes."""
    cluster = cpu_cluster(num_nodes=num_nodes, accelerators_per_node=1)
    return order(name, cluster=cluster, command=("sleep", "300"))


def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def until_running(engine: Engine, handle: str) -> None:
    until(lambda: all(b"node_started" in engine.read(handle, node, 0) for node in (0, 1)))


def test_a_job_for_nodes_that_ray_does_not_have_waits_and_says_what_for(engine: Engine) -> None:
    handle = engine.submit(sleeping("ray-too-large", num_nodes=3))
    until(lambda: "3 nodes with 1 CPU" in engine.look(handle).detail)
    assert engine.look(handle).phase is EngineJobPhase.QUEUED
    assert engine.cancel(handle)
    assert engine.look(handle).phase is EngineJobPhase.ENDED
    engine.forget(handle)


def test_a_driver_that_is_killed_takes_its_nodes_along(engine: Engine) -> None:
    handle = engine.submit(sleeping("ray-driverless"))
    until_running(engine, handle)
    driver_of(handle).kill()
    until(lambda: engine.look(handle).phase.is_over)
    assert engine.look(handle).phase is EngineJobPhase.LOST
    assert list(left_over("ray-driverless")) == []
    engine.forget(handle)


def test_a_job_that_somebody_stops_on_ray_is_interrupted(ray_cluster: RayCluster, tmp_path: Path) -> None:
    held = held_ray(ray_cluster)
    watcher = Watcher(at_first_step=lambda: stop(ray_cluster, watcher.jobs[-1].handle))
    outcome = EngineSubject(held, tmp_path).run(spec("ray-stopped", ENDLESS, cluster=held.cluster), watcher)
    assert isinstance(outcome, Stopped), outcome
    assert outcome.reason == "infrastructure"
    assert "the job was stopped on Ray" in outcome.detail
    assert watcher.jobs[-1].phase is EngineJobPhase.LOST


def stop(cluster: RayCluster, handle: str) -> None:
    """Stop the job as ``ray job stop`` does."""
    httpx.post(f"{cluster.address}/api/jobs/{handle.partition(':')[0]}/stop", timeout=PATIENCE_S).raise_for_status()


def test_output_of_a_cancelled_job_is_kept_until_the_job_is_forgotten(engine: Engine) -> None:
    handle = engine.submit(sleeping("ray-cancelled"))
    until_running(engine, handle)
    assert engine.cancel(handle)
    assert list(left_over("ray-cancelled")) == []
    assert all(b'"type":"node"' in engine.read(handle, node, 0) for node in (0, 1))
    engine.forget(handle)
    assert engine.find("ray-cancelled") is None


def test_a_name_that_was_forgotten_may_be_used_again_and_nothing_of_the_old_job_is_read(engine: Engine) -> None:
    first = engine.submit(sleeping("ray-again"))
    until_running(engine, first)
    engine.cancel(first)
    engine.forget(first)
    second = engine.submit(sleeping("ray-again"))
    assert second != first
    assert engine.read(second, 0, 0) == b""
    assert engine.look(first).phase is EngineJobPhase.LOST
    assert engine.cancel(second)
    engine.forget(second)


def test_a_ray_that_wants_a_token_answers_who_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_cluster({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}) as cluster:
        held = held_ray(cluster, 'token_variable = "OUR_RAY_TOKEN"')
        engine = held.registration(tmp_path).engine()
        monkeypatch.setenv("OUR_RAY_TOKEN", "0" * 64)
        with pytest.raises(EngineUnavailable, match="does not accept the token in OUR_RAY_TOKEN"):
            engine.check()
        monkeypatch.setenv("OUR_RAY_TOKEN", TOKEN)
        assert engine.check().startswith("Ray ")
        handle = patiently(engine, sleeping("ray-token"))
        until_running(engine, handle)
        assert engine.cancel(handle)
        engine.forget(handle)
        engine.close()


def patiently(engine: Engine, wanted: JobOrder) -> str:
    """Submit a job to a Ray that has just been started: its first answer may take longer than anybody waits."""
    for _ in range(5):
        try:
            return engine.submit(wanted)
        except EngineUnavailable:
            continue
    return engine.submit(wanted)


def test_the_loop_to_copy_trains_on_two_nodes(ray_cluster: RayCluster, tmp_path: Path) -> None:
    held = replace(held_ray(ray_cluster), trainers=TRAINERS)
    layout = cpu_layout(data_parallel_replicate_degree=2, attention_kernel=AttentionKernel.FLASH)
    trial = spec("ray-trainer", layout=layout, cluster=held.cluster, trainer=TRAINERS["train"].trainer)
    outcome = measured(EngineSubject(held, tmp_path).run(trial, Watcher()))
    assert len(outcome.peak_bytes) == 2, "both nodes' ranks reported"


def driver_of(handle: str) -> psutil.Process:
    """The driver of that job, wherever on this machine it runs."""
    mark = handle.partition(":")[2]
    for process in psutil.process_iter():
        try:
            if "autotuner.trials.process.ray_driver" in process.cmdline() and mark in str(process.environ()):
                return process
        except psutil.Error:
            continue
    raise AssertionError(handle)
