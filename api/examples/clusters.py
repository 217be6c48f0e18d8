"""Examples of engines, and of checks of clusters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from api.schemas import CheckPage, CheckView, EngineList, LinkList, LinkStanding
from autotuner.catalog.hardware import load_cluster
from autotuner.core.cluster_check import CheckFindings, CheckRequest, ClusterCheck
from autotuner.core.link import Link, LinkNorm, LinkPoint, link_health_of
from autotuner.core.run import Run, RunState
from autotuner.core.trial import EngineJob, EngineJobPhase
from autotuner.launch.engines.known import EngineStanding

_AT = 1_760_000_000.0


def check_bodies() -> dict[str, Any]:
    """Bodies of ``POST /clusters/{name}/checks``."""
    return {
        "on two nodes": {},
        "as soon as there are nodes": {"max_queued_s": 7200.0},
        "every link between all nodes": {"links": True},
        "the way": {"quick": True},
    }


def engine_list() -> EngineList:
    """A Slurm that answers."""
    slurm = EngineStanding(
        name="h100-slurm",
        kind="slurm",
        answers=True,
        answer="slurm 23.11.4, 2 partitions",
        queues=("gpu", "short"),
        max_parallel_trials=4,
    )
    return EngineList(items=(slurm,))


def cluster_check() -> CheckView:
    """A check whose trial waits."""
    job = EngineJob(
        engine="h100-slurm",
        name="t-ck-7d2mxq4zab-trial-0-0",
        handle="4711",
        submitted_at=_AT + 2,
        phase=EngineJobPhase.QUEUED,
        detail="Resources",
    )
    findings = CheckFindings(engine="slurm 23.11.4, 2 partitions", jobs=(job,))
    findings = findings.said("the engine h100-slurm answers: slurm 23.11.4, 2 partitions", _AT + 1)
    waits = "trial: job 4711 waits for 2 nodes of 8 of h100-slurm, queue gpu: Resources"
    cluster = replace(load_cluster("h100:16x8"), name="ours", engine="h100-slurm", queue="gpu")
    return CheckView.of(
        Run(
            id="ck-7d2mxq4zab",
            kind="check",
            state=RunState.RUNNING,
            subject=cluster.name,
            created_by="",
            created_at=_AT,
            due_at=_AT,
            started_at=_AT + 1,
            request=ClusterCheck(cluster=cluster, request=CheckRequest()),
            progress=findings.said(waits, _AT + 2),
        )
    )


def check_page() -> CheckPage:
    """A page with one check."""
    return CheckPage(items=(cluster_check(),), total=1, limit=50, offset=0)


def link_list() -> LinkList:
    """Links whose network reaches less than its maker states."""
    cluster = load_cluster("h100:16x8")
    network = Link(
        name="profile ours between nodes",
        bandwidth_bytes_per_s=38e9,
        latency_s=11e-6,
        efficiency=1.0,
        source="2 nodes, 2025-10-09",
    )
    inside = LinkStanding(between="ranks of a node", described=cluster.intra_node_link, measured=None)
    between = LinkStanding(between="nodes", described=cluster.inter_node_link, measured=network)
    points = (_pair(0, 1), _pair(0, 2), _pair(1, 2, delay_s=0.03))
    return LinkList(
        items=(inside, between),
        measured_at=_AT,
        num_nodes=2,
        one_by_one=points,
        one_by_one_at=_AT,
        one_by_one_nodes=3,
        norm=LinkNorm.of(points),
        health=link_health_of(points, bandwidth_bytes_per_s=38e9, source="measured 2025-10-09"),
    )


def _pair(low: int, high: int, *, delay_s: float = 11e-6) -> LinkPoint:
    return LinkPoint(ends=(low, high), delay_s=delay_s, jitter_s=1e-6, forth_bytes_per_s=38e9, back_bytes_per_s=37e9)
