"""Patient: the watcher of trials that a benchmark lets run to their end."""

from __future__ import annotations

from autotuner.core.measurement import FinishedRun, LinkEvent, StepReport
from autotuner.core.trial import EngineJob, Stopped


class Patient:
    """Lets every trial run to its end, and listens to nothing."""

    def on_step(self, step: StepReport) -> None:
        """Nothing to do."""

    def on_link_event(self, event: LinkEvent) -> None:
        """Nothing to do."""

    def on_note(self, note: str) -> None:
        """Nothing to do."""

    def on_wait(self, reason: str | None) -> None:
        """Nothing to do."""

    def on_run(self, run: FinishedRun) -> None:
        """Nothing to do."""

    def on_job(self, job: EngineJob) -> None:
        """Nothing to do."""

    def stop_requested(self) -> Stopped | None:
        """Never."""
        return None
