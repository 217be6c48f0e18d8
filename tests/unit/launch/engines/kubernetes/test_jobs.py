from __future__ import annotations

from typing import Any

from autotuner.core.trial import EngineJobPhase
from autotuner.launch.engines.kubernetes.jobs import Jobs
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
    jobs.replaced("Job", [job()])
    jobs.replaced("Pod", [pod(0), pod(1)])
    assert phase(jobs) is EngineJobPhase.RUNNING
    return jobs


def test_nothing_is_known_of_a_job_that_was_never_heard_of() -> None:
    assert phase(Jobs()) is None


def test_a_pod_that_somebody_deletes_is_lost_though_the_cluster_forgets_it() -> None:
    jobs = running()
    jobs.changed("Pod", pod(1, deletionTimestamp=now_text()))
    jobs.deleted("Pod", pod(1, "Failed", deletionTimestamp=now_text()))
    assert phase(jobs) is EngineJobPhase.LOST


def test_a_pod_that_is_missing_from_the_next_list_is_lost() -> None:
    jobs = running()
    jobs.replaced("Pod", [pod(0)])
    assert phase(jobs) is EngineJobPhase.LOST


def test_pods_that_the_job_controller_ends_after_one_failed_are_not_lost() -> None:
    jobs, over = running(), job()
    jobs.changed("Pod", pod(0, "Failed"))
    jobs.changed("Pod", pod(1, deletionTimestamp=now_text(30.0)))
    assert phase(jobs) is EngineJobPhase.RUNNING
    jobs.deleted("Pod", pod(1, "Failed", deletionTimestamp=now_text()))
    condition(over, "Failed", "BackoffLimitExceeded")
    jobs.changed("Job", over)
    assert phase(jobs) is EngineJobPhase.ENDED


def test_a_disruption_is_remembered_when_its_pod_is_gone() -> None:
    jobs, evicted = running(), pod(1, deletionTimestamp=now_text())
    condition(evicted, "DisruptionTarget", "EvictionByEvictionAPI")
    jobs.changed("Pod", evicted)
    jobs.replaced("Pod", [pod(0)])
    assert phase(jobs) is EngineJobPhase.LOST


def test_a_job_that_was_cancelled_has_ended_once_its_pods_are_gone() -> None:
    jobs = running()
    jobs.cancel("t-1")
    jobs.changed("Pod", pod(0, deletionTimestamp=now_text(30.0)))
    assert phase(jobs) is EngineJobPhase.RUNNING
    jobs.replaced("Pod", [])
    jobs.replaced("Job", [])
    assert phase(jobs) is EngineJobPhase.ENDED


def test_a_cancelled_pod_whose_machine_does_not_answer_is_lost() -> None:
    jobs = running()
    jobs.cancel("t-1")
    jobs.changed("Pod", pod(0, deletionTimestamp="2026-01-01T00:00:00Z"))
    assert phase(jobs, now=2e9) is EngineJobPhase.LOST


def test_a_job_that_somebody_else_deletes_while_it_runs_is_lost() -> None:
    jobs = running()
    jobs.deleted("Job", job())
    assert phase(jobs) is EngineJobPhase.LOST


def test_a_job_that_somebody_else_deletes_after_its_pods_is_lost_from_the_first_moment_on() -> None:
    """As ``kubectl delete --cascade=foreground`` does: the Job stays until its pods are gone."""
    jobs = running()
    leaving = job()
    leaving["metadata"]["deletionTimestamp"] = now_text()
    jobs.changed("Job", leaving)
    assert phase(jobs) is EngineJobPhase.LOST
    for index in (0, 1):
        jobs.deleted("Pod", pod(index, "Failed", deletionTimestamp=now_text()))
    assert phase(jobs) is EngineJobPhase.LOST


def test_a_job_that_was_over_when_the_cluster_forgot_it_has_ended() -> None:
    jobs, over = running(), job()
    condition(over, "Complete")
    jobs.changed("Pod", pod(0, "Succeeded"))
    jobs.changed("Pod", pod(1, "Succeeded"))
    jobs.changed("Job", over)
    jobs.replaced("Pod", [])
    jobs.replaced("Job", [])
    assert phase(jobs) is EngineJobPhase.ENDED


def test_a_job_that_was_forgotten_is_not_known_whatever_is_heard_of_it() -> None:
    jobs = running()
    jobs.forget("t-1")
    jobs.deleted("Pod", pod(0))
    jobs.changed("Job", job())
    assert phase(jobs) is None


def test_the_newest_pod_of_an_index_is_the_node() -> None:
    jobs = running()
    newer = pod(0, creationTimestamp=now_text())
    newer["metadata"]["name"] = "t-1-0-newer"
    jobs.changed("Pod", newer)
    found = jobs.pod("t-1", 0)
    assert found is not None
    assert found.name == "t-1-0-newer"


def test_a_job_set_and_its_job_are_one_job() -> None:
    jobs = Jobs()
    child = {"completions": 2, "suspend": True}
    above = {
        "metadata": {"name": "t-1", "labels": {"autotuner/job": "t-1"}},
        "spec": {"suspend": True, "replicatedJobs": [{"template": {"spec": {"completions": 2}}}]},
    }
    jobs.changed("JobSet", above)
    jobs.changed("Job", {**job(), "spec": child})
    status = jobs.status("t-1", now=0.0, start_timeout_s=START_TIMEOUT_S)
    assert status is not None
    assert status.detail == "suspended: it waits in its queue"
