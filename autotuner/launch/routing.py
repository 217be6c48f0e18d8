"""RoutedLauncher: hands each trial to the launcher of the engine that its cluster names."""

from __future__ import annotations

from collections.abc import Mapping

from autotuner.core.cluster import LOCAL, Cluster
from autotuner.core.measurement import Measurement
from autotuner.core.trial import FailureKind, Stopped, TrialFailure
from autotuner.core.trial_spec import Trainer, TrialSpec
from autotuner.launch.contract import Launcher, TrialWatcher


class RoutedLauncher:
    """Several launchers as one.

    Args:
        launchers: By the name of the engine that clusters give; ``local`` runs what names no cluster.
    """

    def __init__(self, launchers: Mapping[str, Launcher]) -> None:
        self._launchers = launchers

    def refuses(self, cluster: Cluster, trainer: Trainer | None = None) -> str | None:
        """What the engine's launcher says, or that there is none of that name."""
        launcher = self._launchers.get(cluster.engine)
        return self._unknown(cluster.engine) if launcher is None else launcher.refuses(cluster, trainer)

    def capacity(self, cluster: Cluster) -> int:
        """What the engine's launcher says."""
        launcher = self._launchers.get(cluster.engine)
        return 1 if launcher is None else launcher.capacity(cluster)

    def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Measurement | TrialFailure | Stopped:
        """Have the engine's launcher run it."""
        engine = spec.cluster.engine if spec.cluster else LOCAL
        launcher = self._launchers.get(engine)
        if launcher is None:
            return TrialFailure(kind=FailureKind.CRASH, message=self._unknown(engine))
        return launcher.run(spec, watcher)

    def close(self) -> None:
        """Close all of them."""
        for launcher in self._launchers.values():
            launcher.close()

    def _unknown(self, engine: str) -> str:
        known = ", ".join(self._launchers)
        return f"no engine {engine} is registered where trials run (there are: {known})"
