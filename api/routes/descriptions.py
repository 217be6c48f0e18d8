"""Models and clusters that callers store under a name of their own."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body
from pydantic import BaseModel

from api import examples
from api.body import CodecBody, DocumentBody
from api.dataclass_schema import schema_of
from api.dependencies import AppOf, Name
from api.openapi import answers
from api.requests import as_described
from api.schemas import ClusterList, ModelList
from autotuner.catalog.huggingface import from_config
from autotuner.domain.cluster import Cluster
from autotuner.domain.model import TransformerSpec
from autotuner.domain.wire import from_dict, to_dict
from autotuner.errors import InvalidInput

__all__ = ["router"]


class HuggingFaceConfig(BaseModel, extra="allow"):
    """The `config.json` that a model is published with."""

    model_type: str


_ModelBody = Annotated[
    dict[str, Any],
    DocumentBody(schema_of(TransformerSpec), HuggingFaceConfig),
    Body(title="Model", openapi_examples=examples.model_bodies()),
]
_ClusterBody = Annotated[Cluster, CodecBody(Cluster), Body(openapi_examples=examples.cluster_bodies())]

router = APIRouter(tags=["models and clusters"])


@router.get("/models", response_model=schema_of(ModelList), responses=answers(examples.model_list()))
def list_models(app: AppOf) -> Any:
    """List the stored models by name; the built-in ones are in the catalog."""
    return to_dict(ModelList(items=tuple(app.store.list_models())))


@router.get("/models/{name}", response_model=schema_of(TransformerSpec), responses=answers(examples.model(), 404, 422))
def read_model(app: AppOf, name: Name) -> Any:
    """Read a model by name: a stored one, else one of the catalog."""
    return to_dict(app.model(name))


@router.put(
    "/models/{name}",
    response_model=schema_of(TransformerSpec),
    responses=answers(examples.model(), 400, 409, 422),
)
def save_model(app: AppOf, name: Name, body: _ModelBody) -> Any:
    """Store a model: our own fields, or a Hugging Face `config.json` as it is (told by its `model_type`).

    Sending an equal model again changes nothing; another model under a stored name is refused with 409, because
    sweeps refer to it.
    """
    model = from_config(body, name) if "model_type" in body else from_dict(TransformerSpec, body)
    _check_name(model.name, name)
    app.store.save_model(model)
    return to_dict(model)


@router.get("/clusters", response_model=schema_of(ClusterList), responses=answers(examples.cluster_list()))
def list_clusters(app: AppOf) -> Any:
    """List the stored clusters by name."""
    return to_dict(ClusterList(items=tuple(app.store.list_clusters())))


@router.get("/clusters/{name}", response_model=schema_of(Cluster), responses=answers(examples.cluster(), 404, 422))
def read_cluster(app: AppOf, name: Name) -> Any:
    """Read a cluster: a stored name, `local`, or an accelerator of the catalog with a count (`h100:64`)."""
    return to_dict(app.cluster(name))


@router.put(
    "/clusters/{name}",
    response_model=schema_of(Cluster),
    responses=answers(examples.cluster(), 400, 409, 422),
)
def save_cluster(app: AppOf, name: Name, body: _ClusterBody) -> Any:
    """Store a cluster; what holds for models holds here."""
    _check_name(body.name, name)
    cluster = as_described(body)
    app.store.save_cluster(cluster)
    return to_dict(cluster)


def _check_name(in_body: str, in_path: str) -> None:
    if in_body != in_path:
        raise InvalidInput("name", in_body, "must be the name in the path", in_path)
