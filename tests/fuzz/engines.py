"""Answers of engines, as far as they are read by functions of their text."""

from __future__ import annotations

import json

from autotuner.core.errors import InvalidInput
from autotuner.launch.engines.kubernetes_objects import checked
from autotuner.launch.engines.ray_api import JobLog
from autotuner.launch.engines.slurm_commands import read_sacct, read_squeue
from tests.fuzz.target import Target, json_of, text_of


def _slurm(data: bytes) -> None:
    text = text_of(data)
    for row in (*read_squeue(text), *read_sacct(text)):
        assert row.number >= 0
        assert row.phase


def _ray(data: bytes) -> None:
    """A log says the same whether it is read at once or as it grows."""
    text, growing, whole = text_of(data), JobLog("5f3c"), JobLog("5f3c")
    for length in range(0, len(text), max(1, len(text) // 4)):
        growing.take(text[:length])
    growing.take(text)
    whole.take(text)
    assert (growing.status, growing.has_begun) == (whole.status, whole.has_begun)
    assert growing.printed(0, 0) == whole.printed(0, 0)


def _pod(data: bytes) -> None:
    """The operator's tables for pods and containers, held to Kubernetes' words."""
    document = json_of(data)
    if not isinstance(document, dict):
        raise InvalidInput("document", None, "must be an object")
    checked("V1PodSpec", {"containers": [], **document}, "pod")


TARGETS = (
    Target(
        name="slurm",
        check=_slurm,
        seeds=(
            b"17|RUNNING|None|n[1-2]|a-trial|0\n18|PENDING|(Priority)||other\n19|CANCELLED by 1000|None|n1|x\n",
            b"17|COMPLETED+|None|n[1-2]|t\n",
        ),
        words=("|", "²", "CANCELLED by ", "None assigned", "17_[1-4]", "\x85", "9" * 40),
    ),
    Target(
        name="ray",
        check=_ray,
        seeds=(
            b'#5f3c {"phase": "running", "detail": ""}\n#5f3c {"node": 0, "text": "#autotuner x"}\nwords of Ray\n'
            b'(pid=1) #5f3c {"phase": "ended", "detail": "deleted"}\n',
        ),
        words=("#5f3c ", '"phase"', '"node"', '"text"', "queued", "lost", "\\ud800", "\n", "\x85", "[", "1e999"),
    ),
    Target(
        name="pods",
        check=_pod,
        seeds=(
            json.dumps(
                {
                    "nodeSelector": {"gpu": "h100"},
                    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
                    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
                    "securityContext": {"runAsUser": 1000, "fsGroup": 1000},
                    "imagePullSecrets": [{"name": "registry"}],
                }
            ).encode(),
        ),
        is_json=True,
    ),
)
