"""Checks of a cluster whose engine says what a test has it say."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from autotuner.core.cluster import Cluster
from autotuner.core.cluster_check import CheckFindings, CheckRequest
from autotuner.core.codec import to_plain
from autotuner.core.errors import StoreUnavailable
from autotuner.core.profile import DeviceProfile, profiled
from autotuner.core.run import Lease, Run, RunState, Wish
from autotuner.core.trial import EngineJob, EngineJobPhase
from autotuner.launch.engines.engine import EngineRefused, EngineUnavailable, JobOrder, JobStatus
from autotuner.launch.engines.launcher import EngineLauncher, job_name
from autotuner.runs.check_run import check_kind
from autotuner.runs.worker import Worker
from autotuner.store.runs import RunStore
from autotuner.store.sql import Store, memory_store
from tests.builders import cpu_cluster, engine_job, link_point, measurement, pair_measurements
from tests.runs import claimed, lease_of, report
from tests.unit.launch.engines.scripted import ENDED, LOST, QUEUED, RUNNING, Scripted, launcher, told

PAIR = replace(cpu_cluster(2), name="pair", num_nodes=2, engine="scripted")


class TickingClock:
    """A clock ahead of the machine's by a second more whenever it is asked; engines date jobs by the machine's."""

    _ahead_s = 0.0

    def now(self) -> float:
        TickingClock._ahead_s += 1.0
        return time.time() + TickingClock._ahead_s

    def monotonic(self) -> float:
        return self.now()

    def sleep(self, seconds: float) -> None:
        TickingClock._ahead_s += seconds


class Nodes(Scripted):
    """Two nodes that train and measure well, unless a test wants otherwise."""

    def submit(self, order: JobOrder) -> str:
        self._printed = benchmarked if "links" in order.name else trained
        return super().submit(order)


class Many(Nodes):
    """As many nodes as anybody wants."""

    def refuses(self, cluster: Cluster) -> str | None:
        del cluster
        return None


def trained(node_rank: int) -> bytes:
    steps = told(type="step", step=0, is_warmup=True, step_time_s=0.5, loss=5.5, tokens_per_s=1.0, mfu=0.1)
    result = told(type="measurement", **to_plain(measurement()))
    return (b"" if node_rank else steps + result) + told(type="node", exit_code=0)


def benchmarked(node_rank: int) -> bytes:
    collectives = [replace(point, kind="all_reduce") for point in pair_measurements().collectives]
    lines = b"".join(told(type="collective", **to_plain(point)) for point in collectives)
    lines += told(type="profile", **to_plain(pair_measurements()))
    return (b"" if node_rank else lines) + told(type="node", exit_code=0)


def four_nodes(node_rank: int) -> bytes:
    """Links of four nodes, of which that between the last two is late; all else is as of two."""
    links = tuple(link_point(*ends, delay=0.03 if ends == (2, 3) else 50e-6) for ends in combinations(range(4), 2))
    line = told(type="profile", **to_plain(replace(pair_measurements(), links=links)))
    return (b"" if node_rank else line) + told(type="node", exit_code=0)


def broken(*lines: str) -> bytes:
    return "\n".join(lines).encode() + b"\n" + told(type="node", exit_code=1)


def asked(store: Store, cluster: Cluster = PAIR, **request: object) -> Run:
    store.descriptions.save(cluster)
    return store.descriptions.create_check(cluster.name, CheckRequest(**request), now=1.0)  # type: ignore[arg-type]


def checker(
    store: Store, launchers: Mapping[str, EngineLauncher], *, owner: str = "a", shutdown: threading.Event | None = None
) -> Worker:
    kind = check_kind(store, launchers)
    stop = shutdown or threading.Event()
    return Worker(store.runs, {kind.name: kind}, TickingClock(), owner=owner, lease_s=15.0, shutdown=stop)


def checked(
    store: Store, launchers: Mapping[str, EngineLauncher], *, shutdown: threading.Event | None = None, owner: str = "a"
) -> Run:
    """The check as it stands when its worker is done with it."""
    worker = checker(store, launchers, owner=owner, shutdown=shutdown)
    assert any(worker.run_once() for _ in range(100))  # as often as it looks until a dead one's lease has lapsed
    check: Run
    (check, *_), _ = store.runs.list("check", subject="pair")
    return check


def lines(check: Run) -> list[str]:
    """What happened, and at last how the check ended."""
    return [*(line.text for line in check.progress.lines), *([check.detail] if check.detail else [])]


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the machine's time again."""
    monkeypatch.setattr(TickingClock, "_ahead_s", 0.0)


@pytest.fixture
def store() -> Store:
    return memory_store()


def test_a_check_that_goes_well_says_what_happened_and_stores_the_clusters_profile(
    store: Store, tmp_path: Path
) -> None:
    asked(store)
    engine = Nodes(QUEUED, RUNNING, ENDED)
    check = checked(store, {"scripted": launcher(tmp_path, engine)})
    assert (check.state, check.progress.engine, check.progress.num_points) == (RunState.COMPLETE, "scripted", 6)
    assert check.progress.trial == measurement()
    assert [job.phase for job in check.progress.jobs] == [EngineJobPhase.ENDED, EngineJobPhase.ENDED]
    said = "\n".join(lines(check))
    assert lines(check)[0] == "the engine scripted answers: scripted"
    for part in (
        "waits for 2 nodes of 2 of scripted",
        "runs on 2 nodes of 2",
        "trial: 5 steps of 500 ms",
        "links: 2 ranks of a node: all-reduce of 2 MB in 1.1 ms",
        "links: one rank of each of 2 nodes: all-reduce of 2 MB in 2.2 ms",
        "links: all 4 ranks of 2 nodes: all-reduce of 2 MB in 4.8 ms",
        "between nodes: 500 MB/s and 200 µs a step measured, 800 MB/s and 100 µs a step described (loopback)",
    ):
        assert part in said
    profile = store.descriptions.get(DeviceProfile, "pair")
    assert (profile.cluster, profile.num_nodes, profile.num_ranks) == ("pair", 2, 4)
    assert profiled(PAIR, profile).inter_node_link.bandwidth_bytes_per_s == pytest.approx(0.5e9)
    assert profile.measured_at == check.progress.profile_at


def test_both_jobs_get_two_nodes_of_a_larger_cluster(store: Store, tmp_path: Path) -> None:
    asked(store, replace(PAIR, num_nodes=16))
    engine = Nodes(RUNNING, ENDED)
    checked(store, {"scripted": launcher(tmp_path, engine)})
    assert [(order.cluster.num_nodes, order.task.module) for order in engine.orders.values()] == [
        (2, "autotuner.trials"),
        (2, "autotuner.trials.benchmarks.profile"),
    ]


# ---------------------------------------------------------------------- links one by one
def test_a_check_of_links_measures_all_nodes_without_a_trial_and_says_which_link_is_late(
    store: Store, tmp_path: Path
) -> None:
    class Four(Many):
        def submit(self, order: JobOrder) -> str:
            self._printed = four_nodes
            return Scripted.submit(self, order)

    four = replace(PAIR, num_nodes=4)
    asked(store, four, links=True)
    engine = Four(RUNNING, ENDED)
    check = checked(store, {"scripted": launcher(tmp_path, engine)})
    (order,) = engine.orders.values()
    assert (order.cluster.num_nodes, order.task.module) == (4, "autotuner.trials.benchmarks.profile")
    assert '"wanted":"devices_and_links"' in order.task.request
    assert (check.state, len(check.progress.links)) == (RunState.COMPLETE, 6)
    assert any(line.startswith("each link: 6 links between 4 nodes: typically 50 µs") for line in lines(check))
    assert any(line.startswith("nodes 2 and 3: 29.9 ms late (± 2 µs), measured ") for line in lines(check))
    (health,) = profiled(four, store.descriptions.get(DeviceProfile, "pair")).link_health
    assert health.ends == (2, 3)

    store.descriptions.create_check("pair", CheckRequest(links=True), now=2.0)
    again = Four(RUNNING, ENDED)
    known = store.descriptions.get(DeviceProfile, "pair")
    checked(store, {"scripted": launcher(tmp_path, again)})
    assert '"wanted":"links"' in next(iter(again.orders.values())).task.request
    newer = store.descriptions.get(DeviceProfile, "pair")
    assert newer.measured_at == known.measured_at, "devices were not measured again"
    assert newer.links_measured_at != known.links_measured_at


def test_some_of_many_nodes_leave_the_health_of_links_open(store: Store, tmp_path: Path) -> None:
    class Four(Many):
        def submit(self, order: JobOrder) -> str:
            self._printed = four_nodes if "links" in order.name else trained
            return Scripted.submit(self, order)

    asked(store, replace(PAIR, num_nodes=16), num_nodes=4)
    check = checked(store, {"scripted": launcher(tmp_path, Four(RUNNING, ENDED))})
    assert "the engine does not say which nodes of the cluster's 16 nodes were measured" in lines(check)
    assert profiled(replace(PAIR, num_nodes=16), store.descriptions.get(DeviceProfile, "pair")).link_health == ()


# ---------------------------------------------------------------------- bad outcomes are clear sentences
class Raising(Nodes):
    """Breaks as soon as it is asked whether it is there."""

    def __init__(self, error: Exception) -> None:
        super().__init__(RUNNING)
        self._error = error

    def check(self, queues: Sequence[str] = ()) -> str:
        del queues
        raise self._error


def refusing(words: str) -> Nodes:
    engine = Nodes(RUNNING)
    engine.refusal = EngineRefused(words)
    return engine


def printing(printed: bytes) -> Scripted:
    return Scripted(RUNNING, ENDED, printed=lambda _: printed)


OUT_OF_MEMORY = told(type="failure", kind="oom", rank=3, message="OutOfMemoryError: 2 GB", traceback="")
NEVER_MET = "torch.distributed.DistNetworkError: the server socket has failed to listen: EADDRINUSE"
STACK = [f"frame #{number}: c10d::TCPStore + 0x21 (0x55ca)" for number in range(50)]
NO_TORCH = "a node of scripted has no torch or no parallelism-autotuner"


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        (Raising(EngineUnavailable("no route")), "the engine scripted does not answer: no route"),
        (Raising(ZeroDivisionError("division by zero")), "ZeroDivisionError: division by zero"),
        (refusing("Invalid account specified"), "Invalid account specified"),
        (Scripted(RUNNING, LOST), "trial: scripted lost the job: node 7 is down"),
        (printing(broken("Traceback:", "ModuleNotFoundError: No module named 'torch'")), NO_TORCH),
        (printing(broken("python3: Error: No module named autotuner.process.node")), NO_TORCH),
        (printing(OUT_OF_MEMORY + told(type="node", exit_code=1)), "trial: oom (rank 3): OutOfMemoryError: 2 GB"),
        (
            printing(broken("Traceback:", NEVER_MET, "Exception raised from listen at socket.cpp", *STACK)),
            f"the last printed line: {NEVER_MET}",
        ),
    ],
    ids=["silent", "a bug", "refused", "lost", "no torch", "no package", "out of memory", "never met"],
)
def test_the_last_error_of_an_engine_or_its_nodes_fails_the_check(
    store: Store, tmp_path: Path, engine: Scripted, said: str
) -> None:
    asked(store)
    check = checked(store, {"scripted": launcher(tmp_path, engine)})
    assert check.state is RunState.FAILED
    assert said in lines(check)[-1]
    assert lines(check)[-1].endswith(said) or said == NO_TORCH


@pytest.mark.parametrize(
    ("queue", "queues", "said"),
    [
        ("night", ("gpu", "night"), "cannot run the jobs of this check: there is no queue night; the nearest is gpu"),
        ("gpuu", ("gpu",), "has no queue gpuu; its queues are gpu"),
    ],
    ids=["the operator named it", "nobody named it"],
)
def test_a_queue_that_the_engine_does_not_have_fails_the_check(
    store: Store, tmp_path: Path, queue: str, queues: tuple[str, ...], said: str
) -> None:
    asked(store, replace(PAIR, queue=queue))
    check = checked(store, {"scripted": launcher(tmp_path, Nodes(RUNNING), queues=queues)})
    assert check.state is RunState.FAILED
    assert said in lines(check)[-1]


def test_an_engine_that_no_worker_knows_fails_the_check_with_those_that_there_are(store: Store) -> None:
    asked(store)
    check = checked(store, {})
    assert lines(check) == [
        "the engine scripted is not registered on the machine that runs trials; registered engines: none"
    ]


def test_a_job_that_does_not_start_in_time_fails_the_check_and_is_cancelled(store: Store, tmp_path: Path) -> None:
    waits = JobStatus(phase=EngineJobPhase.QUEUED, detail="Resources")

    class Full(Nodes):
        def look(self, handle: str) -> JobStatus:
            TickingClock().sleep(400.0)
            return super().look(handle)

    engine = Full(waits)
    asked(store, max_queued_s=7000.0)
    check = checked(store, {"scripted": launcher(tmp_path, engine)})
    assert check.state is RunState.FAILED
    assert "trial: no job started within 7,000 s (Resources)" in lines(check)[-1]
    assert len(engine.cancelled) == 1


# ---------------------------------------------------------------------- interruptions
def test_a_check_that_is_cancelled_ends_its_job(store: Store, tmp_path: Path) -> None:
    check = asked(store)

    class Asked(Nodes):
        def look(self, handle: str) -> JobStatus:
            store.runs.cancel("check", check.id, "", now=2.0)
            return super().look(handle)

    engine = Asked(QUEUED)
    ended = checked(store, {"scripted": launcher(tmp_path, engine)})
    assert (ended.state, lines(ended)[-1]) == (
        RunState.CANCELLED,
        "the check was cancelled, and all its jobs have ended",
    )
    assert set(engine.cancelled) == {job.handle for job in ended.progress.jobs}


def test_a_worker_that_shuts_down_leaves_the_job_to_the_next_which_finds_it(store: Store, tmp_path: Path) -> None:
    check, shutdown = asked(store), threading.Event()

    class Interrupted(Nodes):
        def look(self, handle: str) -> JobStatus:
            shutdown.set()
            return super().look(handle)

    left = checked(store, {"scripted": launcher(tmp_path, Interrupted(QUEUED))}, shutdown=shutdown)
    assert (left.state, left.lease) == (RunState.RUNNING, None)
    next_engine = Nodes(RUNNING, ENDED)
    next_engine._printed = trained
    ended = checked(store, {"scripted": launcher(tmp_path, next_engine)}, owner="b")
    assert ended.state is RunState.COMPLETE
    assert list(next_engine.orders) == [job_name(f"{check.id}-links", 0, 0)]  # the trial's job was there


def test_a_trial_that_was_measured_before_an_interruption_does_not_run_again(store: Store, tmp_path: Path) -> None:
    asked(store)
    report(store, claimed(store, "check", owner="dead"), CheckFindings(engine="scripted", trial=measurement()))
    engine = Nodes(RUNNING, ENDED)
    assert checked(store, {"scripted": launcher(tmp_path, engine)}).state is RunState.COMPLETE
    assert len(engine.orders) == 1


def test_jobs_that_a_dead_worker_left_are_ended_where_the_check_was_cancelled_meanwhile(
    store: Store, tmp_path: Path
) -> None:
    check = asked(store)
    dead = claimed(store, "check", owner="dead")
    job: EngineJob = engine_job(job_name(f"{check.id}-trial", 0, 0), phase=EngineJobPhase.RUNNING, started_at=1.0)
    report(store, dead, CheckFindings(jobs=(job,)))
    store.runs.cancel("check", check.id, "", now=2.0)
    engine = Nodes(RUNNING)
    assert checked(store, {"scripted": launcher(tmp_path, engine)}).state is RunState.CANCELLED
    assert engine.cancelled == [job.handle]


def test_a_check_that_another_worker_took_over_is_left_to_it_with_its_job(store: Store, tmp_path: Path) -> None:
    asked(store)

    class Robbed(Nodes):
        def look(self, handle: str) -> JobStatus:
            seen = store.runs.leases(["check"])
            store.runs.claim(["check"], owner="thief", now=1e12, lease_s=1.0, lapsed=seen)
            return super().look(handle)

    engine = Robbed(QUEUED)
    left = checked(store, {"scripted": launcher(tmp_path, engine)})
    assert (left.state, lease_of(left).owner) == (RunState.RUNNING, "thief")
    assert engine.cancelled == []


class Away(RunStore):
    """A store that is away when findings are to be stored for the second to the fifth time."""

    num_saves = 0

    def renew(self, lease: Lease, progress: Any = None, *, now: float) -> Wish:
        self.num_saves += 1
        if 1 < self.num_saves < 6:
            raise StoreUnavailable("the disk is full")
        return super().renew(lease, progress, now=now)


def test_entries_made_while_the_store_is_away_are_stored_when_it_is_back(store: Store, tmp_path: Path) -> None:
    store.runs = Away(store._engine)
    asked(store)
    check = checked(store, {"scripted": launcher(tmp_path, Nodes(QUEUED, RUNNING, ENDED))})
    assert check.state is RunState.COMPLETE
    assert any("waits for 2 nodes" in line for line in lines(check))
