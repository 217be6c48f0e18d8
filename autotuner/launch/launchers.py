"""Launchers: chooses the launcher for each trial of a service, reserves its devices and repeats its runs."""

from __future__ import annotations

from collections.abc import Mapping

from autotuner.core.cluster import LOCAL, Cluster
from autotuner.core.measurement import Measurement
from autotuner.core.trial import FailureKind, Stopped, TrialFailure
from autotuner.core.trial_spec import Trainer, TrialSpec
from autotuner.launch.contract import CannotRun, Launcher, TrialWatcher
from autotuner.launch.devices import DevicePool
from autotuner.launch.repeated import run_repeated


class Launchers:
    """The launcher of a service. It passes each trial to the launcher for the engine that the trial's cluster names.

    A trial runs as often as its settings ask for.

    A trial on this machine gets devices that no other trial uses at the same time. It keeps them for all of its runs,
    so that the time limit of a run does not include a wait for devices.

    Args:
        by_engine: Launchers by name of the engine; ``local`` runs trials that name no cluster.
        devices: The devices of this machine; None: trials do not wait for devices, because nothing else uses them.
    """

    def __init__(self, by_engine: Mapping[str, Launcher], devices: DevicePool | None = None) -> None:
        self._by_engine = by_engine
        self._devices = devices

    def refuses(self, cluster: Cluster, trainer: Trainer | None = None) -> str | None:
        """Return the reason why the engine that the cluster names cannot run the trial, or None if it can.

        The reason is a sentence. An unknown name of an engine is also a reason.
        """
        launcher = self._by_engine.get(cluster.engine)
        return self._unknown(cluster.engine) if launcher is None else launcher.refuses(cluster, trainer)

    def capacity(self, cluster: Cluster) -> int:
        """Return how many trials may run at the same time on the cluster's engine.

        On this machine, the number of devices limits the result, too.
        """
        launcher = self._by_engine.get(cluster.engine)
        if launcher is None:
            return 1
        room = launcher.capacity(cluster)
        return min(room, self._devices.capacity(cluster)) if self._devices and cluster.engine == LOCAL else room

    def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Measurement | TrialFailure | Stopped:
        """Run the trial with the launcher of its engine. If it runs on this machine, wait for free devices first."""
        engine = spec.cluster.engine if spec.cluster else LOCAL
        launcher = self._by_engine.get(engine)
        if launcher is None:
            return TrialFailure(kind=FailureKind.CRASH, message=self._unknown(engine))
        if self._devices is None or engine != LOCAL:
            return run_repeated(launcher, spec, watcher)
        try:
            with self._devices.claim(spec, watcher) as devices:
                return devices if isinstance(devices, Stopped) else run_repeated(launcher, spec, watcher)
        except CannotRun as error:
            return Stopped(reason="infrastructure", detail=f"cannot lock this machine's devices: {error}")

    def close(self) -> None:
        """Close the launchers of all engines."""
        for launcher in self._by_engine.values():
            launcher.close()

    def _unknown(self, engine: str) -> str:
        known = ", ".join(self._by_engine)
        return f"the engine {engine} is not registered on the machine that runs trials; registered engines: {known}"
