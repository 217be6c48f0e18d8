"""The engine on a cluster that is no real one, with commands that take no time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kubernetes.client import models

from autotuner.core.trial import EngineJobPhase
from autotuner.core.trial_spec import NodeTask
from autotuner.launch.engines.engine import EngineRefused, EngineUnavailable, JobOrder, JobStatus
from autotuner.launch.engines.kubernetes import KubernetesEngine
from autotuner.launch.engines.launcher import EngineLauncher
from autotuner.launch.engines.registration import EngineRegistration, read_engines
from tests.builders import cpu_cluster
from tests.kubernetes.cluster import FakeCluster

AGES_S = 30.0


class Held:
    """Makes engines on a cluster, and waits for what they say."""

    def __init__(self, cluster: FakeCluster, folder: Path) -> None:
        self.cluster = cluster
        self._folder = folder
        self._made: list[KubernetesEngine] = []

    def engine(self, more: str = "") -> KubernetesEngine:
        """A new one, with more lines in its table."""
        engine = self.registration(more).engine()
        assert isinstance(engine, KubernetesEngine)
        self._made.append(engine)
        return engine

    def registration(self, more: str = "") -> EngineRegistration:
        """Read from a file, as an operator's is."""
        path = self._folder / "engines.toml"
        path.write_text(f"[held]\n{self.cluster.table(more)}")
        return read_engines(path)["held"]

    def close(self) -> None:
        """Close all that were made."""
        for engine in self._made:
            engine.close()

    def until(self, engine: KubernetesEngine, handle: str, *phases: EngineJobPhase) -> JobStatus:
        """The first status of such a phase; an engine that does not answer is asked again."""
        deadline = time.monotonic() + AGES_S
        while time.monotonic() < deadline:
            status = looked(engine, handle)
            if status is not None and status.phase in phases:
                return status
            time.sleep(0.02)
        raise AssertionError(f"{handle} is {looked(engine, handle)} still")

    def printed(self, engine: KubernetesEngine, handle: str, text: str, node_rank: int = 0) -> bool:
        """Whether a node has printed something by now, waiting for it for a while."""
        deadline = time.monotonic() + AGES_S
        while time.monotonic() < deadline:
            if text.encode() in engine.read(handle, node_rank, 0):
                return True
            time.sleep(0.02)
        return False


def looked(engine: KubernetesEngine, handle: str) -> JobStatus | None:
    """The status; None while the engine does not answer."""
    try:
        return engine.look(handle)
    except EngineUnavailable:
        return None


def order(program: str, *, name: str = "t-1-0-0", num_nodes: int = 1) -> JobOrder:
    """A job whose nodes run a Python program."""
    task = NodeTask(
        job_name=name,
        num_nodes=num_nodes,
        ranks_per_node=1,
        time_limit_s=60.0,
        command=("{python}", "-u", "-c", program),
    )
    cluster = cpu_cluster(num_nodes=num_nodes, accelerators_per_node=1)
    return JobOrder(name=name, cluster=cluster, task=task, time_limit_s=120.0)


SLEEPS = "print('begun')\nimport time\ntime.sleep(60)"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    """Two machines; no thread and no process is left of them."""
    before = threading.active_count()
    with FakeCluster(tmp_path) as cluster:
        yield cluster
    cluster.until(lambda: threading.active_count() <= before)


@pytest.fixture
def held(cluster: FakeCluster, tmp_path: Path) -> Iterator[Held]:
    """Makes engines on the cluster."""
    held = Held(cluster, tmp_path)
    yield held
    held.close()


def running(held: Held) -> tuple[KubernetesEngine, str]:
    """An engine, and its job that runs."""
    engine = held.engine()
    handle = engine.submit(order(SLEEPS))
    held.until(engine, handle, EngineJobPhase.RUNNING)
    return engine, handle


def test_a_job_runs_from_its_order_to_its_last_word(held: Held) -> None:
    engine = held.engine()
    handle = engine.submit(order("import os; print('variable', '$HOME $(HOME) $$')"))
    assert held.printed(engine, handle, "variable $HOME $(HOME) $$")
    assert held.until(engine, handle, EngineJobPhase.ENDED).detail == ""
    assert held.printed(engine, handle, '"exit_code":0')
    engine.forget(handle)
    held.cluster.until(lambda: not held.cluster.objects.all("pods"))
    assert engine.find("t-1-0-0") is None


def test_an_order_given_twice_is_one_job(held: Held) -> None:
    engine, service = held.engine(), held.engine()
    assert engine.submit(order(SLEEPS)) == service.submit(order(SLEEPS)) == service.find("t-1-0-0")
    assert len(held.cluster.objects.all("jobs")) == 1


def test_a_job_of_that_name_that_somebody_else_made_is_left_alone(held: Held) -> None:
    engine, foreign = held.engine(), {"metadata": {"name": "t-1-0-0"}, "spec": {"completions": 1, "suspend": True}}
    held.cluster.objects.create("jobs", "default", foreign)
    assert engine.find("t-1-0-0") is None
    with pytest.raises(EngineRefused, match="does not belong to the engine held"):
        engine.submit(order(SLEEPS))


@pytest.mark.parametrize(
    ("status", "reason", "message", "error"),
    [
        (500, "InternalError", "etcdserver: leader changed", EngineUnavailable),
        (429, "TooManyRequests", "etcdserver: leader changed", EngineUnavailable),
        (503, "", "etcdserver: leader changed", EngineUnavailable),
        (403, "Forbidden", "exceeded quota: jobs, used: 5", EngineUnavailable),
        (403, "Forbidden", "serviceaccount trials is not allowed", EngineRefused),
        (422, "Invalid", "serviceaccount trials is not allowed", EngineRefused),
        (400, "BadRequest", "serviceaccount trials is not allowed", EngineRefused),
        (409, "Conflict", "the object has been modified", None),
    ],
)
def test_trouble_and_a_full_quota_are_waited_for_a_conflict_is_tried_again_and_any_other_answer_refuses_the_job(
    held: Held, status: int, reason: str, message: str, error: type[Exception] | None
) -> None:
    engine = held.engine()
    held.cluster.faults.refusals.append(("POST .*/jobs", status, reason, message))
    if error is not None:
        with pytest.raises(error, match=message):
            engine.submit(order(SLEEPS))
    assert engine.submit(order(SLEEPS)) == "Job/t-1-0-0"


def test_a_job_whose_maker_was_ended_before_it_named_the_pods_is_made_whole_when_it_is_found(held: Held) -> None:
    held.cluster.faults.refusals.append(("POST .*/services", 500, "InternalError", "ended here"))
    engine = held.engine()
    with pytest.raises(EngineUnavailable):
        engine.submit(order(SLEEPS, num_nodes=2))
    handle = engine.find("t-1-0-0")
    assert handle is not None
    assert held.until(engine, handle, EngineJobPhase.RUNNING)


def test_a_cluster_that_is_down_answers_nothing_and_jobs_are_as_they_were_when_it_is_back(held: Held) -> None:
    engine, handle = running(held)
    held.cluster.faults.is_down = True
    held.cluster.server.cut_connections()
    held.cluster.until(lambda: looked(engine, handle) is None)
    with pytest.raises(EngineUnavailable):
        engine.check()
    held.cluster.faults.is_down = False
    assert held.until(engine, handle, EngineJobPhase.RUNNING)


COUNTS = "import time\nfor number in range(100):\n    print('number', number)\n    time.sleep(0.01)"


def numbers(printed: bytes) -> list[int]:
    words = [line.split(b'"text":"number ')[1] for line in printed.splitlines() if b'"text":"number ' in line]
    return [int(word.split(b'"')[0]) for word in words]


def test_logs_whose_connections_break_again_and_again_arrive_once_and_whole(held: Held) -> None:
    engine = held.engine()
    handle = engine.submit(order(COUNTS))
    held.until(engine, handle, EngineJobPhase.RUNNING)
    breaks = threading.Event()

    def cut() -> None:
        while not breaks.wait(0.2):
            held.cluster.faults.cut_logs_after = 5003
            held.cluster.server.cut_connections()

    thread = threading.Thread(target=cut)
    thread.start()
    engine.read(handle, 0, 0)
    held.cluster.until(lambda: "Succeeded" in [pod["status"]["phase"] for pod in held.cluster.objects.all("pods")])
    breaks.set()
    thread.join()
    held.cluster.faults.cut_logs_after = None
    assert held.printed(engine, handle, '"exit_code":0')
    assert numbers(engine.read(handle, 0, 0)) == list(range(100))


def test_a_job_that_is_cancelled_is_gone_with_its_service(held: Held) -> None:
    engine = held.engine()
    handle = engine.submit(order(SLEEPS, num_nodes=2))
    held.until(engine, handle, EngineJobPhase.RUNNING)
    assert held.cluster.objects.all("services")
    assert engine.cancel(handle)
    assert not held.cluster.objects.all("pods")
    held.cluster.until(lambda: not held.cluster.objects.all("services"))
    assert engine.look(handle).phase is EngineJobPhase.ENDED


def test_a_job_that_the_cluster_does_not_know_is_lost_and_cancelled_at_once(held: Held) -> None:
    assert held.engine().look("Job/t-9").phase is EngineJobPhase.LOST
    assert held.engine().cancel("Job/t-9")


def test_a_container_that_the_kernel_killed_for_memory_says_so_in_its_last_line(held: Held) -> None:
    engine, handle = running(held)
    assert held.printed(engine, handle, "begun")
    held.cluster.kill_for_memory(held.cluster.pod("t-1-0-0", 0))
    assert "OOMKilled" in held.until(engine, handle, EngineJobPhase.ENDED).detail
    assert held.printed(engine, handle, '"oom_killed":true')


def test_an_image_without_our_packages_is_reported_in_python_s_own_words(held: Held) -> None:
    held.cluster.has_packages = False
    engine = held.engine()
    handle = engine.submit(order(SLEEPS))
    assert "No module named 'autotuner'" in held.until(engine, handle, EngineJobPhase.ENDED).detail


def test_a_job_of_kueue_waits_until_its_queue_lets_it_and_is_lost_when_that_takes_its_place_away(held: Held) -> None:
    held.cluster.controllers.admits = False
    engine = held.engine("kueue = true")
    one = order(SLEEPS)
    handle = engine.submit(replace(one, cluster=replace(one.cluster, queue="research")))
    assert held.until(engine, handle, EngineJobPhase.QUEUED).detail
    held.cluster.until(lambda: engine.look(handle).detail == "the job is suspended: it waits in its queue")
    held.cluster.controllers.admits = True
    held.until(engine, handle, EngineJobPhase.RUNNING)
    held.cluster.suspend("t-1-0-0")
    assert held.until(engine, handle, EngineJobPhase.LOST).detail


def test_kueue_needs_a_queue_and_takes_the_first_that_the_operator_lists(held: Held) -> None:
    assert held.engine().refuses(cpu_cluster()) is None
    assert "names no queue" in str(held.engine("kueue = true").refuses(cpu_cluster()))
    launcher = EngineLauncher(held.registration('kueue = true\nqueues = ["research"]'))
    assert launcher.refuses(cpu_cluster()) is None
    launcher.close()


def test_the_check_names_version_and_namespace_and_the_rights_that_are_missing(held: Held) -> None:
    engine = held.engine()
    assert engine.check() == "Kubernetes v1.34.0-fake, namespace default, Jobs"
    held.cluster.faults.forbidden |= {"create jobs", "get pods/log"}
    with pytest.raises(
        EngineUnavailable,
        match="no permission to create jobs, get pods/log in namespace default; ask",
    ):
        engine.check()


def test_the_check_names_a_namespace_that_does_not_exist_if_it_may_list_them(held: Held) -> None:
    held.cluster.server.namespaces = ["training", "kube-system"]
    nearest = r"there is no namespace default; the nearest is \w[\w-]+ \(there are: kube-system, training\)"
    with pytest.raises(EngineRefused, match=nearest):
        held.engine().check()
    held.cluster.server.namespaces = None
    assert held.engine().check()


def test_the_check_names_a_local_queue_that_kueue_does_not_have(held: Held) -> None:
    engine = held.engine("kueue = true")
    with pytest.raises(EngineRefused, match="Kueue is not installed on the cluster"):
        engine.check(("research",))
    held.cluster.server.local_queues = ["research", "urgent"]
    assert engine.check(("research", "urgent"))
    with pytest.raises(EngineRefused, match="called reserch; the nearest is research"):
        engine.check(("reserch",))
    held.cluster.faults.refusals.append(("localqueues", 403, "Forbidden", "not you"))
    assert "no permission to list localqueues" in engine.check(("reserch",))


def test_the_fake_cluster_answers_like_kubernetes(held: Held) -> None:
    """By the client's models, which refuse fields that they do not know."""
    engine = held.engine()
    handle = engine.submit(order("import sys; sys.exit(3)", num_nodes=2))
    assert "exit code 1" in held.until(engine, handle, EngineJobPhase.ENDED).detail
    for plural, model in (("jobs", models.V1Job), ("pods", models.V1Pod), ("services", models.V1Service)):
        for served in held.cluster.objects.all(plural):
            assert model.model_validate(served)
