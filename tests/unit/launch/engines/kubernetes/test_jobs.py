from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotuner.core.trial import EngineJobPhase
from autotuner.launch.engines.engine import JobStatus
from autotuner.launch.engines.kubernetes_state import (
    ABSENT_S,
    Container,
    Jobs,
    JobState,
    PodState,
    job_state,
    judged,
    pod_state,
)
from tests.kubernetes.objects import condition, now_text

START_TIMEOUT_S = 900.0


def job(**status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "t-1", "labels": {"autotuner/job": "t-1"}},
        "spec": {"completions": 2},
        "status": status,
    }


def pod(index: int, phase: str = "Running", **metadata: Any) -> dict[str, Any]:
    state = {"running": {}} if phase == "Running" else {"terminated": {"exitCode": 0 if phase == "Succeeded" else 1}}
    return {
        "metadata": {
            "name": f"t-1-{index}",
            "labels": {"autotuner/job": "t-1"},
            "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
            **metadata,
        },
        "spec": {"nodeName": f"gpu-{index}"},
        "status": {"phase": phase, "containerStatuses": [{"name": "node", "state": state}]},
    }


def phase(jobs: Jobs, now: float = 0.0) -> EngineJobPhase | None:
    status = jobs.status("t-1", now=now, start_timeout_s=START_TIMEOUT_S)
    return None if status is None else status.phase


def running() -> Jobs:
    jobs = Jobs()
    jobs.listed([job()], [pod(0), pod(1)])
    assert phase(jobs) is EngineJobPhase.RUNNING
    return jobs


def ended(kind: str, reason: str = "") -> dict[str, Any]:
    over = job()
    condition(over, kind, reason)
    return over


def deleted(document: dict[str, Any]) -> dict[str, Any]:
    document["metadata"]["deletionTimestamp"] = now_text()
    return document


def evicted(index: int) -> dict[str, Any]:
    leaves = deleted(pod(index))
    condition(leaves, "DisruptionTarget", "EvictionByEvictionAPI")
    return leaves


Lists = tuple[list[dict[str, Any]], list[dict[str, Any]]]


@pytest.mark.parametrize(
    ("lists", "phases"),
    [
        ([([job()], [pod(0), deleted(pod(1))])], ["lost"]),
        ([([job()], [pod(0)])], ["lost"]),
        ([([job()], [evicted(1), pod(0)]), ([job()], [pod(0)])], ["lost", "lost"]),
        # the job controller ends the others after one failed
        (
            [
                ([job()], [pod(0, "Failed"), deleted(pod(1))]),
                ([ended("Failed", "BackoffLimitExceeded")], [pod(0, "Failed")]),
            ],
            ["running", "ended"],
        ),
        ([([], [pod(0), pod(1)])], ["lost"]),
        # as ``kubectl delete --cascade=foreground`` does: the Job stays until its pods are gone
        ([([deleted(job())], [pod(0), pod(1)]), ([deleted(job())], [])], ["lost", "lost"]),
        (
            [([ended("Complete")], [pod(0, "Succeeded"), pod(1, "Succeeded")]), ([], [])],
            ["ended", "ended"],
        ),
    ],
    ids=[
        *("a pod is deleted", "a pod is missing", "a pod that is gone was evicted", "one failed and the others leave"),
        *("somebody deleted the Job", "and its pods first", "over and tidied up"),
    ],
)
def test_earlier_warnings_are_remembered_after_their_objects_are_gone(lists: list[Lists], phases: list[str]) -> None:
    jobs, found = running(), []
    for seen in lists:
        jobs.listed(*seen)
        found.append(phase(jobs))
    assert [one.value for one in found if one] == phases


def test_a_job_that_was_forgotten_or_never_heard_of_is_not_known() -> None:
    assert phase(Jobs()) is None
    jobs = running()
    jobs.forget("t-1")
    jobs.listed([job()], [pod(0)])
    assert phase(jobs) is None


def test_a_job_that_was_cancelled_has_ended_once_its_pods_are_gone_and_is_lost_on_a_silent_machine() -> None:
    jobs = running()
    jobs.cancel("t-1")
    jobs.listed([job()], [pod(0, deletionTimestamp=now_text(30.0))])
    assert phase(jobs) is EngineJobPhase.RUNNING
    jobs.listed([], [])
    assert phase(jobs) is EngineJobPhase.ENDED
    jobs = running()
    jobs.cancel("t-1")
    jobs.listed([job()], [pod(0, deletionTimestamp="2026-01-01T00:00:00Z")])
    assert phase(jobs, now=2e9) is EngineJobPhase.LOST


def test_the_newest_pod_of_an_index_is_the_node() -> None:
    jobs, newer = running(), pod(0, creationTimestamp=now_text())
    newer["metadata"]["name"] = "t-1-0-newer"
    jobs.listed([job()], [pod(0), pod(1), newer])
    found = jobs.pod("t-1", 0)
    assert found is not None
    assert found.name == "t-1-0-newer"


# ---------------------------------------------------------------- judgement
NOW = 1_000_000.0

RUNS = Container(has_started=True)
FAILED = Container(
    has_started=True, exit_code=1, reason="Error", message="ModuleNotFoundError: No module named 'autotuner'\n"
)


def node(index: int = 0, **changes: Any) -> PodState:
    base = PodState(name=f"t-1-{index}-abcde", index=index, node=f"gpu-{index}", started_at=NOW - 60.0)
    return replace(base, **changes)


def running_node(index: int = 0, **changes: Any) -> PodState:
    return node(index, **{"phase": "Running", "main": RUNS, **changes})


def judge(*pods: PodState, job: JobState | None = None, **changes: Any) -> JobStatus:
    return judged(job or JobState(), pods, 2, **{"now": NOW, "start_timeout_s": 900.0, **changes})


def failed_job(reason: str = "BackoffLimitExceeded", message: str = "") -> JobState:
    return JobState(conditions={"Failed": (reason, message)})


DONE = running_node(0, phase="Succeeded", main=replace(RUNS, exit_code=0))


def test_a_job_runs_once_all_of_its_pods_have_started_and_until_none_is_left() -> None:
    assert judge(running_node(0), node(1)).phase is EngineJobPhase.QUEUED
    running_pods = [
        (running_node(0), running_node(1)),
        (DONE, running_node(1)),
        (running_node(0), running_node(1, leaves_by=NOW + 20.0)),  # its grace is not over
    ]
    assert [judge(*pods) for pods in running_pods] == [JobStatus(phase=EngineJobPhase.RUNNING)] * 3


@pytest.mark.parametrize(
    ("pods", "job", "told"),
    [
        ((), JobState(is_suspended=True), "the job is suspended: it waits in its queue"),
        ((), JobState(), "0 of 2 pods have a machine, 0 have started"),
        ((node(0, unschedulable="0/9 nodes are available"),), JobState(), "pod t-1-0-abcde: 0/9 nodes are available"),
        ((running_node(0), node(1)), JobState(), "2 of 2 pods have a machine, 1 have started"),
    ],
)
def test_why_a_job_waits_is_reported_in_the_cluster_s_words(
    pods: tuple[PodState, ...], job: JobState, told: str
) -> None:
    assert judge(*pods, job=job) == JobStatus(phase=EngineJobPhase.QUEUED, detail=told)


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff", "CreateContainerConfigError"])
def test_an_image_that_cannot_be_pulled_loses_the_job_after_the_start_timeout_and_a_machine_is_waited_for_for_ever(
    reason: str,
) -> None:
    stuck = node(0, main=Container(reason=reason, message='Back-off pulling image "trials:2"'))
    waits = judge(stuck, node(1))
    assert waits.phase is EngineJobPhase.QUEUED
    assert waits.detail == f'pod t-1-0-abcde: {reason}: Back-off pulling image "trials:2"'
    late = judge(stuck, node(1), now=NOW + 900.0)
    assert late.phase is EngineJobPhase.LOST
    assert "not all pods started within 900 s: pod t-1-0-abcde" in late.detail
    assert judge(node(0, node="", started_at=None), now=NOW + 1e6).phase is EngineJobPhase.QUEUED


def test_a_job_ends_once_it_is_complete_and_no_pod_is_left() -> None:
    job = JobState(conditions={"Complete": ("", "")})
    assert judge(DONE, running_node(1), job=job).phase is EngineJobPhase.RUNNING
    assert judge(DONE, replace(DONE, index=1), job=job) == JobStatus(phase=EngineJobPhase.ENDED)


def test_a_failed_job_shows_the_last_output_of_its_failure_also_before_its_node_began() -> None:
    status = judge(running_node(0, phase="Failed", main=FAILED), node(1, is_gone=True), job=failed_job())
    assert status.phase is EngineJobPhase.ENDED
    assert status.detail == "pod t-1-0-abcde: exit code 1, Error: ModuleNotFoundError: No module named 'autotuner'"
    status = judge(node(0, phase="Failed", gathering=FAILED), node(1, phase="Failed"), job=failed_job())
    assert status.phase is EngineJobPhase.ENDED
    assert "No module named 'autotuner'" in status.detail


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
    status = judge(running_node(0), running_node(1, **taken))
    assert status.phase is EngineJobPhase.LOST
    assert "t-1-1-abcde" in status.detail


def test_a_job_that_failed_for_a_disruption_or_an_evicted_neighbour_is_lost_and_no_failure_of_the_trial() -> None:
    evicted = running_node(1, phase="Failed", disruption="EvictionByEvictionAPI")
    assert judge(running_node(0, phase="Failed", main=FAILED), evicted, job=failed_job()).phase is EngineJobPhase.LOST
    message = "Pod training/t-1-1-abcde has condition DisruptionTarget matching FailJob rule at index 0"
    assert judge(job=failed_job("PodFailurePolicy", message)) == JobStatus(phase=EngineJobPhase.LOST, detail=message)
    # Whoever asks too late sees neither who deleted the pod nor when.
    told_to_leave = running_node(0, phase="Failed", main=FAILED, leaves_by=NOW)
    assert judge(job=failed_job()).phase is EngineJobPhase.LOST
    assert judge(told_to_leave, job=failed_job()).phase is EngineJobPhase.LOST
    assert (
        judge(told_to_leave, running_node(1, phase="Failed", main=FAILED), job=failed_job()).phase
        is EngineJobPhase.ENDED
    )
    suspended = JobState(is_suspended=True)
    assert judge(job=suspended).phase is EngineJobPhase.QUEUED
    assert judge(job=suspended, begun=True).phase is EngineJobPhase.LOST


def test_a_pod_that_ran_past_the_kubelet_s_limit_ended_and_one_that_waited_past_it_was_lost() -> None:
    reason = "DeadlineExceeded: Pod was active on the node longer than the specified deadline"
    assert judge(running_node(0, phase="Failed", reason=reason), job=failed_job()).phase is EngineJobPhase.ENDED
    assert judge(node(0, phase="Failed", reason=reason), job=failed_job()).phase is EngineJobPhase.LOST


# ---------------------------------------------------------------- states of pods and jobs as Kubernetes tells them
def document(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "t-1-3-abcde"}, "spec": {}, "status": status}


def main(**state: Any) -> Container:
    return pod_state(document(containerStatuses=[{"name": "sidecar"}, {"name": "node", "state": state}])).main


def test_a_pod_is_the_node_of_its_annotation_and_says_why_it_waits_or_was_disrupted() -> None:
    told = document()
    told["metadata"]["annotations"] = {"batch.kubernetes.io/job-completion-index": "3"}
    assert pod_state(told).index == 3
    state = pod_state({"metadata": {"name": "t-1-3-abcde"}})
    assert (state.phase, state.node, state.started_at, state.has_ended) == ("Pending", "", None, False)
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/4 nodes are available"}
    assert pod_state(document(conditions=[waits])).unschedulable == "0/4 nodes are available"
    assert pod_state(document(conditions=[{**waits, "status": "True"}])).unschedulable == ""
    taken = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "preempting"}
    assert pod_state(document(conditions=[taken])).disruption == "PreemptionByScheduler: preempting"
    assert pod_state(document(conditions=[{**taken, "status": "False"}])).disruption == ""
    assert main(waiting={"reason": "ContainerCreating"}).story == ""
    assert main(waiting={"reason": "ErrImagePull", "message": "not found"}).story == "ErrImagePull: not found"
    assert main(terminated={"exitCode": 1, "reason": "Error"}).story == "exit code 1, Error"
    told = document(startTime="2026-11-22T12:00:00Z")
    told["metadata"]["deletionTimestamp"] = "2026-11-22T14:00:30+02:00"
    state = pod_state(told)
    assert state.started_at == 1_795_348_800.0
    assert state.leaves_by == state.started_at + 30.0


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"waiting": {"reason": "ContainerCreating"}}, Container(reason="ContainerCreating")),
        ({"running": {"startedAt": "2026-11-22T12:00:00Z"}}, Container(has_started=True)),
        (
            {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
            Container(has_started=True, exit_code=137, reason="OOMKilled"),
        ),
        (
            {"terminated": {"exitCode": 128, "reason": "StartError", "message": "no such file"}},
            Container(exit_code=128, reason="StartError", message="no such file"),
        ),
        ({}, Container()),
    ],
)
def test_a_container_waits_runs_or_has_ended(state: dict[str, Any], expected: Container) -> None:
    assert main(**state) == expected


@pytest.mark.parametrize("kind", ["Complete", "Failed", "FailureTarget"])
def test_a_job_says_with_several_words_that_it_is_over(kind: str) -> None:
    over = {"metadata": {}, "spec": {}, "status": {"conditions": [{"type": kind, "status": "True"}]}}
    assert job_state(over).is_over
    over["status"]["conditions"][0]["status"] = "False"
    assert not job_state(over).is_over
