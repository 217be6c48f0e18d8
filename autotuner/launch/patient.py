"""PatientLauncher: has every trial wait for its turn on this machine."""

from __future__ import annotations

from autotuner.domain.cluster import Cluster
from autotuner.domain.trial import Measurement, Stopped, TrialFailure, TrialSpec
from autotuner.launch.turn import turn
from autotuner.ports import Launcher, TrialWatcher

__all__ = ["PatientLauncher"]


class PatientLauncher:
    """Any launcher on this machine, with one trial at a time among all who are as patient.

    A trial has its turn with all runs that a careful launcher makes of it, and no time limit counts the waiting.
    """

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher

    def refuses(self, cluster: Cluster) -> str | None:
        """What the launcher says."""
        return self._launcher.refuses(cluster)

    def capacity(self, cluster: Cluster) -> int:
        """What the launcher says."""
        return self._launcher.capacity(cluster)

    def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Measurement | TrialFailure | Stopped:
        """Wait, then run the trial; the watcher's answer if it wants a stop meanwhile."""
        with turn(watcher) as stopped:
            return stopped or self._launcher.run(spec, watcher)

    def close(self) -> None:
        """Close the launcher."""
        self._launcher.close()
