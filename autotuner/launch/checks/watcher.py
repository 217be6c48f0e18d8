"""Watches one job of a check: says how it stands, and has it end when it waits for too long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from threading import Event as Flag

from autotuner.core.measurement import StepReport
from autotuner.core.profile import CollectivePoint
from autotuner.core.trial import EngineJob, EngineJobPhase, Stopped
from autotuner.launch.checks.hold import Hold
from autotuner.launch.checks.sentences import collective_said, job_said, queue_said


class CheckWatcher:
    """A ``TrialWatcher`` of a check.

    Args:
        hold: Gets what is worth a line.
        what: The job, as sentences name it.
        shutdown: Set when the worker is told to stop: the job is left alone.
        collectives: What the job has timed by now.
    """

    def __init__(
        self, hold: Hold, what: str, shutdown: Flag, collectives: Callable[[], Sequence[CollectivePoint]] = tuple
    ) -> None:
        self._hold = hold
        self._what = what
        self._shutdown = shutdown
        self._collectives = collectives
        self._job: EngineJob | None = None
        self._num_groups_told = 0
        self._has_met = False
        self._is_stopped = False

    def on_step(self, step: StepReport) -> None:
        """The first says that all ranks have met."""
        del step
        if not self._has_met:
            self._has_met = True
            self._hold.say(f"{self._what}: all ranks have met, and the first step is done")

    def on_link_event(self, event: object) -> None:
        """None of a check's jobs has pipelines."""

    def on_note(self, note: str) -> None:
        """What the launcher wants told."""
        self._hold.say(f"{self._what}: {note}")

    def on_wait(self, reason: str | None) -> None:
        """Say what its jobs wait for."""
        if reason is not None:
            self.on_note(reason)

    def on_run(self, run: object) -> None:
        """Each job of a check is one run."""

    def on_job(self, job: EngineJob) -> None:
        """Store it, and say what changed."""
        known = next((one for one in self._hold.check.findings.jobs if one.name == job.name), None)
        self._job = job
        self._hold.placed(job)
        is_news = known is None or (known.phase, known.detail) != (job.phase, job.detail)
        if is_news and not self._is_stopped:  # of a job that is ended from here the check's last line tells
            self._hold.say(job_said(self._what, job, self._hold.check.nodes))

    def stop_requested(self) -> Stopped | None:
        """What users, the worker, the store or a full queue want."""
        self._hold.refresh()
        self.tell_collectives()
        stopped = self._reason_to_stop()
        self._is_stopped = stopped is not None
        return stopped

    def _reason_to_stop(self) -> Stopped | None:
        if self._hold.is_lost:
            return Stopped(reason="lease_lost")
        if self._shutdown.is_set():
            return Stopped(reason="shutdown")
        if self._hold.check.cancel_requested:
            return Stopped(reason="cancelled")
        return self._waited_too_long()

    def tell_collectives(self, *, are_complete: bool = False) -> None:
        """A line for each group of ranks, once all of its collectives are timed."""
        groups = [list(group) for _, group in groupby(self._collectives(), lambda p: (p.num_nodes, p.num_ranks))]
        told = groups if are_complete else groups[:-1]
        for group in told[self._num_groups_told :]:
            longest = max((p for p in group if p.kind == "all_reduce"), key=lambda p: p.num_bytes)
            self._hold.say(collective_said(longest))
        self._num_groups_told = len(told)

    def _waited_too_long(self) -> Stopped | None:
        job, longest_s = self._job, self._hold.check.request.max_queued_s
        if job is None or job.phase is not EngineJobPhase.QUEUED or job.queued_s(self._hold.now()) < longest_s:
            return None
        return Stopped(reason="budget", detail=queue_said(job, longest_s))
