"""Engines, and checks of stored clusters: whether the engine answers, whether a trial runs, how fast the links are."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from autotuner.api.dependencies import AppOf, CallerOf, Name
from autotuner.api.openapi import problems
from autotuner.api.routes.runs import new_run
from autotuner.core.cluster import Cluster
from autotuner.core.cluster_check import CheckRequest, CheckRun, ClusterCheck
from autotuner.core.documents import Document
from autotuner.core.health import EngineStanding
from autotuner.core.listed import Listed
from autotuner.core.named import cluster_profile
from autotuner.core.profile import ClusterLinks

router = APIRouter(tags=["models and clusters"])


@router.get("/engines", responses=problems())
def list_engines(app: AppOf) -> Document[Listed[EngineStanding]]:
    """List the engines that clusters can name in `engine`, with their queues. An engine, such as Slurm, runs trials.

    The service asks each engine whether it answers and has its queues. The connection settings of an engine are only
    visible to its operator.
    """
    return Listed.whole(app.engine_standings())


@router.post("/clusters/{name}/checks", status_code=201, responses=problems(400, 404, 409, 422))
def create_check(
    request: Request, response: Response, app: AppOf, caller: CallerOf, name: Name, body: Document[CheckRequest]
) -> Document[CheckRun]:
    """Queue a check of a stored cluster: it asks the engine, runs a small trial, and measures devices and links.

    A worker carries out the check even if the caller disconnects. Predictions for this cluster then use the measured
    values. While a check of the cluster is unfinished, a second check is refused with 409. A cluster without an engine
    is this machine; its check is refused with 422.
    """
    asked = ClusterCheck(cluster=app.store.descriptions.get(Cluster, name), request=body)
    return new_run(CheckRun, request, response, app.start(asked, caller=caller))


@router.get("/clusters/{name}/links", responses=problems(404, 422))
def list_links(app: AppOf, name: Name) -> Document[ClusterLinks]:
    """List the links of a stored cluster, with their described values and the values that the newest check measured."""
    return ClusterLinks.of(app.store.descriptions.get(Cluster, name), cluster_profile(app.names, name))
