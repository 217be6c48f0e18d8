"""Trials on an engine that says what a test has it say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotuner.core.codec import to_plain
from autotuner.core.measurement import Measurement
from autotuner.core.trial import EngineJob, EngineJobPhase, FailureKind, Stopped, TrialFailure
from autotuner.core.trial_spec import TrialSpec
from autotuner.launch.engines.engine import EngineRefused, EngineUnavailable, JobStatus
from autotuner.launch.engines.launcher import job_name
from autotuner.launch.fake import plain_measurement
from autotuner.launch.repeating import RepeatingLauncher
from autotuner.launch.reports import RankFailure
from tests.builders import cpu_cluster
from tests.trainers.registered import by_trainer, registered
from tests.trials.launching import SHORT, Watcher, spec
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


def test_a_job_is_told_of_as_it_waits_runs_and_ends(tmp_path: Path) -> None:
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
    assert list((tmp_path / "trials").iterdir()) == []


def test_a_job_that_its_engine_lost_says_nothing_of_the_trial(tmp_path: Path) -> None:
    outcome = launcher(tmp_path, Scripted(RUNNING, LOST)).run(trial(), Watcher())
    assert outcome == Stopped(reason="infrastructure", detail="scripted lost the job: node 7 is down")


def test_a_rank_whose_peers_node_fell_silent_says_nothing_of_the_trial(tmp_path: Path) -> None:
    """Engines take minutes to see that a node is gone; one that is there says how it ended."""
    failure = RankFailure(rank=0, kind=FailureKind.COMMUNICATION, message="connection closed by peer", traceback="")

    def first_node_alone(node_rank: int) -> bytes:
        return b"" if node_rank else told(type="failure", **to_plain(failure)) + told(type="node", exit_code=1)

    watcher = Watcher()
    outcome = launcher(tmp_path, Scripted(RUNNING, printed=first_node_alone)).run(trial(), watcher)
    assert outcome == Stopped(reason="infrastructure", detail="scripted lost the job: node 1 fell silent")
    assert watcher.jobs[-1].phase is EngineJobPhase.LOST


def test_a_job_whose_nodes_somebody_else_ended_is_interrupted(tmp_path: Path) -> None:
    """The nodes had time to report their end, and the engine says no more than that the job is over."""
    ended = JobStatus(phase=EngineJobPhase.ENDED, detail="FAILED: NonZeroExitCode")
    engine = Scripted(RUNNING, ended, printed=lambda _: told(type="node", exit_code=-15, told_to_end=True))
    watcher = Watcher()
    why = "FAILED: NonZeroExitCode: nodes 0, 1 got SIGTERM, and not from the autotuner"
    outcome = launcher(tmp_path, engine).run(trial(), watcher)
    assert outcome == Stopped(reason="infrastructure", detail=f"scripted lost the job: {why}")
    assert watcher.jobs[-1].phase is EngineJobPhase.LOST


def test_a_trainer_that_leaves_in_good_order_because_it_is_told_to_is_interrupted(tmp_path: Path) -> None:
    engine = Scripted(RUNNING, ENDED, printed=lambda _: told(type="node", exit_code=0, told_to_end=True))
    outcome = launcher(tmp_path, engine).run(by_trainer(trial(), registered()), Watcher())
    assert isinstance(outcome, Stopped)
    assert outcome.reason == "infrastructure"


def test_a_job_in_which_one_node_failed_by_itself_is_a_crash_though_its_engine_then_ended_the_others(
    tmp_path: Path,
) -> None:
    def first_fails(node_rank: int) -> bytes:
        return told(type="node", exit_code=1, told_to_end=node_rank > 0)

    outcome = launcher(tmp_path, Scripted(RUNNING, ENDED, printed=first_fails)).run(trial(), Watcher())
    assert isinstance(outcome, TrialFailure)
    assert outcome.kind == FailureKind.CRASH


def test_nodes_that_the_autotuner_itself_ends_are_not_interrupted(tmp_path: Path) -> None:
    """A job runs far past its time limit, and is cancelled for it."""
    end = told(type="node", exit_code=-15, told_to_end=True)
    engine = Scripted(RUNNING, printed=lambda _: end if engine.cancelled else b"")
    name, running = job_name(trial().trial_id, 0, 0), EngineJobPhase.RUNNING
    job = EngineJob(engine="scripted", name=name, handle="#0", submitted_at=1.0, phase=running, started_at=1.0)
    outcome = launcher(tmp_path, engine).run(trial(jobs=(job,)), Watcher())
    assert isinstance(outcome, TrialFailure)
    assert outcome.kind == FailureKind.TIMEOUT


def test_a_measurement_that_was_told_before_the_nodes_were_lost_counts(tmp_path: Path) -> None:
    def first_node_alone(node_rank: int) -> bytes:
        return b"" if node_rank else measured(0)

    assert isinstance(
        launcher(tmp_path, Scripted(RUNNING, LOST, printed=first_node_alone)).run(trial(), Watcher()), Measurement
    )


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


def test_an_engine_that_stays_away_is_given_up_and_the_trial_may_be_tried_again(tmp_path: Path) -> None:
    for phases in ((AWAY,), (RUNNING, AWAY)):
        outcome = launcher(tmp_path, Scripted(*phases)).run(trial(), Watcher())
        assert isinstance(outcome, Stopped)
        assert outcome.reason == "infrastructure"


def test_a_job_that_the_engine_will_not_have_fails_with_its_words(tmp_path: Path) -> None:
    engine = Scripted(RUNNING)
    engine.refusal = EngineRefused("invalid partition specified")
    outcome = launcher(tmp_path, engine).run(trial(), Watcher())
    assert isinstance(outcome, TrialFailure)
    assert outcome.kind == FailureKind.INFRASTRUCTURE
    assert "invalid partition specified" in outcome.message


def test_a_job_that_ended_without_a_word_fails_with_what_its_nodes_printed(tmp_path: Path) -> None:
    def without_torch(node_rank: int) -> bytes:
        return f"node {node_rank}: No module named torch\n".encode()

    outcome = launcher(tmp_path, Scripted(RUNNING, ENDED, printed=without_torch)).run(trial(), Watcher())
    assert isinstance(outcome, TrialFailure)
    assert "node 1: No module named torch" in outcome.log_tail


def test_a_port_that_somebody_else_has_says_nothing_of_the_trial(tmp_path: Path) -> None:
    taken = told(type="printed", at=0.0, text="EADDRINUSE, Address already in use") + told(type="node", exit_code=1)
    outcome = launcher(tmp_path, Scripted(RUNNING, ENDED, printed=lambda _: taken)).run(trial(), Watcher())
    assert isinstance(outcome, Stopped)
    assert outcome.reason == "infrastructure"


def test_a_job_that_its_engine_ended_for_its_memory_ran_out_of_memory(tmp_path: Path) -> None:
    ended = replace(ENDED, detail="OUT_OF_MEMORY", is_out_of_memory=True)
    outcome = launcher(tmp_path, Scripted(RUNNING, ended)).run(trial(), Watcher())
    assert isinstance(outcome, TrialFailure)
    assert outcome.kind == FailureKind.OOM
    assert outcome.message == "scripted ended the job for its memory: OUT_OF_MEMORY"


@pytest.mark.parametrize("words", ["[Errno 28] No space left on device", "[Errno 122] Disk quota exceeded"])
def test_a_full_disk_of_a_node_says_nothing_of_the_trial(tmp_path: Path, words: str) -> None:
    died = told(type="printed", at=0.0, text=f"OSError: {words}") + told(type="node", exit_code=1)
    outcome = launcher(tmp_path, Scripted(RUNNING, ENDED, printed=lambda _: died)).run(trial(), Watcher())
    assert isinstance(outcome, Stopped)
    assert outcome.reason == "infrastructure"
    assert "the disk of a node is full" in outcome.detail


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
    repeating = RepeatingLauncher(launcher(tmp_path, engine))
    repeating.run(trial(settings=replace(SHORT, num_runs=2, max_foreign_share=1.0)), watcher)
    assert list(engine.orders) == [job_name(trial().trial_id, run, 0) for run in (0, 1)]


def test_a_trainer_for_several_nodes_has_to_say_where_it_runs(tmp_path: Path) -> None:
    by_loop = replace(by_trainer(trial(), registered()), cluster=CLUSTER)
    outcome = launcher(tmp_path, Scripted(RUNNING)).run(by_loop, Watcher())
    assert isinstance(outcome, TrialFailure)
    assert "{torchrun} or {node_rank}" in outcome.message


def test_a_trainer_without_a_peak_to_take_shares_of_is_told_how_to_get_one(tmp_path: Path) -> None:
    by_loop = replace(by_trainer(trial(), registered()), reference_flop_per_s=None)
    outcome = launcher(tmp_path, Scripted(RUNNING)).run(by_loop, Watcher())
    assert isinstance(outcome, TrialFailure)
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
