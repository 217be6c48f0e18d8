from __future__ import annotations

from pathlib import Path

import pytest

from autotuner.core.errors import InvalidInput
from autotuner.launch.engines.registration import read_engines

COMPLETE = """
[gpus]
kind = "kubernetes"
queues = ["research", "urgent"]
max_parallel_trials = 4
image = "registry.example/trials:1"
namespace = "training"
kubeconfig = "{folder}/kubeconfig"
workload = "jobset"
kueue = true
accelerator = "nvidia.com/gpu"
shared_memory = "16Gi"
labels = {{team = "llm"}}
annotations = {{"alpha.jobset.sigs.k8s.io/exclusive-topology" = "rack"}}

[gpus.pod]
nodeSelector = {{"node.kubernetes.io/instance-type" = "h100x8"}}
priorityClassName = "batch"
serviceAccountName = "trials"
imagePullSecrets = [{{name = "registry"}}]
tolerations = [{{key = "nvidia.com/gpu", operator = "Exists", effect = "NoSchedule"}}]
volumes = [{{name = "data", persistentVolumeClaim = {{claimName = "data"}}}}]

[gpus.container]
volumeMounts = [{{name = "data", mountPath = "/data", readOnly = true}}]
env = [{{name = "NCCL_IB_HCA", value = "mlx5"}}]

[gpus.container.resources]
limits = {{"rdma/ib" = "1"}}
"""


def refusal(folder: Path, line: str) -> str:
    path = folder / "engines.toml"
    path.write_text(f'[gpus]\nkind = "kubernetes"\nimage = "registry.example/trials:1"\n{line}\n')
    with pytest.raises(InvalidInput) as raised:
        read_engines(path)["gpus"].engine()
    return str(raised.value)


def test_an_operator_describes_pods_in_kubernetes_own_words(tmp_path: Path) -> None:
    path = tmp_path / "engines.toml"
    path.write_text(COMPLETE.format(folder=tmp_path))
    own = read_engines(path)["gpus"].own
    assert own.pod["nodeSelector"] == {"node.kubernetes.io/instance-type": "h100x8"}
    assert own.container["env"] == [{"name": "NCCL_IB_HCA", "value": "mlx5"}]


def test_what_the_engine_says_of_a_pod_itself_is_refused(tmp_path: Path) -> None:
    assert "pod.restartPolicy" in refusal(tmp_path, 'pod = {restartPolicy = "Always"}')
    assert "container.command" in refusal(tmp_path, 'container = {command = ["bash"]}')


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("pod = {nodeSelctor = {a = 'b'}}", "pod.nodeSelctor"),
        ("pod = {nodeSelctor = {a = 'b'}}", "nearest legal value: nodeSelector"),
        ("pod = {tolerations = [{key = 'a', efect = 'NoSchedule'}]}", "nearest legal value: effect"),
        ("container = {resources = {limits = {'nvidia.com/gpu' = 8}}}", "container.resources.limits.nvidia.com/gpu"),
        ("container = {volumeMounts = [{name = 'data'}]}", "container.volumeMounts.0.mountPath"),
    ],
)
def test_a_field_that_kubernetes_does_not_know_is_refused_when_the_engine_is_made(
    tmp_path: Path, line: str, told: str
) -> None:
    assert told in refusal(tmp_path, line)


def test_a_cluster_that_nothing_describes_is_refused_when_the_engine_is_made(tmp_path: Path) -> None:
    assert "kubeconfig" in refusal(tmp_path, f'kubeconfig = "{tmp_path}/nowhere"')
    assert "kubeconfig" in refusal(tmp_path, "")  # no service account of a pod either


@pytest.mark.parametrize("line", ['image = ""', 'namespace = "Mine"', "port = 80", "start_timeout_s = 0.0"])
def test_values_that_no_cluster_would_take_are_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "engines.toml"
    image = "" if line.startswith("image") else 'image = "trials"\n'
    path.write_text(f'[gpus]\nkind = "kubernetes"\n{image}{line}\n')
    with pytest.raises(InvalidInput, match=line.split(" ", maxsplit=1)[0]):
        read_engines(path)
