"""Models and clusters that callers store under a name of their own."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Body
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Discriminator, Tag, TypeAdapter, ValidationError

from api.dependencies import AppOf, CallerOf, Name
from api.openapi import problems
from api.schemas import AS_CLUSTERS_ARE_WRITTEN, ClusterList, ModelList, as_described
from autotuner.catalog.huggingface import from_config
from autotuner.catalog.named import BASE, whole_model
from autotuner.core.cluster import Cluster
from autotuner.core.documents import CONFIG, OBJECT, Described, Document
from autotuner.core.errors import InvalidInput
from autotuner.core.model import TransformerSpec

router = APIRouter(tags=["models and clusters"])


class HuggingFaceConfig(BaseModel, extra="allow"):
    """The `config.json` that a model is published with."""

    model_type: str


def _kind(document: object) -> str:
    return CONFIG if isinstance(document, dict) and "model_type" in document else OBJECT


_Model = Annotated[Document[TransformerSpec], Described(whole_model, BASE)]
_Cluster = Annotated[Document[Cluster], AS_CLUSTERS_ARE_WRITTEN]

_ModelBody = Annotated[Annotated[_Model, Tag(OBJECT)] | Annotated[HuggingFaceConfig, Tag(CONFIG)], Discriminator(_kind)]

_MODEL: TypeAdapter[TransformerSpec] = TypeAdapter(Document[TransformerSpec])


@router.get("/models", responses=problems())
def list_models(app: AppOf) -> Document[ModelList]:
    """List the stored models by name; the built-in ones are in the catalog."""
    return ModelList(items=tuple(app.store.list_models()), created_by=dict(app.store.model_owners()))


@router.get("/models/{name}", responses=problems(404, 422))
def read_model(app: AppOf, name: Name) -> Document[TransformerSpec]:
    """Read a model by name: a stored one, else one of the catalog."""
    return app.model(name)


@router.put("/models/{name}", responses=problems(400, 404, 409, 422))
def save_model(
    app: AppOf, caller: CallerOf, name: Name, body: Annotated[_ModelBody, Body(title="Model")]
) -> Document[TransformerSpec]:
    """Store a model: our own fields, a `base` of the catalog with changes, or a Hugging Face `config.json` as it is.

    Sending an equal model again changes nothing; another model under a stored name is refused with 409, because
    sweeps refer to it, and so is a name of the catalog, which means the same to everybody.
    """
    model = body if isinstance(body, TransformerSpec) else _published(body, name)
    _check_name(model.name, name)
    app.descriptions.add_model(model, caller)
    return model


@router.delete("/models/{name}", responses=problems(404, 422))
def remove_model(app: AppOf, caller: CallerOf, name: Name) -> Document[TransformerSpec]:
    """Forget a stored model, which only who stored it and an admin may; sweeps keep the model that they were given.

    The answer is the model as it was stored.
    """
    return app.descriptions.remove_model(name, caller)


@router.get("/clusters", responses=problems())
def list_clusters(app: AppOf) -> Document[ClusterList]:
    """List the stored clusters by name."""
    return ClusterList(items=tuple(app.store.list_clusters()), created_by=dict(app.store.cluster_owners()))


@router.get("/clusters/{name}", responses=problems(404, 422))
def read_cluster(app: AppOf, name: Name) -> Document[Cluster]:
    """Read a cluster: a stored name, `local`, or an accelerator of the catalog with a count (`h100:64`).

    Its constants are those that predictions use: of a stored cluster that was checked, what the check measured.
    """
    return app.cluster(name)


@router.put("/clusters/{name}", responses=problems(400, 404, 409, 422))
def save_cluster(app: AppOf, caller: CallerOf, name: Name, body: _Cluster) -> Document[Cluster]:
    """Store a cluster, whose accelerator and links may be names of the catalog; what holds for models holds here.

    `engine` and `queue` say where its trials run; where this service knows the engines, it refuses others.
    """
    _check_name(body.name, name)
    cluster = as_described(body)
    app.save_cluster(cluster, caller)
    return cluster


@router.delete("/clusters/{name}", responses=problems(404, 409, 422))
def remove_cluster(app: AppOf, caller: CallerOf, name: Name) -> Document[Cluster]:
    """Forget a stored cluster, its checks and what they measured, which only who stored it and an admin may.

    The answer is the cluster as it was stored; sweeps keep the cluster that they were given. While a check of it is not
    finished, 409.
    """
    return app.descriptions.remove_cluster(name, caller)


def _published(config: HuggingFaceConfig, name: str) -> TransformerSpec:
    """The model of a ``config.json``, held to the bounds of our own fields."""
    model = from_config(config.model_dump(), name)
    try:
        return _MODEL.validate_python(asdict(model))
    except ValidationError as error:
        raise RequestValidationError([{**item, "loc": ("body", *item["loc"])} for item in error.errors()]) from error


def _check_name(in_body: str, in_path: str) -> None:
    if in_body != in_path:
        raise InvalidInput("name", in_body, "must be the name in the path", in_path)
