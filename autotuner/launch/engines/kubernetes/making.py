"""Makes the engine, whose client takes half a second to import: only who has such an engine needs it."""

from __future__ import annotations

from autotuner.launch.engines.engine import Engine
from autotuner.launch.engines.kubernetes.settings import KubernetesSettings


def kubernetes_engine(name: str, settings: KubernetesSettings) -> Engine:
    """The engine of that name.

    Raises:
        InvalidInput: A table is not in Kubernetes' words, or the kubeconfig says nowhere where the cluster is.
    """
    from autotuner.launch.engines.kubernetes.engine import KubernetesEngine  # noqa: PLC0415

    return KubernetesEngine(name, settings)
