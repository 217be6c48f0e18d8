"""Content keys: which runs may be compared with each other, and which measure the very same thing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotuner.domain.jobs.cluster import Cluster
from autotuner.domain.runs.sweep import SweepRequest
from autotuner.domain.upkeep.mfu_gate import MfuGateRequest
from autotuner.domain.wire import content_key, to_dict

__all__ = ["gate_content", "gate_key"]


def gate_key(request: SweepRequest) -> str:
    """Content key of what trains, on what: runs that share it may be compared, whatever layout and versions they had.

    Constants of predictions are no part of it, nor are measured peaks: a new profile or a busier hour changes these
    and not the job. The name of a cluster is, since two of one kind are not equally fast.
    """
    job, trial = request.job, request.trial
    return content_key(
        _unnamed(job.model),
        job.workload,
        _hardware(job.cluster),
        None if request.trial_cluster is None else _hardware(request.trial_cluster),
        request.trainer,
        job.stack.name,
        trial.proxy_layers_per_stage,
        trial.max_gradient_norm,
    )


def gate_content(request: MfuGateRequest, software: Mapping[str, str]) -> str:
    """Content key of all that a gate measures: gates that share it would measure the same, so the runs of one do.

    Args:
        request: What is gated; against which baseline and how strictly is no part of what is measured.
        software: Versions of what runs, as far as they are known before anything has run.
    """
    sweep = request.sweep
    searched = None if request.layout else [sweep.space, sweep.objective, sweep.budget, sweep.loss_gate, sweep.seed]
    return content_key(gate_key(sweep), request.layout, searched, sweep.trial, request.software, dict(software))


def _unnamed(value: Any) -> dict[str, Any]:
    """Its fields without its name, which is for people."""
    return {key: field for key, field in to_dict(value).items() if key != "name"}


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
