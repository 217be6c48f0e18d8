"""The pages of clusters: all that are stored, and one with its links and its checks."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from api.dashboard.render import page
from api.dashboard.views.clusters import TopologyShown, link_matrix
from api.dependencies import AppOf, Name
from api.schemas.clusters import CheckPage, CheckView, LinkList
from autotuner.core.cluster import LOCAL, SIMULATED
from autotuner.store.options import Page

router = APIRouter(include_in_schema=False, default_response_class=Response)

_CHECKS_SHOWN = 10

_Part = Annotated[Literal["live"] | None, Query()]


@router.get("/clusters")
def clusters_page(request: Request, app: AppOf, part: _Part = None) -> Response:
    """All stored clusters by name, where their trials run, and how they were last checked."""
    clusters = app.store.list_clusters()
    last = {one.name: app.store.runs.list("check", subject=one.name, page=Page(limit=1))[0] for one in clusters}
    return page(
        request,
        "_clusters.html" if part else "clusters.html",
        clusters=clusters,
        owners=app.store.cluster_owners(),
        checks={name: CheckView.of(found[0]) for name, found in last.items() if found},
        profiled={one.name for one in clusters if app.cluster_profile(one.name)},
        ailing={one.name: len(LinkList.of(app, one.name).health) for one in clusters},
        service=str(request.base_url).rstrip("/"),
    )


@router.get("/clusters/{name}")
def cluster_page(request: Request, app: AppOf, name: Name, part: _Part = None) -> Response:
    """One stored cluster: where its trials run, its links described and measured, and its checks."""
    cluster, used, links = app.store.get_cluster(name), app.cluster(name), LinkList.of(app, name)
    return page(
        request,
        "_cluster.html" if part else "cluster.html",
        cluster=cluster,
        created_by=app.store.cluster_owners().get(name, ""),
        used=used.accelerator,
        links=links,
        matrix=link_matrix(used, links),
        topology=TopologyShown.of(cluster),
        checks=CheckPage.of(app, name, Page(limit=_CHECKS_SHOWN)).items,
        can_be_checked=cluster.engine not in (LOCAL, SIMULATED),
        service=str(request.base_url).rstrip("/"),
    )
