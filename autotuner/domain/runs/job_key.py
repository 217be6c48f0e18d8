"""A key of what trials of a sweep are about: sweeps that share it ask about the same job."""

from __future__ import annotations

from dataclasses import replace

from autotuner.domain.jobs.cluster import Cluster
from autotuner.domain.jobs.job import Job
from autotuner.domain.runs.sweep import SweepRequest
from autotuner.domain.wire import content_key

__all__ = ["as_asked", "job_key"]


def job_key(request: SweepRequest) -> str:
    """Content key of model, cluster, workload, stack and trainer, and of the smaller cluster that trials run on.

    Space, budget and trial settings have no part in it, nor what was measured to answer the request.
    """
    asked = as_asked(request)
    job = asked.job
    return content_key(job.model, job.cluster, job.workload, job.stack, asked.trainer, asked.trial_cluster)


def as_asked(request: SweepRequest) -> SweepRequest:
    """Without the rates that were measured to answer it: asking again measures again, and a little differently."""
    few = request.trial_cluster
    return replace(request, job=_unmeasured_job(request.job), trial_cluster=None if few is None else _unmeasured(few))


def _unmeasured_job(job: Job) -> Job:
    return replace(job, cluster=_unmeasured(job.cluster))


def _unmeasured(cluster: Cluster) -> Cluster:
    accelerator = cluster.accelerator
    if not accelerator.peak_is_measured:
        return cluster
    return replace(cluster, accelerator=replace(accelerator, fp32_flop_per_s=1.0, bf16_flop_per_s=1.0))
