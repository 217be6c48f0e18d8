"""Launcher: runs a trial, and the watcher who ordered it."""

from __future__ import annotations

from typing import Protocol

from autotuner.core.cluster import Cluster
from autotuner.core.measurement import FinishedRun, LinkEvent, Measurement, StepReport
from autotuner.core.trial import EngineJob, Stopped, TrialFailure
from autotuner.core.trial_spec import Trainer, TrialSpec


class TrialWatcher(Protocol):
    """Whoever ordered a trial, while it runs. Called from the thread that called ``Launcher.run``.

    What a watcher raises ends the trial and comes out of ``Launcher.run`` as it is: it says nothing of the trial.
    """

    def on_step(self, step: StepReport) -> None:
        """A step was reported."""
        ...

    def on_link_event(self, event: LinkEvent) -> None:
        """A pipeline found something out about its links or ranks, or does something about it."""
        ...

    def on_note(self, note: str) -> None:
        """Something a person who waits should know, as a sentence."""
        ...

    def on_wait(self, reason: str | None) -> None:
        """The trial has no devices yet, and why, as a sentence without a full stop; None: it goes on with its work.

        A job in the queue of an engine is told by ``on_job`` alone.
        """
        ...

    def on_run(self, run: FinishedRun) -> None:
        """One of the runs that the trial consists of has finished; ``spec.runs`` brings it back after a takeover."""
        ...

    def on_job(self, job: EngineJob) -> None:
        """An engine was given a job for the trial, or the job is seen to stand elsewhere now."""
        ...

    def stop_requested(self) -> Stopped | None:
        """Asked a few times a second; an answer ends the trial."""
        ...


class Launcher(Protocol):
    """Runs one trial to its end.

    Whatever happens, when ``run`` returns or raises no process of the trial is left, but for those that the kernel
    cannot end: they are logged, and named in the failure. A trial past ``spec.settings.timeout_s`` is ended and comes
    back as a timeout failure; waiting for its turn does not count. ``run`` may be called from as many threads at
    once as ``capacity`` says.

    A job that an engine runs elsewhere is left alone where the watcher stops for ``shutdown`` or ``lease_lost``:
    whoever runs the trial next, with the same ``spec.trial_id`` and ``spec.run`` and the ``spec.jobs`` that the watcher
    was told of, finds it again and starts no other.
    """

    def refuses(self, cluster: Cluster, trainer: Trainer | None = None) -> str | None:
        """Why no trial on that cluster can run here, by that trainer, as a sentence; None when it can be tried."""
        ...

    def capacity(self, cluster: Cluster) -> int:
        """How many trials on clusters of that size can run at once without disturbing each other's measurements.

        At least 1, also where ``refuses`` has an answer.
        """
        ...

    def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Measurement | TrialFailure | Stopped:
        """Start the trial, pass its reports on, and say how it ended."""
        ...

    def close(self) -> None:
        """Release what is kept from one trial to the next; the launcher is not used afterwards."""
        ...
