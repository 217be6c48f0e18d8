"""Trials on an engine that says what a test has it say, and engines as an operator registers them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotuner.core.codec import to_plain
from autotuner.core.errors import InvalidInput
from autotuner.core.measurement import Measurement
from autotuner.core.node_line import RankFailure
from autotuner.core.trial import EngineJob, EngineJobPhase, FailureKind, Stopped
from autotuner.core.trial_spec import TrialSpec
from autotuner.launch.engines.engine import EngineRefused, EngineUnavailable, JobStatus
from autotuner.launch.engines.launcher import job_name
from autotuner.launch.engines.registration import EngineRegistration, ask_engines, check_engine_named, read_engines
from autotuner.launch.launchers import Launchers
from tests.builders import cpu_cluster
from tests.fake_launcher import plain_measurement
from tests.trainers.registered import by_trainer, registered
from tests.trials.launching import SHORT, Watcher, failed, interrupted, spec
from tests.unit.launch.engines.scripted import ENDED, LOST, QUEUED, RUNNING, Scripted, launcher, told

CLUSTER = replace(cpu_cluster(num_nodes=2, accelerators_per_node=1), engine="scripted")

AWAY = EngineUnavailable("connection refused")


def measured(node_rank: int) -> bytes:
    """What two nodes print whose trial was measured."""
    end = told(type="node", exit_code=0)
    result = plain_measurement(spec("any", cluster=CLUSTER))
    return (b"" if node_rank else told(type="measurement", **to_plain(result))) + end


def trial(**changes: Any) -> TrialSpec:
    return spec("scripted", cluster=CLUSTER, **changes)


def test_a_job_is_reported_as_it_waits_runs_and_ends(tmp_path: Path) -> None:
    waits = JobStatus(phase=EngineJobPhase.QUEUED, detail="Resources")
    engine, watcher = Scripted(QUEUED, waits, waits, RUNNING, ENDED, printed=measured), Watcher()
    assert isinstance(launcher(tmp_path, engine).run(trial(), watcher), Measurement)
    assert [(job.phase.value, job.detail) for job in watcher.jobs] == [
        ("queued", ""),
        ("queued", "Resources"),
        ("running", ""),
        ("ended", ""),
    ]
    assert engine.forgotten == [watcher.jobs[0].handle]


def first_alone(printed: bytes) -> Callable[[int], bytes]:
    """The second node never says a word."""
    return lambda node: b"" if node else printed


def both(*documents: dict[str, Any]) -> Callable[[int], bytes]:
    return lambda node: b"".join(told(**document) for document in documents)


def exits(text: str) -> Callable[[int], bytes]:
    """Every node prints that, and fails."""
    return both({"type": "printed", "at": 0.0, "text": text}, {"type": "node", "exit_code": 1})


LOST_PEER = RankFailure(rank=0, kind=FailureKind.COMMUNICATION, message="connection closed by peer", traceback="")
ALONE = told(type="failure", **to_plain(LOST_PEER)) + told(type="node", exit_code=1)
OUT_OF_MEMORY = replace(ENDED, detail="OUT_OF_MEMORY", is_out_of_memory=True)
FAILED = JobStatus(phase=EngineJobPhase.ENDED, detail="FAILED: NonZeroExitCode")
SIGTERM = "nodes 0, 1 received SIGTERM, and not from the autotuner"

LOST_IT, CRASHED = "scripted lost the job: ", FailureKind.CRASH


@pytest.mark.parametrize(
    ("phases", "printed", "kind", "said"),
    [
        ((RUNNING, LOST), both(), None, f"{LOST_IT}node 7 is down"),
        # engines take minutes to see that a node is gone; one that is there says how it ended
        ((RUNNING,), first_alone(ALONE), None, f"{LOST_IT}node 1 stopped reporting"),
        # the nodes had time to report their end, and the engine says no more than that the job is over
        ((RUNNING, FAILED), both({"type": "node", "exit_code": -15, "told_to_end": True}), None, SIGTERM),
        ((RUNNING, ENDED), both({"type": "node", "exit_code": 0, "told_to_end": True}), None, SIGTERM),
        # one node failed by itself, and the engine then ended the others
        (
            (RUNNING, ENDED),
            lambda node: told(type="node", exit_code=1, told_to_end=node > 0),
            CRASHED,
            "without a report",
        ),
        (
            (RUNNING, ENDED),
            lambda node: f"node {node}: No module named torch\n".encode(),
            CRASHED,
            "1: No module named",
        ),
        (
            (RUNNING, OUT_OF_MEMORY),
            both(),
            FailureKind.OOM,
            "scripted ended the job because of its memory: OUT_OF_MEMORY",
        ),
        ((RUNNING, ENDED), exits("EADDRINUSE, Address already in use"), None, "the port at which the nodes connect"),
        ((RUNNING, ENDED), exits("OSError: [Errno 28] No space left on device"), None, "the disk of a node is full"),
        ((RUNNING, ENDED), exits("OSError: [Errno 122] Disk quota exceeded"), None, "the disk of a node is full"),
        ((AWAY,), both(), None, "does not answer"),
        ((RUNNING, AWAY), both(), None, "no longer answers"),
    ],
    ids=[
        *("lost", "a silent node", "nodes that somebody ended", "in good order", "a node failed", "no torch", "memory"),
        *("a port that somebody else has", "a full disk", "a full quota", "away", "away while it runs"),
    ],
)
def test_failures_of_infrastructure_are_told_from_failures_of_the_trial(
    tmp_path: Path,
    phases: tuple[JobStatus | Exception, ...],
    printed: Callable[[int], bytes],
    kind: FailureKind | None,
    said: str,
) -> None:
    watcher = Watcher()
    outcome = launcher(tmp_path, Scripted(*phases, printed=printed)).run(trial(), watcher)
    if kind is None:
        assert said in interrupted(outcome)
        if LOST_IT in interrupted(outcome):
            assert watcher.jobs[-1].phase is EngineJobPhase.LOST
    else:
        failure = failed(outcome)
        assert failure.kind == kind
        assert said in failure.message + failure.log_tail


def test_a_trainers_nodes_that_somebody_else_ended_in_good_order_interrupt_its_trial(tmp_path: Path) -> None:
    engine = Scripted(RUNNING, ENDED, printed=both({"type": "node", "exit_code": 0, "told_to_end": True}))
    assert "SIGTERM" in interrupted(launcher(tmp_path, engine).run(by_trainer(trial(), registered()), Watcher()))


def test_a_measurement_that_was_told_before_the_nodes_were_lost_counts(tmp_path: Path) -> None:
    engine = Scripted(RUNNING, LOST, printed=first_alone(measured(0)))
    assert isinstance(launcher(tmp_path, engine).run(trial(), Watcher()), Measurement)


def test_nodes_that_the_autotuner_itself_ends_are_not_interrupted(tmp_path: Path) -> None:
    """A job runs far past its time limit, and is cancelled for it."""
    end = told(type="node", exit_code=-15, told_to_end=True)
    engine = Scripted(RUNNING, printed=lambda _: end if engine.cancelled else b"")
    name, running = job_name(trial().trial_id, 0, 0), EngineJobPhase.RUNNING
    job = EngineJob(engine="scripted", name=name, handle="#0", submitted_at=1.0, phase=running, started_at=1.0)
    outcome = failed(launcher(tmp_path, engine).run(trial(jobs=(job,)), Watcher()))
    assert outcome.kind == FailureKind.TIMEOUT


def test_the_job_after_one_that_was_lost_has_a_name_of_its_own(tmp_path: Path) -> None:
    engine, name = Scripted(RUNNING, printed=measured), job_name(trial().trial_id, 0, 0)
    lost = EngineJob(engine="scripted", name=name, handle="#0", submitted_at=1.0, phase=EngineJobPhase.LOST)
    launcher(tmp_path, engine).run(trial(jobs=(lost,)), Watcher())
    assert list(engine.orders) == [job_name(trial().trial_id, 0, 1)]


def test_an_engine_that_is_away_for_a_while_is_waited_for_and_said_so(tmp_path: Path) -> None:
    engine, watcher = Scripted(AWAY, AWAY, QUEUED, AWAY, RUNNING, AWAY, ENDED, printed=measured), Watcher()
    assert isinstance(launcher(tmp_path, engine).run(trial(), watcher), Measurement)
    assert watcher.notes[0] == "waits for scripted, which does not answer: connection refused"
    assert watcher.waits == []  # the job itself tells whether it waits


def test_a_trial_waits_for_an_engine_that_does_not_answer_when_it_asks_for_a_job(tmp_path: Path) -> None:
    class Away(Scripted):
        answers = iter([False, False, True])

        def find(self, name: str) -> str | None:
            if not next(self.answers, True):
                raise EngineUnavailable("connection refused")
            return super().find(name)

    watcher = Watcher()
    assert isinstance(launcher(tmp_path, Away(RUNNING, ENDED, printed=measured)).run(trial(), watcher), Measurement)
    assert watcher.waits == ["waits for scripted, which does not answer: connection refused", None]


def test_a_job_that_the_engine_will_not_have_fails_with_its_words(tmp_path: Path) -> None:
    engine = Scripted(RUNNING)
    engine.refusal = EngineRefused("invalid partition specified")
    outcome = failed(launcher(tmp_path, engine).run(trial(), Watcher()))
    assert outcome.kind == FailureKind.INFRASTRUCTURE
    assert "invalid partition specified" in outcome.message


@pytest.mark.parametrize("reason", ["shutdown", "lease_lost"])
def test_a_service_that_leaves_leaves_the_job_alone(tmp_path: Path, reason: Any) -> None:
    class Leaving(Watcher):
        def stop_requested(self) -> Stopped | None:
            return Stopped(reason=reason) if self.jobs else None

    for phases in ((QUEUED,), (RUNNING,)):
        engine = Scripted(*phases)
        assert launcher(tmp_path, engine).run(trial(), Leaving()) == Stopped(reason=reason)
        assert engine.cancelled == engine.forgotten == []


@pytest.mark.parametrize("phase", [QUEUED, RUNNING])
def test_a_job_that_was_left_is_ended_when_its_trial_is_cancelled_before_anybody_followed_it(
    tmp_path: Path, phase: JobStatus
) -> None:
    engine, watcher, name = Scripted(phase), Watcher(stop_after=0), job_name(trial().trial_id, 0, 0)
    left = EngineJob(engine="scripted", name=name, handle="#0", submitted_at=1.0, phase=phase.phase)
    assert launcher(tmp_path, engine).run(trial(jobs=(left,)), watcher) == Stopped(reason="cancelled")
    assert engine.cancelled == ["#0"]
    assert watcher.jobs[-1].phase is EngineJobPhase.ENDED


def test_the_operators_variables_and_first_queue_reach_the_job(tmp_path: Path) -> None:
    engine = Scripted(RUNNING, printed=measured)
    held = launcher(tmp_path, engine, environment={"NCCL_DEBUG": "WARN"}, queues=("gpu", "long"))
    held.run(trial(), Watcher())
    (order,) = engine.orders.values()
    assert order.task.variables == {"NCCL_DEBUG": "WARN"}
    assert order.cluster.queue == "gpu"
    assert order.time_limit_s > order.task.time_limit_s == SHORT.timeout_s


def test_runs_of_one_trial_are_jobs_of_their_own_and_their_waiting_costs_no_time(tmp_path: Path) -> None:
    engine, watcher = Scripted(QUEUED, RUNNING, printed=measured), Watcher()
    repeating = Launchers({"scripted": launcher(tmp_path, engine)})
    repeating.run(trial(settings=replace(SHORT, num_runs=2, max_foreign_share=1.0)), watcher)
    assert list(engine.orders) == [job_name(trial().trial_id, run, 0) for run in (0, 1)]


def test_a_trainer_has_to_say_where_it_runs_and_have_a_peak_to_take_shares_of(tmp_path: Path) -> None:
    by_loop = replace(by_trainer(trial(), registered()), cluster=CLUSTER)
    outcome = failed(launcher(tmp_path, Scripted(RUNNING)).run(by_loop, Watcher()))
    assert "{torchrun} or {node_rank}" in outcome.message
    by_loop = replace(by_trainer(trial(), registered()), reference_flop_per_s=None)
    outcome = failed(launcher(tmp_path, Scripted(RUNNING)).run(by_loop, Watcher()))
    assert "autotuner cluster check" in outcome.message


def test_clusters_and_trainers_that_cannot_be_are_refused(tmp_path: Path) -> None:
    held = launcher(tmp_path, Scripted(RUNNING))
    assert held.refuses(CLUSTER) is None
    assert "too large" in str(held.refuses(replace(CLUSTER, num_nodes=3)))
    assert "no queue night" in str(held.refuses(replace(CLUSTER, queue="night")))
    assert "not registered" in str(held.refuses(CLUSTER, registered("unknown").trainer))


@pytest.mark.parametrize("trial_id", ["sw-abcdefghij-0003", "SW_x/../y", "x" * 300, "-", "1" * 41 + "-"])
def test_a_jobs_name_is_a_label_that_every_engine_takes(trial_id: str) -> None:
    name = job_name(trial_id, 12, 3)
    assert len(name) <= 50
    assert all(letter.isalnum() or letter == "-" for letter in name)
    assert name[0].isalpha()
    assert name[-1].isalnum()


# ---------------------------------------------------------------- known
class Silent(Scripted):
    """Does not answer."""

    def check(self, queues: Sequence[str] = ()) -> str:
        raise EngineUnavailable(f"connection refused to {queues}")


@pytest.mark.parametrize(
    ("engine", "queue", "answer"),
    [
        (Silent(RUNNING), "gpu", "connection refused to ('gpu',)"),
        (Scripted(RUNNING), "gpuu", "there is no queue gpuu; the nearest is gpu (there are: cpu, gpu)"),
    ],
    ids=["silent", "without a queue that it was registered with"],
)
def test_an_engine_that_is_not_ready_is_listed_with_its_reason_behind_those_that_always_are(
    tmp_path: Path, engine: Scripted, queue: str, answer: str
) -> None:
    registered = {"scripted": launcher(tmp_path, engine, queues=(queue,)).registration}
    *always, standing = ask_engines(registered, {"scripted": engine})
    assert [(one.name, one.answers) for one in always] == [("local", True), ("simulated", True)]
    assert (standing.name, standing.answers, standing.answer) == ("scripted", False, answer)
    assert standing.queues == (queue,)


@pytest.mark.parametrize(
    ("engine", "queue", "field", "nearest"),
    [
        ("skripted", "", "engine", "scripted"),
        ("scripted", "gpuu", "queue", "gpu"),
        ("local", "gpu", "queue", None),
        ("simulated", "flakey", "queue", "flaky"),
    ],
)
def test_an_unregistered_name_is_refused_with_the_nearest_registered_one(
    tmp_path: Path, engine: str, queue: str, field: str, nearest: str | None
) -> None:
    registered = {"scripted": launcher(tmp_path, Scripted(RUNNING), queues=("cpu", "gpu")).registration}
    with pytest.raises(InvalidInput) as refused:
        check_engine_named(cpu_cluster(engine=engine, queue=queue), registered)
    assert (refused.value.field, refused.value.nearest) == (field, nearest)


def test_a_registered_engine_may_be_named_with_and_without_a_queue(tmp_path: Path) -> None:
    registered = {"scripted": launcher(tmp_path, Scripted(RUNNING), queues=("cpu", "gpu")).registration}
    for engine, queue in (("local", ""), ("simulated", "flaky"), ("scripted", ""), ("scripted", "gpu")):
        check_engine_named(cpu_cluster(engine=engine, queue=queue), registered)
    registration = read(tmp_path, f'[nodes]\n{PROCESSES}queues = ["short", "long"]\n')["nodes"]
    assert registration.refuses(replace(cpu_cluster(), queue="long")) is None
    assert registration.refuses(cpu_cluster()) is None
    assert "no queue night" in str(registration.refuses(replace(cpu_cluster(), queue="night")))
    assert registration.placed(cpu_cluster()).queue == "short"
    assert registration.placed(replace(cpu_cluster(), queue="long")).queue == "long"
    assert read(tmp_path, f"[nodes]\n{PROCESSES}")["nodes"].placed(cpu_cluster()).queue == ""


# ---------------------------------------------------------------- Engines as an operator registers them
PROCESSES = 'kind = "processes"\nfolder = "/tmp/jobs"\n'


def read(tmp_path: Path, text: str) -> dict[str, EngineRegistration]:
    (tmp_path / "engines.toml").write_text(text)
    return read_engines(tmp_path / "engines.toml")


def test_every_table_is_an_engine_with_what_all_have_and_what_its_kind_has(tmp_path: Path) -> None:
    said = f'[nodes]\n{PROCESSES}num_nodes = 4\nmax_parallel_trials = 2\nqueues = ["short", "long"]\n'
    registration = read(tmp_path, said)["nodes"]
    assert (registration.kind, registration.settings.max_parallel_trials) == ("processes", 2)
    assert registration.own.num_nodes == 4
    assert registration.engine().check() == "4 nodes, which are processes of this machine"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[a", "AUTOTUNER_ENGINES"),
        ("a = " + "[" * 5_000, "AUTOTUNER_ENGINES"),
        ("[a]", "a.kind.*must be one of"),
        ('[a]\nkind = "slrum"', "slurm"),
        ('[a]\nkind = "emulated"', "processes"),
        ("a = 1", "must be a table"),
        (f"[local]\n{PROCESSES}", "local.name"),
        (f"[simulated]\n{PROCESSES}", "simulated.name"),
        (f'["a b"]\n{PROCESSES}', "a b.name"),
        (f"[a]\n{PROCESSES}max_parallel_trials = 0", "a.max_parallel_trials"),
        (f"[a]\n{PROCESSES}partitions = 1", "partitions"),
        ('[a]\nkind = "processes"\nfolder = ""', "a.folder"),
    ],
)
def test_an_illegal_registration_is_refused_with_the_name_of_its_engine(
    tmp_path: Path, text: str, complaint: str
) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        read(tmp_path, text)
    with pytest.raises(InvalidInput, match=r"nowhere\.toml"):
        read_engines(tmp_path / "nowhere.toml")
