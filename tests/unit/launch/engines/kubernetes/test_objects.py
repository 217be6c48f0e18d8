"""A job as the objects that Kubernetes is given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kubernetes.client import models

from autotuner.core.codec import loads
from autotuner.core.trial_spec import NodeTask
from autotuner.launch.engines.engine import EngineRefused, JobOrder
from autotuner.launch.engines.kubernetes_objects import KubernetesSettings, job, service
from tests.builders import h100_cluster

SETTINGS = KubernetesSettings(image="registry.example/trials:1", namespace="training")

TASK = NodeTask(job_name="t-1-0-0", num_nodes=2, ranks_per_node=8, time_limit_s=600.0, command=("echo", "$(HOME) $$"))

CLUSTER = h100_cluster(num_nodes=2, accelerators_per_node=8)


def order(**changes: Any) -> JobOrder:
    return replace(JobOrder(name="t-1-0-0", cluster=CLUSTER, task=TASK, time_limit_s=720.0), **changes)


def pod_of(document: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = document["spec"]["template"]["spec"]
    return spec


def test_a_job_is_one_pod_per_node_tries_once_and_distinguishes_a_removed_pod_from_a_failed_one() -> None:
    document = job("gpus", SETTINGS, order())
    spec, pod = document["spec"], pod_of(document)
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 2, 2)
    assert (spec["backoffLimit"], spec["ttlSecondsAfterFinished"]) == (0, 86_400)
    (rule,) = spec["podFailurePolicy"]["rules"]
    assert rule == {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert pod["restartPolicy"] == "Never"
    assert pod["automountServiceAccountToken"] is False  # unless the operator says so
    assert models.V1Job.model_validate(document)
    assert models.V1Job.model_config["extra"] == "forbid", "or it would take anything"


def test_a_node_is_given_its_accelerators_its_number_where_the_first_one_is_and_its_task() -> None:
    (container,) = pod_of(job("gpus", SETTINGS, order()))["containers"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "8"}}
    assert container["command"] == ["python", "-m", "autotuner.trials.process.node"]
    assert container["args"] == [
        *("--node-rank", "$(JOB_COMPLETION_INDEX)"),
        *("--master-address", "t-1-0-0-0.t-1-0-0", "--master-port", "29500"),
    ]
    image, variable = container["env"]
    assert image == {"name": "AUTOTUNER_CONTAINER_IMAGE", "value": SETTINGS.image}
    assert variable["name"] == "AUTOTUNER_TASK"
    assert "$$(HOME) $$$$" in variable["value"]  # Kubernetes leaves these dollars alone
    assert loads(NodeTask, variable["value"].replace("$$", "$")) == TASK


def test_a_task_that_no_variable_holds_is_refused() -> None:
    with pytest.raises(EngineRefused, match="has 200"):
        job("gpus", SETTINGS, order(task=replace(TASK, files={"layers.yaml": "x" * 200_000})))


def test_a_pod_s_time_limit_counts_from_its_start_and_waiting_in_the_queue_is_free() -> None:
    document = job("gpus", replace(SETTINGS, start_timeout_s=900.0), order())
    assert "activeDeadlineSeconds" not in document["spec"]
    assert pod_of(document)["activeDeadlineSeconds"] == 900 + 720 + 60


def test_pods_of_several_nodes_wait_for_each_other_before_a_node_starts() -> None:
    (waits,) = pod_of(job("gpus", SETTINGS, order()))["initContainers"]
    assert waits["command"] == ["python", "-m", "autotuner.trials.process.gathering"]
    assert waits["args"][-1] == "29501"
    alone = job("gpus", SETTINGS, order(cluster=h100_cluster(num_nodes=1, accelerators_per_node=8)))
    assert "initContainers" not in pod_of(alone)


def test_the_operators_pod_settings_are_merged_with_the_engines() -> None:
    settings = replace(
        SETTINGS,
        shared_memory="16Gi",
        labels={"team": "llm"},
        pod={
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "volumes": [{"name": "data", "hostPath": {"path": "/data"}}],
            "automountServiceAccountToken": True,
        },
        container={
            "env": [{"name": "NCCL_DEBUG", "value": "WARN"}],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            "resources": {"limits": {"rdma/ib": "1"}, "requests": {"memory": "64Gi"}},
        },
    )
    document = job("gpus", settings, order())
    pod = pod_of(document)
    (container,) = pod["containers"]
    tolerated = ["nvidia.com/gpu", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
    assert [toleration["key"] for toleration in pod["tolerations"]] == tolerated
    assert [volume["name"] for volume in pod["volumes"]] == ["data", "shared-memory"]
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/data", "/dev/shm"]
    assert container["resources"]["limits"] == {"rdma/ib": "1", "nvidia.com/gpu": "8"}
    assert container["resources"]["requests"] == {"memory": "64Gi"}
    variables = ["NCCL_DEBUG", "AUTOTUNER_CONTAINER_IMAGE", "AUTOTUNER_TASK"]
    assert [variable["name"] for variable in container["env"]] == variables
    assert pod["automountServiceAccountToken"] is True
    assert document["metadata"]["labels"] == {"team": "llm", "autotuner/engine": "gpus", "autotuner/job": "t-1-0-0"}


def test_a_job_for_kueue_is_suspended_and_names_its_queue_which_is_no_label_without_kueue() -> None:
    wanted = order(cluster=replace(CLUSTER, queue="research"))
    queued, plain = job("gpus", replace(SETTINGS, kueue=True), wanted), job("gpus", SETTINGS, wanted)
    assert (queued["spec"]["suspend"], plain["spec"]["suspend"]) == (True, False)
    assert queued["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "research"
    assert "kueue.x-k8s.io/queue-name" not in plain["metadata"]["labels"]


def test_a_headless_service_names_the_pods_before_they_are_ready_and_goes_with_the_job() -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "t-1-0-0", "uid": "17"}}
    document = service("gpus", "t-1-0-0", owner)
    assert document["spec"] == {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"autotuner/job": "t-1-0-0"},
    }
    assert document["metadata"]["ownerReferences"][0]["uid"] == "17"
    assert models.V1Service.model_validate(document)
