"""An operator's settings for a Kubernetes cluster, and the objects of a job: an Indexed Job and a Service.

The client takes half a second to import, so only a process that has a Kubernetes engine imports it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import field
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from autotuner.core import codec
from autotuner.core.errors import InvalidInput
from autotuner.core.value import Count, Positive, value
from autotuner.host.machine_facts import IMAGE
from autotuner.launch.engines.engine import EngineRefused, JobOrder

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
    """The settings with which an operator runs jobs on a Kubernetes cluster, and the settings of the jobs' pods."""

    image: str
    """Image with Python, torch and this package."""
    namespace: str = "default"
    """Namespace in which jobs are created."""
    kubeconfig: str = ""
    """Path of a kubeconfig; empty: the service runs in a pod and uses its service account."""
    context: str = ""
    """Context of the kubeconfig file; empty: its current context."""
    python: str = "python"
    """Python interpreter of the image."""
    kueue: bool = False
    """True if Kueue admits jobs; the queues of the engine are then its local queues."""
    accelerator: str = "nvidia.com/gpu"
    """Resource that a pod requests once for each accelerator of its node (``nvidia.com/gpu``, ``cpu``). If it is empty,
    ``container.resources`` must request everything."""
    shared_memory: str = ""
    """Size of ``/dev/shm`` (``16Gi``), which NCCL and data loaders use; empty: the runtime's 64 MiB."""
    port: int = 29500
    """Port on which node 0 listens; the next port is used too. Each pod has an address of its own, so any two free
    ports work."""
    labels: dict[str, str] = field(default_factory=dict)
    """Extra labels of jobs and pods."""
    annotations: dict[str, str] = field(default_factory=dict)
    """Extra annotations of jobs and pods."""
    pod: Mapping[str, object] = field(default_factory=dict)
    """Other fields of the PodSpec: node selector, tolerations, volumes, priority class, service account, pull secrets,
    host network."""
    container: Mapping[str, object] = field(default_factory=dict)
    """Other fields of the Container: resources, mounts, variables, security context."""
    start_timeout_s: Positive = 900.0
    """Seconds in which all pods must start, counted from the moment the first pod has a node. After that, the job
    counts as lost."""
    node_lost_s: Count = 60
    """Seconds for which a node may be out of reach before its pods are given up."""
    grace_s: Count = 30
    """Seconds that a pod gets to exit after Kubernetes asked it to."""
    kept_s: Count = 86_400
    """Seconds for which a finished job and its output are kept, so that a service that was down can still read them."""

    def __post_init__(self) -> None:
        if not self.image:
            raise InvalidInput(
                "image", self.image, "must name a container image that contains torch and parallelism-autotuner"
            )
        if not _LABEL.fullmatch(self.namespace):
            rule = "must have only lower-case letters, digits and hyphens, for example default"
            raise InvalidInput("namespace", self.namespace, rule)
        if not 1024 <= self.port < 65535:
            rule = "must be from 1024 to 65534, because lower ports need root and the next port is used too"
            raise InvalidInput("port", self.port, rule, min(max(self.port, 1024), 65534))
        _refuse_ours("pod", self.pod, _POD_IS_OURS)
        _refuse_ours("container", self.container, _CONTAINER_IS_OURS)


def _refuse_ours(path: str, table: Mapping[str, Any], ours: tuple[str, ...]) -> None:
    for name in table:
        if name in ours:
            raise InvalidInput(
                f"{path}.{name}", table[name], "must be left out, because the engine itself or another setting sets it"
            )


# Objects of Kubernetes as JSON, checked against the client's own models.


def checked(model: str, document: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Return the document unchanged if it fits a model of the Kubernetes API, else raise an error.

    A document fits if, at every depth, it has no unknown field and no value of a wrong type.

    Args:
        model: Name of the model in the Kubernetes client, like ``V1Job``.
        document: The document to check.
        path: Path of the document in the settings, for messages.

    Raises:
        InvalidInput: A field does not fit. The error names its path and the most similar field that would fit.
    """
    from kubernetes.client import ApiClient, models  # noqa: PLC0415  # takes half a second

    try:
        found = getattr(models, model).model_validate(dict(document))
    except ValidationError as error:
        errors = sorted(error.errors(), key=lambda one: one["type"] != "extra_forbidden")  # a misspelt name comes first
        raise _complaint(errors[0], model, path) from error
    client: Any = ApiClient  # that part of the client has no type annotations
    return dict(client().sanitize_for_serialization(found))


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two JSON documents: merge objects, join lists, and take every other value from ``over``."""
    joined = dict(base)
    for name, said in over.items():
        below = joined.get(name)
        if isinstance(below, Mapping) and isinstance(said, Mapping):
            joined[name] = merged(below, said)
        elif isinstance(below, list) and isinstance(said, list):
            joined[name] = [*below, *said]
        else:
            joined[name] = said
    return joined


def _complaint(error: Any, model: str, path: str) -> InvalidInput:
    where = [str(part) for part in error["loc"]]
    name = ".".join(filter(None, (path, *where)))
    if error["type"] != "extra_forbidden":
        return InvalidInput(name, error["input"], f"is not valid in {model} of Kubernetes: {error['msg']}")
    known = _fields(model, where[:-1])
    near = get_close_matches(where[-1], known, 1)
    return InvalidInput(name, error["input"], f"is not a field of {model} of Kubernetes", near[0] if near else None)


def _fields(model: str, where: list[str]) -> list[str]:
    """Return the field names of the object at the path ``where`` inside the client's model ``model``."""
    from kubernetes.client import models  # noqa: PLC0415  # as above

    cls = getattr(models, model)
    for part in where:
        if part.isdigit():
            continue
        types = {cls.attribute_map[name]: kind for name, kind in cls.openapi_types.items()}
        kind = types.get(part, "").removeprefix("List[").removesuffix("]")
        cls = getattr(models, kind, None)
        if cls is None:
            return []
    return list(cls.attribute_map.values())


ENGINE_LABEL = "autotuner/engine"
"""Label of every object that an engine creates; its value is the engine's name."""

JOB_LABEL = "autotuner/job"
"""Label of every object of a job; its value is the name of the job, which the Kubernetes Job has too."""

INDEX = "batch.kubernetes.io/job-completion-index"
"""Annotation of a pod that says which node of its job it is; the job controller writes it."""

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"

CONTAINER = "node"
"""Name of the container that runs a node of the job."""

_MOST_TASK_BYTES = 120_000
"""Maximum size of the task in one environment variable: Linux accepts 128 KiB including the name."""

_LAST_MINUTE_S = 60
"""Seconds beyond all limits of a node itself after which the kubelet ends its pod."""

_OUT_OF_REACH = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""Taints that Kubernetes sets on a machine that does not answer."""


def job(engine: str, settings: KubernetesSettings, order: JobOrder) -> dict[str, Any]:
    """Return the Indexed Job for an order. A single request creates all of it, so no incomplete Job can be left behind.

    Raises:
        EngineRefused: The task is too long for an environment variable.
    """
    document = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(engine, settings, order),
        "spec": {
            **_job_spec(engine, settings, order),
            "suspend": settings.kueue,
            "ttlSecondsAfterFinished": settings.kept_s,
        },
    }
    return checked("V1Job", document)


def service(engine: str, order_name: str, owner: dict[str, Any]) -> dict[str, Any]:
    """Return the Service through which the pods of a Job find each other by name before they are ready.

    Kubernetes deletes the Service together with the Job.

    Args:
        engine: Name of the engine, for the label.
        order_name: Name of the job.
        owner: The Job as the cluster stores it, with its uid.
    """
    document = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": order_name,
            "labels": {ENGINE_LABEL: engine, JOB_LABEL: order_name},
            "ownerReferences": [
                {
                    "apiVersion": owner["apiVersion"],
                    "kind": owner["kind"],
                    "name": owner["metadata"]["name"],
                    "uid": owner["metadata"]["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {JOB_LABEL: order_name}},
    }
    return checked("V1Service", document)


def check_pod(settings: KubernetesSettings) -> None:
    """Raise an error unless the operator's settings for pods and containers fit the Kubernetes schema.

    Raises:
        InvalidInput: A setting does not fit. The error names the path of the first such setting.
    """
    checked("V1Container", {"name": CONTAINER, **settings.container}, "container")
    checked("V1PodSpec", {"containers": [], **settings.pod}, "pod")


def _metadata(engine: str, settings: KubernetesSettings, order: JobOrder) -> dict[str, Any]:
    metadata = {"name": order.name, "namespace": settings.namespace, **_labels(engine, settings, order)}
    if settings.kueue and order.cluster.queue:
        metadata["labels"] = {**metadata["labels"], QUEUE_LABEL: order.cluster.queue}
    return metadata


def _labels(engine: str, settings: KubernetesSettings, order: JobOrder) -> dict[str, Any]:
    labels = {**settings.labels, ENGINE_LABEL: engine, JOB_LABEL: order.name}
    return {"labels": labels, **({"annotations": settings.annotations} if settings.annotations else {})}


def _job_spec(engine: str, settings: KubernetesSettings, order: JobOrder) -> dict[str, Any]:
    """Return the specification of one try with all pods at once; the Job's failure tells if a pod lost its node."""
    num_nodes = order.cluster.num_nodes
    is_alone = num_nodes == 1  # a single pod needs no DNS name
    master, subdomain = ("127.0.0.1", "") if is_alone else (f"{order.name}-0.{order.name}", order.name)
    lost = {"onPodConditions": [{"type": "DisruptionTarget", "status": "True"}], "action": "FailJob"}
    return {
        "completionMode": "Indexed",
        "completions": num_nodes,
        "parallelism": num_nodes,
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": [lost]},
        "podReplacementPolicy": "Failed",
        "template": {
            "metadata": _labels(engine, settings, order),
            "spec": _pod(settings, order, master=master, subdomain=subdomain),
        },
    }


def _pod(settings: KubernetesSettings, order: JobOrder, *, master: str, subdomain: str) -> dict[str, Any]:
    """Return the template of a pod.

    Its time limit starts when it has a machine, since a Job's limit would include the queue.
    """
    limit_s = settings.start_timeout_s + order.time_limit_s + _LAST_MINUTE_S
    ours = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": math.ceil(limit_s),
        "terminationGracePeriodSeconds": settings.grace_s,
        "tolerations": [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": settings.node_lost_s}
            for key in _OUT_OF_REACH
        ],
        "volumes": _shared_memory(settings)["volumes"],
        "containers": [_container(settings, order, master)],
        "initContainers": _gathering(settings, order, master),
    }
    needs_nothing = {"automountServiceAccountToken": False, "enableServiceLinks": False}
    named = {"subdomain": subdomain} if subdomain else {}
    return _without_empty(merged({**needs_nothing, **settings.pod}, {**ours, **named}))


def _container(settings: KubernetesSettings, order: JobOrder, master: str) -> dict[str, Any]:
    ours = {
        "name": CONTAINER,
        "image": settings.image,
        "command": [settings.python, "-m", "autotuner.trials.process.node"],
        "args": ["--node-rank", "$(JOB_COMPLETION_INDEX)", *_meeting(settings.port, master)],
        "env": [{"name": IMAGE, "value": settings.image}, {"name": "AUTOTUNER_TASK", "value": _task(order)}],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": _shared_memory(settings)["volumeMounts"],
        "resources": _resources(settings, order.cluster.accelerators_per_node),
    }
    return _without_empty(merged(settings.container, ours))


def _gathering(settings: KubernetesSettings, order: JobOrder, master: str) -> list[dict[str, Any]]:
    """Return the init container that holds each pod until all pods have their accelerators and the image.

    The time limit of a node starts with its main container, so no node may start before the others can.
    """
    if order.cluster.num_nodes == 1:
        return []
    waits = {
        "name": "gathering",
        "image": settings.image,
        "command": [settings.python, "-m", "autotuner.trials.process.gathering"],
        "args": [
            *("--node-rank", "$(JOB_COMPLETION_INDEX)", "--num-nodes", str(order.cluster.num_nodes)),
            *_meeting(settings.port + 1, master),
        ],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    return [_without_empty(merged(settings.container, waits))]


def _meeting(port: int, master: str) -> tuple[str, ...]:
    return ("--master-address", master, "--master-port", str(port))


def _resources(settings: KubernetesSettings, num_accelerators: int) -> dict[str, Any]:
    """Return the resources that a container requests.

    Kubernetes takes the limit of an accelerator as its request too.
    """
    return {"limits": {settings.accelerator: str(num_accelerators)}} if settings.accelerator else {}


def _shared_memory(settings: KubernetesSettings) -> dict[str, list[dict[str, Any]]]:
    if not settings.shared_memory:
        return {"volumes": [], "volumeMounts": []}
    volume = {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": settings.shared_memory}}
    return {"volumes": [volume], "volumeMounts": [{"name": "shared-memory", "mountPath": "/dev/shm"}]}


def _task(order: JobOrder) -> str:
    """Return the task as JSON for an environment variable.

    Kubernetes expands ``$(NAME)`` in variables, so each dollar sign is doubled.

    Raises:
        EngineRefused: The task is larger than an environment variable may be.
    """
    text = codec.dumps(order.task)
    if len(text.encode()) > _MOST_TASK_BYTES:
        size = len(text.encode())
        raise EngineRefused(
            f"the description of the job {order.name} has {size} bytes, but an environment variable of a pod "
            f"holds at most {_MOST_TASK_BYTES}; shorten the files or the command of its trainer"
        )
    return text.replace("$", "$$")


def _without_empty(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if value not in ([], {})}
