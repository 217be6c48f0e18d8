"""The kinds of engine there are: what an operator may set of each, and who makes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from autotuner.launch.engines.emulated.engine import EmulatedEngine, EmulatedSettings
from autotuner.launch.engines.engine import Engine
from autotuner.launch.engines.kubernetes.making import kubernetes_engine
from autotuner.launch.engines.kubernetes.settings import KubernetesSettings
from autotuner.launch.engines.ray.engine import RayEngine
from autotuner.launch.engines.ray.settings import RaySettings
from autotuner.launch.engines.slurm.engine import SlurmEngine
from autotuner.launch.engines.slurm.settings import SlurmSettings


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of engine.

    Attributes:
        settings: Dataclass of what an operator may set beside what every engine has.
        make: The engine of these settings, by the name that it was registered under; imports what it needs itself.
    """

    settings: type[Any]
    make: Callable[[str, Any], Engine]


KINDS: Mapping[str, Kind] = {
    "emulated": Kind(EmulatedSettings, EmulatedEngine),
    "kubernetes": Kind(KubernetesSettings, kubernetes_engine),
    "ray": Kind(RaySettings, RayEngine),
    "slurm": Kind(SlurmSettings, SlurmEngine),
}
