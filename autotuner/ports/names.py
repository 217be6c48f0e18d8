"""Names: models, clusters and profiles that are stored under names."""

from __future__ import annotations

from typing import Protocol

from autotuner.core.cluster import Cluster
from autotuner.core.model import TransformerSpec
from autotuner.core.profile import DeviceProfile


class Names(Protocol):
    """What is stored under names; all that a prediction asks for. What is not stored raises ``NotFound``."""

    def get_model(self, name: str) -> TransformerSpec:
        """The model saved under that name."""
        ...

    def get_cluster(self, name: str) -> Cluster:
        """The cluster saved under that name."""
        ...

    def get_profile(self, name: str) -> DeviceProfile:
        """The profile saved last under that name."""
        ...
