"""What an operator says of a Kubernetes cluster; pods in Kubernetes' own words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from autotuner.core.errors import InvalidInput
from autotuner.core.value import Count, Positive, value
from autotuner.launch.engines.engine import Engine

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")

_POD_IS_OURS = (
    *("activeDeadlineSeconds", "containers", "hostname", "initContainers", "restartPolicy", "setHostnameAsFQDN"),
    *("subdomain", "terminationGracePeriodSeconds"),
)
_CONTAINER_IS_OURS = (
    *("args", "command", "image", "lifecycle", "livenessProbe", "name", "readinessProbe", "restartPolicy"),
    *("startupProbe", "stdin", "terminationMessagePolicy", "tty"),
)


@value
class KubernetesSettings:
    """A Kubernetes cluster, and what a pod on it looks like."""

    image: str
    """Has Python, torch and this project's packages."""
    namespace: str = "default"
    """Where jobs are made."""
    kubeconfig: str = ""
    """File that says where the cluster is and who asks; empty: the service itself runs in a pod, as its service
    account."""
    context: str = ""
    """Of that file; empty: its current one."""
    python: str = "python"
    """Of the image."""
    workload: Literal["job", "jobset"] = "job"
    """``job``, or ``jobset`` where the cluster has JobSet."""
    kueue: bool = False
    """Whether Kueue says when a job may start; the queues of the engine are then its local queues."""
    accelerator: str = "nvidia.com/gpu"
    """Resource that a pod asks for as many of as a node of the cluster has accelerators (``nvidia.com/gpu``, ``cpu``);
    empty: ``container.resources`` says all there is to say."""
    shared_memory: str = ""
    """Size of ``/dev/shm`` (``16Gi``), which NCCL and data loaders use; empty: the runtime's 64 MiB."""
    port: int = 29500
    """On which node 0 listens, and the next one; each pod has an address of its own, so any free ones."""
    labels: dict[str, str] = field(default_factory=dict)
    """Of jobs and pods."""
    annotations: dict[str, str] = field(default_factory=dict)
    """Of jobs and pods."""
    pod: Mapping[str, object] = field(default_factory=dict)
    """PodSpec, less what the engine says: node selector, tolerations, volumes, priority class, service account, pull
    secrets, host network."""
    container: Mapping[str, object] = field(default_factory=dict)
    """Container, less what the engine says: resources, mounts, variables, security context."""
    start_timeout_s: Positive = 900.0
    """From the moment the first pod has a node until all have started; then the job counts as lost."""
    node_lost_s: Count = 60
    """How long a node may be out of reach before its pods are given up."""
    grace_s: Count = 30
    """What a pod gets to leave when it is told to."""
    kept_s: Count = 86_400
    """How long a job that is over is kept, with its output, for a service that was down."""

    def __post_init__(self) -> None:
        if not self.image:
            raise InvalidInput("image", self.image, "must name an image with torch and this project's packages")
        if not _LABEL.fullmatch(self.namespace):
            rule = "must be lower-case letters, digits and hyphens"
            raise InvalidInput("namespace", self.namespace, rule, "default")
        if not 1024 <= self.port < 65535:
            rule = "must leave room for the next one, and be free for programs of any user"
            raise InvalidInput("port", self.port, rule, min(max(self.port, 1024), 65534))
        _refuse_ours("pod", self.pod, _POD_IS_OURS)
        _refuse_ours("container", self.container, _CONTAINER_IS_OURS)


def _refuse_ours(path: str, table: Mapping[str, Any], ours: tuple[str, ...]) -> None:
    for name in table:
        if name in ours:
            raise InvalidInput(f"{path}.{name}", table[name], "is said by the engine itself, or by a setting beside it")


# Makes the engine, whose client takes half a second to import: only who has such an engine needs it.


def kubernetes_engine(name: str, settings: KubernetesSettings) -> Engine:
    """The engine of that name.

    Raises:
        InvalidInput: A table is not in Kubernetes' words, or the kubeconfig says nowhere where the cluster is.
    """
    from autotuner.launch.engines.kubernetes.engine import KubernetesEngine  # noqa: PLC0415

    return KubernetesEngine(name, settings)
