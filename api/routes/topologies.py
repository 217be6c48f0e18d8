"""Networks that clusters name, and what files say of a network or of nodes."""

from __future__ import annotations

from fastapi import APIRouter

from api.dependencies import AppOf
from api.edge.needs import needs
from api.openapi import problems
from api.schemas import NetworkList, TopologyReading, TopologyRequest
from autotuner.catalog.networks import network_presets
from autotuner.core.access import Scope
from autotuner.core.documents import Document

router = APIRouter(tags=["models and clusters"])


@router.get("/catalog/networks", responses=problems())
def list_networks() -> Document[NetworkList]:
    """List the networks that a cluster can name (`network`, or behind an @: `h100:128@fat-tree-2to1`)."""
    return NetworkList(items=network_presets())


@router.post("/topologies", responses=problems(400, 404, 422), openapi_extra=needs(Scope.READ))
def read_topology(app: AppOf, body: Document[TopologyRequest]) -> Document[TopologyReading]:
    """Read what describes a network or a node, and say what it means; nothing is stored.

    `network` and `wiring` of the answer are fields of a cluster; where one was given, `cluster` has both, with links as
    the files say them, and can be sent to `PUT /clusters/{name}`.
    """
    return TopologyReading.of(body.read(app), body.resolved(app))
