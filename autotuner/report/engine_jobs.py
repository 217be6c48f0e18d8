"""Jobs of engines in words: the engine of a trial, the state of its job, and the reason why it waits."""

from __future__ import annotations

from collections.abc import Sequence

from autotuner.core.cluster import LOCAL, SIMULATED
from autotuner.core.trial import EngineJob, EngineJobPhase, Waiting
from autotuner.core.units import format_duration

_LEAST_S = 1.0
"""Shortest duration in seconds that is mentioned."""


def engine_job_in_words(job: EngineJob, now: float) -> str:
    """Describe a trial's job on its engine and the job's state: ``slurm job 4711 waits: Resources, 35 s``.

    Args:
        job: The job.
        now: Present time in epoch seconds.
    """
    waited, ran = _if_any(job.queued_s(now)), format_duration(job.running_s(now))
    because = f": {job.detail}" if job.detail else ""
    before = f", after {waited} in the queue" if waited else ""
    match job.phase:
        case EngineJobPhase.QUEUED:
            stands = f"waits{because}" + (f", {waited}" if waited else "")
        case EngineJobPhase.RUNNING:
            stands = "runs" + (f", {ran}" if _if_any(job.running_s(now)) else "") + before
        case EngineJobPhase.ENDED if job.started_at is None:
            stands = f"ended before it ran{because}{before}"
        case EngineJobPhase.ENDED:
            stands = f"ran {ran}{before}{because}"
        case EngineJobPhase.LOST if job.started_at is None:
            stands = f"never ran{because}{before}"
        case EngineJobPhase.LOST:
            stands = f"was lost{because}, {ran} after it began"
    return f"{job.engine} job {job.handle} {stands}"


def waiting_in_words(waiting: Waiting, jobs: Sequence[EngineJob], now: float) -> str:
    """Describe why a trial has no devices yet, and for how long: ``waits for slurm, which does not answer, 35 s``.

    Args:
        waiting: Reason of the wait, and its beginning.
        jobs: Jobs of the trial. If the newest one is queued, its state is described instead.
        now: Present time in epoch seconds.
    """
    job = latest(jobs)
    if job is not None and job.phase is EngineJobPhase.QUEUED:
        return engine_job_in_words(job, now)
    waited = _if_any(now - waiting.since)
    return waiting.reason + (f", {waited}" if waited else "")


def _if_any(seconds: float) -> str:
    """Return the time in words; empty if it is too short to matter."""
    return format_duration(seconds) if seconds >= _LEAST_S else ""


def latest(jobs: Sequence[EngineJob]) -> EngineJob | None:
    """Return the job to show for a running trial: the newest job that has not ended, or else the last job.

    Return None if there are no jobs.
    """
    for job in reversed(jobs):
        if not job.phase.is_over:
            return job
    return jobs[-1] if jobs else None


def engine_in_words(engine: str, queue: str) -> str:
    """Describe the engine of a cluster's trials: ``by slurm, queue batch``; empty for the service's own machine."""
    if engine == LOCAL:
        return ""
    who = SIMULATED if engine == SIMULATED else f"by {engine}"
    return who + (f", queue {queue}" if queue else "")
