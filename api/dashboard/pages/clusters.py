"""The pages of clusters: the list of stored ones, and one cluster with its links and checks."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse

from autotuner.api.dashboard.render import report_page, service_of
from autotuner.api.dependencies import AppOf, CallerOf, Name
from autotuner.core.access import Scope
from autotuner.core.cluster import Cluster
from autotuner.core.cluster_check import CheckRequest, CheckRun, ClusterCheck
from autotuner.core.named import cluster_profile
from autotuner.core.profile import ClusterLinks
from autotuner.report.cluster import cluster_report, clusters_report
from autotuner.store.options import Page

router = APIRouter(include_in_schema=False, default_response_class=Response)

_CHECKS_SHOWN = 10

_Part = Annotated[Literal["live"] | None, Query()]


@router.get("/clusters")
def clusters_page(request: Request, app: AppOf, part: _Part = None) -> Response:
    """Show all stored clusters by name, where their trials run, and how they were last checked."""
    clusters = app.store.descriptions.stored(Cluster)
    last = {one.name: app.store.runs.list(CheckRun, subject=one.name, page=Page(limit=1))[0] for one in clusters.items}
    checks = {name: found[0] for name, found in last.items() if found}
    links = {one.name: ClusterLinks.of(one, cluster_profile(app.names, one.name)) for one in clusters.items}
    return report_page(request, clusters_report(clusters, checks, links, service_of(request)), part=part, every_s=3)


@router.get("/clusters/{name}")
def cluster_page(request: Request, app: AppOf, caller: CallerOf, name: Name, part: _Part = None) -> Response:
    """Show one stored cluster: where its trials run, its links described and measured, and its checks."""
    cluster, used = app.store.descriptions.get(Cluster, name), app.cluster(name)
    checks, _ = app.store.runs.list(CheckRun, subject=name, page=Page(limit=_CHECKS_SHOWN))
    is_open = bool(checks) and not checks[0].state.is_finished
    report = cluster_report(
        cluster,
        used.accelerator,
        ClusterLinks.of(cluster, cluster_profile(app.names, name)),
        checks,
        created_by=app.store.descriptions.owner(Cluster, name),
        server=service_of(request),
        has_buttons=caller.may_change(checks[0].created_by) if is_open else caller.scope.covers(Scope.RUN),
    )
    own = f"/api/v1/clusters/{quote(name)}"
    return report_page(request, report, part=part, every_s=3, parent=("All clusters", "/clusters"), json=own)


@router.post("/clusters/{name}/check")
def check_cluster(request: Request, app: AppOf, caller: CallerOf, name: Name) -> Response:
    """Queue a check of a stored cluster, and redirect to the cluster's page.

    A check asks the engine of the cluster, runs a small trial, and measures devices and links.
    """
    app.start(ClusterCheck(cluster=app.store.descriptions.get(Cluster, name), request=CheckRequest()), caller=caller)
    return _back(request, name)


@router.post("/clusters/{name}/cancel")
def cancel_check(request: Request, app: AppOf, caller: CallerOf, name: Name) -> Response:
    """Cancel the newest check of a cluster, and redirect to the cluster's page. A finished check stays as it is."""
    newest, _ = app.store.runs.list(CheckRun, subject=name, page=Page(limit=1))
    for check in newest:
        app.stop(check.id, caller=caller)
    return _back(request, name)


def _back(request: Request, name: str) -> Response:
    return RedirectResponse(f"{request.scope.get('root_path', '')}/clusters/{quote(name)}", 303)
