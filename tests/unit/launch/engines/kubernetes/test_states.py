from __future__ import annotations

from typing import Any

import pytest

from autotuner.launch.engines.kubernetes.states import Container, job_state, pod_state


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "t-1-3-abcde"}, "spec": {}, "status": status}


def main(**state: Any) -> Container:
    return pod_state(pod(containerStatuses=[{"name": "sidecar"}, {"name": "node", "state": state}])).main


def test_a_pod_that_was_just_made_waits_for_a_machine() -> None:
    state = pod_state({"metadata": {"name": "t-1-3-abcde"}})
    assert (state.phase, state.node, state.started_at, state.has_ended) == ("Pending", "", None, False)


def test_a_pod_is_the_node_that_its_annotation_says() -> None:
    document = pod()
    document["metadata"]["annotations"] = {"batch.kubernetes.io/job-completion-index": "3"}
    assert pod_state(document).index == 3


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


def test_a_container_that_is_being_made_says_nothing_and_one_that_cannot_be_says_why() -> None:
    assert main(waiting={"reason": "ContainerCreating"}).story == ""
    assert main(waiting={"reason": "ErrImagePull", "message": "not found"}).story == "ErrImagePull: not found"
    assert main(terminated={"exitCode": 1, "reason": "Error"}).story == "exit code 1, Error"


def test_why_no_machine_has_room_is_the_scheduler_s_message() -> None:
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/4 nodes are available"}
    assert pod_state(pod(conditions=[waits])).unschedulable == "0/4 nodes are available"
    assert pod_state(pod(conditions=[{**waits, "status": "True"}])).unschedulable == ""


def test_a_disruption_is_told_with_its_reason() -> None:
    taken = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "preempting"}
    assert pod_state(pod(conditions=[taken])).disruption == "PreemptionByScheduler: preempting"
    assert pod_state(pod(conditions=[{**taken, "status": "False"}])).disruption == ""


def test_moments_are_read_with_their_zone() -> None:
    document = pod(startTime="2026-11-22T12:00:00Z")
    document["metadata"]["deletionTimestamp"] = "2026-11-22T14:00:30+02:00"
    state = pod_state(document)
    assert state.started_at == 1_795_348_800.0
    assert state.leaves_by == state.started_at + 30.0


@pytest.mark.parametrize("kind", ["Complete", "Completed", "Failed", "FailureTarget"])
def test_jobs_and_job_sets_say_with_different_words_that_they_are_over(kind: str) -> None:
    over = {"metadata": {}, "spec": {}, "status": {"conditions": [{"type": kind, "status": "True"}]}}
    assert job_state(over).is_over
    over["status"]["conditions"][0]["status"] = "False"
    assert not job_state(over).is_over


def test_a_job_is_as_suspended_and_as_deleted_as_the_job_set_above_it() -> None:
    above: dict[str, Any] = {"metadata": {"deletionTimestamp": "2026-11-22T12:00:00Z"}, "spec": {"suspend": True}}
    state = job_state(above, {"metadata": {}, "spec": {}})
    assert state.is_suspended
    assert state.is_deleted
