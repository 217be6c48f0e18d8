"""A key of what trials of a sweep are about: sweeps that share it ask about the same job."""

from __future__ import annotations

from typing import Any

from autotuner.core.jobs.cluster import Cluster
from autotuner.core.runs.sweep import SweepRequest
from autotuner.core.wire import content_key, without_defaults

__all__ = ["job_key"]


def job_key(request: SweepRequest) -> str:
    """Content key of what trains, on what, by what; space, budget, trial settings and versions have no part in it.

    Constants of predictions have none either, nor measured peaks: a new profile or a busier hour changes these and not
    the job. The name of a cluster has, since two of one kind are not equally fast. What is as it is by default has
    none, so that a field of a later release leaves the keys of older jobs as they are.
    """
    job, few = request.job, request.trial_cluster
    hardware = [_hardware(job.cluster), None if few is None else _hardware(few)]
    model = {name: value for name, value in without_defaults(job.model).items() if name != "name"}
    about = [model, without_defaults(job.workload), *hardware, without_defaults(request.trainer)]
    return content_key(*about, job.stack.name)


def _hardware(cluster: Cluster) -> dict[str, Any]:
    """What of a cluster stays as it is when it is measured again."""
    return {
        "name": cluster.name,
        "accelerator": cluster.accelerator.name,
        "num_nodes": cluster.num_nodes,
        "accelerators_per_node": cluster.accelerators_per_node,
        "intra_node_link": cluster.intra_node_link.name,
        "inter_node_link": cluster.inter_node_link.name,
        "engine": cluster.engine,
        "queue": cluster.queue,
    }
