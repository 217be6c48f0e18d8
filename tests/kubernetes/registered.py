"""The table of an operator's file for a fake cluster."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import autotuner
from tests.kubernetes.cluster import FakeCluster


def table(cluster: FakeCluster, more: str = "", grace_s: int = 10) -> str:
    """Kind, kubeconfig and an image that is this machine's own Python.

    Args:
        cluster: That it is about.
        more: Lines of the table itself.
        grace_s: What pods get to leave; a node needs some seconds to end its ranks.
    """
    project = Path(autotuner.__file__).parents[1] if cluster.has_packages else ""
    python = sys.executable if cluster.has_packages else f"{sys.base_prefix}/bin/python3"
    return "\n".join(
        (
            'kind = "kubernetes"',
            'image = "registry.example/trials:1"',
            f'kubeconfig = "{cluster.kubeconfig}"',
            f'python = "{python}"',
            "poll_s = 0.1",
            f"grace_s = {grace_s}",
            f'workload = "{cluster.workload}"',
            more,
            "container.env = [",
            f'  {{name = "PYTHONPATH", value = "{project}"}},',
            f'  {{name = "PYTHONDONTWRITEBYTECODE", value = "{os.environ.get("PYTHONDONTWRITEBYTECODE", "")}"}},',
            "]",
        )
    )
