from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotuner.core.trial import EngineJobPhase
from autotuner.launch.engines.engine import JobStatus
from autotuner.launch.engines.kubernetes.states import ABSENT_S, Container, JobState, PodState, judged

NOW = 1_000_000.0

RUNS = Container(has_started=True)
FAILED = Container(
    has_started=True, exit_code=1, reason="Error", message="ModuleNotFoundError: No module named 'trials'\n"
)


def pod(index: int = 0, **changes: Any) -> PodState:
    base = PodState(name=f"t-1-{index}-abcde", index=index, node=f"gpu-{index}", started_at=NOW - 60.0)
    return replace(base, **changes)


def running(index: int = 0, **changes: Any) -> PodState:
    return pod(index, **{"phase": "Running", "main": RUNS, **changes})


def judge(*pods: PodState, job: JobState | None = None, **changes: Any) -> JobStatus:
    return judged(job or JobState(), pods, 2, **{"now": NOW, "start_timeout_s": 900.0, **changes})


def failed(reason: str = "BackoffLimitExceeded", message: str = "") -> JobState:
    return JobState(conditions={"Failed": (reason, message)})


def test_a_job_runs_once_all_of_its_pods_have_started() -> None:
    assert judge(running(0), pod(1)).phase is EngineJobPhase.QUEUED
    assert judge(running(0), running(1)) == JobStatus(phase=EngineJobPhase.RUNNING)


def test_a_job_whose_first_pod_has_ended_before_the_last_was_seen_to_start_runs_still() -> None:
    done = running(0, phase="Succeeded", main=replace(RUNS, exit_code=0))
    assert judge(done, running(1)).phase is EngineJobPhase.RUNNING


@pytest.mark.parametrize(
    ("pods", "job", "told"),
    [
        ((), JobState(is_suspended=True), "suspended: it waits in its queue"),
        ((), JobState(), "0 of 2 pods have a machine, 0 have started"),
        ((pod(0, unschedulable="0/9 nodes are available"),), JobState(), "pod t-1-0-abcde: 0/9 nodes are available"),
        ((running(0), pod(1)), JobState(), "2 of 2 pods have a machine, 1 have started"),
    ],
)
def test_why_a_job_waits_is_told_in_the_cluster_s_words(pods: tuple[PodState, ...], job: JobState, told: str) -> None:
    assert judge(*pods, job=job) == JobStatus(phase=EngineJobPhase.QUEUED, detail=told)


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff", "CreateContainerConfigError"])
def test_an_image_that_cannot_be_pulled_waits_until_the_start_timeout_then_the_job_is_lost(reason: str) -> None:
    stuck = pod(0, main=Container(reason=reason, message='Back-off pulling image "trials:2"'))
    waits = judge(stuck, pod(1))
    assert waits.phase is EngineJobPhase.QUEUED
    assert waits.detail == f'pod t-1-0-abcde: {reason}: Back-off pulling image "trials:2"'
    late = judge(stuck, pod(1), now=NOW + 900.0)
    assert late.phase is EngineJobPhase.LOST
    assert "not all pods started within 900 s: pod t-1-0-abcde" in late.detail


def test_a_job_without_a_machine_waits_for_ever() -> None:
    assert judge(pod(0, node="", started_at=None), now=NOW + 1e6).phase is EngineJobPhase.QUEUED


def test_a_job_ends_once_it_is_complete_and_no_pod_is_left() -> None:
    job = JobState(conditions={"Complete": ("", "")})
    done = running(0, phase="Succeeded", main=replace(RUNS, exit_code=0))
    assert judge(done, running(1), job=job).phase is EngineJobPhase.RUNNING
    assert judge(done, replace(done, index=1), job=job) == JobStatus(phase=EngineJobPhase.ENDED)


def test_a_failed_job_tells_the_last_words_of_the_container_that_failed() -> None:
    status = judge(running(0, phase="Failed", main=FAILED), pod(1, is_gone=True), job=failed())
    assert status.phase is EngineJobPhase.ENDED
    assert status.detail == ("pod t-1-0-abcde: exit code 1, Error: ModuleNotFoundError: No module named 'trials'")


def test_a_pod_that_failed_before_its_node_began_is_told_as_well() -> None:
    status = judge(pod(0, phase="Failed", gathering=FAILED), pod(1, phase="Failed"), job=failed())
    assert status.phase is EngineJobPhase.ENDED
    assert "No module named 'trials'" in status.detail


@pytest.mark.parametrize(
    "taken",
    [
        {"disruption": "PreemptionByScheduler: preempting to accommodate a higher priority pod"},
        {"disruption": "DeletionByTaintManager: deleting due to NoExecute taint"},
        {"phase": "Failed", "reason": "Evicted: The node was low on resource: memory."},
        {"phase": "Failed", "reason": "NodeLost: Node gpu-1 which was running pod t-1-1-abcde is unresponsive"},
        {"phase": "Failed", "reason": "OutOfnvidia.com/gpu: Node didn't have enough resource"},
        {"phase": "Failed", "reason": "Terminated: Pod was terminated in response to imminent node shutdown."},
        {"was_deleted": True},
        {"leaves_by": NOW - ABSENT_S - 1.0},
    ],
    ids=lambda taken: next(iter(taken.values())) if isinstance(taken, dict) else "",
)
def test_a_job_whose_pod_is_taken_away_is_lost(taken: dict[str, Any]) -> None:
    status = judge(running(0), running(1, **taken))
    assert status.phase is EngineJobPhase.LOST
    assert "t-1-1-abcde" in status.detail


def test_a_peer_that_failed_because_its_neighbour_was_evicted_is_no_failure_of_the_trial() -> None:
    evicted = running(1, phase="Failed", disruption="EvictionByEvictionAPI")
    assert judge(running(0, phase="Failed", main=FAILED), evicted, job=failed()).phase is EngineJobPhase.LOST


def test_a_job_that_failed_for_a_disruption_is_lost_though_its_pods_are_gone() -> None:
    message = "Pod training/t-1-1-abcde has condition DisruptionTarget matching FailJob rule at index 0"
    assert judge(job=failed("PodFailurePolicy", message)) == JobStatus(phase=EngineJobPhase.LOST, detail=message)


def test_a_job_that_failed_though_no_pod_of_it_failed_by_itself_is_lost() -> None:
    """Whoever asks too late sees neither who deleted the pod nor when."""
    told_to_leave = running(0, phase="Failed", main=FAILED, leaves_by=NOW)
    assert judge(job=failed()).phase is EngineJobPhase.LOST
    assert judge(told_to_leave, job=failed()).phase is EngineJobPhase.LOST
    assert judge(told_to_leave, running(1, phase="Failed", main=FAILED), job=failed()).phase is EngineJobPhase.ENDED


def test_a_pod_that_ran_past_the_kubelet_s_limit_ended_and_one_that_waited_past_it_was_lost() -> None:
    reason = "DeadlineExceeded: Pod was active on the node longer than the specified deadline"
    assert judge(running(0, phase="Failed", reason=reason), job=failed()).phase is EngineJobPhase.ENDED
    assert judge(pod(0, phase="Failed", reason=reason), job=failed()).phase is EngineJobPhase.LOST


def test_a_job_that_kueue_suspends_while_it_runs_is_lost() -> None:
    suspended = JobState(is_suspended=True)
    assert judge(job=suspended).phase is EngineJobPhase.QUEUED
    assert judge(job=suspended, begun=True).phase is EngineJobPhase.LOST


def test_a_pod_that_was_told_to_leave_has_until_its_grace_is_over() -> None:
    assert judge(running(0), running(1, leaves_by=NOW + 20.0)).phase is EngineJobPhase.RUNNING
