"""The catalog behind predictions, and models, clusters and measurements that users add to it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Discriminator, Tag, TypeAdapter, ValidationError

from autotuner.api.dependencies import AppOf, CallerOf, Name
from autotuner.api.edge.auth import needs
from autotuner.api.openapi import problems
from autotuner.catalog.hardware import SourcedAccelerator, sourced_accelerator
from autotuner.catalog.huggingface import from_config
from autotuner.catalog.named import AS_CLUSTERS_ARE_WRITTEN, BASE, whole_model
from autotuner.catalog.networks import NetworkPreset, network_presets
from autotuner.catalog.software import StackProfile
from autotuner.catalog.topology.read import read_topology as read_file
from autotuner.catalog.topology.reading import TopologyReading, TopologyRequest
from autotuner.core.accelerator import Accelerator
from autotuner.core.access import Scope
from autotuner.core.cluster import Cluster
from autotuner.core.documents import CONFIG, OBJECT, Described, Document
from autotuner.core.errors import InvalidInput
from autotuner.core.listed import Listed, Stored
from autotuner.core.model import TransformerSpec
from autotuner.core.named import resolved
from autotuner.core.stack import Stack
from autotuner.core.trial_spec import TrainerOffer
from autotuner.door import as_described
from autotuner.search.sampler.learnt_factors import LearntCalibration
from autotuner.search.support import Support

# The built-in tables of accelerators, models and training software.

catalog_router = APIRouter(prefix="/catalog", tags=["catalog"])


@catalog_router.get("/accelerators", responses=problems())
def list_accelerators(app: AppOf) -> Document[Listed[Accelerator]]:
    """List the accelerators of the catalog. A cluster can name them with a count (`h100-sxm:64`)."""
    return app.list_accelerators()


@catalog_router.get("/accelerators/{name}", responses=problems(404, 422))
def read_accelerator(name: Name) -> Document[SourcedAccelerator]:
    """Read an accelerator by name or alias, with the source and the date of every value."""
    return sourced_accelerator(name)


@catalog_router.get("/models", responses=problems())
def list_catalog_models(app: AppOf) -> Document[Listed[TransformerSpec]]:
    """List the models of the catalog, which requests can use by name."""
    return app.list_catalog_models()


@catalog_router.get("/stacks", responses=problems())
def list_stacks(app: AppOf) -> Document[Listed[Stack]]:
    """List the training software (stacks) for which layouts can be predicted (`stack` of a prediction)."""
    return app.list_stacks()


# Training software that predictions know, and the runs behind it.

stacks_router = APIRouter(prefix="/stacks", tags=["catalog"])


@stacks_router.get("", responses=problems())
def list_stack_profiles(app: AppOf) -> Document[Listed[StackProfile]]:
    """List the training software with its framework and versions, and the measured runs to which it was fitted.

    The route `/catalog/stacks` has the constants of each stack.
    """
    return app.list_stack_profiles()


# What is measured, borrowed and assumed in predictions.

support_router = APIRouter(prefix="/support", tags=["catalog"])


def _name_query(description: str, example: str) -> Any:
    return Query(min_length=1, max_length=128, description=description, examples=[example])


SupportModel = Annotated[
    str | None, _name_query("Only runs of this kind of model: a stored model, or one of the catalog.", "llama-3-8b")
]
SupportAccelerator = Annotated[
    str | None, _name_query("Only this accelerator of the catalog, by name or alias.", "h100")
]
SupportStack = Annotated[str | None, _name_query("Only this training software of the catalog.", "nemo")]


@support_router.get("", responses=problems(404, 422))
def read_support(
    app: AppOf,
    model: SupportModel = None,
    accelerator: SupportAccelerator = None,
    stack: SupportStack = None,
) -> Document[Support]:
    """Show what is measured, borrowed and assumed in predictions, by accelerator and training software.

    `pairs` has the published runs of each pair that predictions were compared with, with their tables and the median
    error of the step time. With `accelerator` and `stack`, `details` has the constants that were measured on other
    hardware, and the choices of layouts that were compared with no run.
    """
    return app.read_support(model=model, accelerator=accelerator, stack=stack)


# Models and clusters that callers store under a name of their own.

descriptions_router = APIRouter(tags=["models and clusters"])


class HuggingFaceConfig(BaseModel, extra="allow"):
    """The `config.json` of a model that is published on Hugging Face."""

    model_type: str


def _kind(document: object) -> str:
    return CONFIG if isinstance(document, dict) and "model_type" in document else OBJECT


_Model = Annotated[Document[TransformerSpec], Described(whole_model, BASE)]
_Cluster = Annotated[Document[Cluster], AS_CLUSTERS_ARE_WRITTEN]

_ModelBody = Annotated[Annotated[_Model, Tag(OBJECT)] | Annotated[HuggingFaceConfig, Tag(CONFIG)], Discriminator(_kind)]

_MODEL: TypeAdapter[TransformerSpec] = TypeAdapter(Document[TransformerSpec])


@descriptions_router.get("/models", responses=problems())
def list_models(app: AppOf) -> Document[Stored[TransformerSpec]]:
    """List the models that callers have stored, by name; `/catalog/models` lists the models of the catalog."""
    return app.store.descriptions.stored(TransformerSpec)


@descriptions_router.get("/models/{name}", responses=problems(404, 422))
def read_model(app: AppOf, name: Name) -> Document[TransformerSpec]:
    """Read the stored model of that name; if none is stored, read the model of that name in the catalog."""
    return app.model(name)


@descriptions_router.put("/models/{name}", responses=problems(400, 404, 409, 422))
def save_model(
    app: AppOf, caller: CallerOf, name: Name, body: Annotated[_ModelBody, Body(title="Model")]
) -> Document[TransformerSpec]:
    """Store a model: its fields, a `base` from the catalog with changes, or a Hugging Face `config.json`.

    A request to store an equal model again changes nothing. A different model under a stored name is refused with 409,
    because sweeps refer to the stored model. A name of the catalog is refused with 409, too, because it must mean the
    same model for everybody.
    """
    model = body if isinstance(body, TransformerSpec) else _published(body, name)
    _check_name(model.name, name)
    app.save(model, caller)
    return model


@descriptions_router.delete("/models/{name}", responses=problems(404, 422))
def remove_model(app: AppOf, caller: CallerOf, name: Name) -> Document[TransformerSpec]:
    """Remove a stored model. Only the caller who stored it and admins may do this.

    Sweeps keep their own copy of the model. The answer is the removed model.
    """
    return app.remove(TransformerSpec, name, caller)


@descriptions_router.get("/clusters", responses=problems())
def list_clusters(app: AppOf) -> Document[Stored[Cluster]]:
    """List the clusters that callers have stored, by name."""
    return app.store.descriptions.stored(Cluster)


@descriptions_router.get("/clusters/{name}", responses=problems(404, 422))
def read_cluster(app: AppOf, name: Name) -> Document[Cluster]:
    """Read a cluster: a stored cluster, `local`, or an accelerator of the catalog with a count (`h100:64`).

    The answer has the constants that predictions use. For a stored cluster that was checked, these are the measured
    constants.
    """
    return app.cluster(name)


@descriptions_router.put("/clusters/{name}", responses=problems(400, 404, 409, 422))
def save_cluster(app: AppOf, caller: CallerOf, name: Name, body: _Cluster) -> Document[Cluster]:
    """Store a cluster. Its accelerator and its links may be names of the catalog.

    `engine` and `queue` say where trials of the cluster run. A service with registered engines refuses unknown ones. A
    name that is stored already or that the catalog has is refused with 409, as for models.
    """
    _check_name(body.name, name)
    return app.save(as_described(body), caller)


@descriptions_router.delete("/clusters/{name}", responses=problems(404, 409, 422))
def remove_cluster(app: AppOf, caller: CallerOf, name: Name) -> Document[Cluster]:
    """Remove a stored cluster with its checks and measurements. Only its creator and admins may do this.

    Sweeps keep their own copy of the cluster. The answer is the removed cluster. While a check of the cluster is
    unfinished, the request is refused with 409.
    """
    return app.remove(Cluster, name, caller)


def _published(config: HuggingFaceConfig, name: str) -> TransformerSpec:
    """Return the model of a ``config.json``, checked against the limits of our own fields."""
    model = from_config(config.model_dump(), name)
    try:
        return _MODEL.validate_python(asdict(model))
    except ValidationError as error:
        raise RequestValidationError([{**item, "loc": ("body", *item["loc"])} for item in error.errors()]) from error


def _check_name(in_body: str, in_path: str) -> None:
    if in_body != in_path:
        raise InvalidInput("name", in_body, "must be the same as the name in the path", in_path)


# Networks that clusters name, and what files say of a network or of nodes.

topologies_router = APIRouter(tags=["models and clusters"])


@topologies_router.get("/catalog/networks", responses=problems())
def list_networks() -> Document[Listed[NetworkPreset]]:
    """List the networks that a cluster can have, as its field `network` or after an @ (`h100:128@fat-tree-2to1`)."""
    return Listed.whole(network_presets())


@topologies_router.post("/topologies", responses=problems(400, 404, 422), openapi_extra=needs(Scope.READ))
def read_topology(app: AppOf, body: Document[TopologyRequest]) -> Document[TopologyReading]:
    """Read files that describe a network or a node, and explain their content. Nothing is stored.

    `network` and `wiring` of the answer are fields of a cluster. If the request has a cluster, `cluster` of the answer
    is this cluster with both fields and with the links of the files. `PUT /clusters/{name}` accepts it.
    """
    files = [app.compute.ask(read_file, file) for file in body.files]  # a long file takes seconds
    given = app.resolve(body).cluster
    return TopologyReading.of(files, None if given is None else resolved(given))


# Calibrations of hardware and software by stored trials.

calibrations_router = APIRouter(prefix="/calibrations", tags=["predictions"])

_CalibrationsCluster = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=128,
        description="Return only the corrections that were learnt on the accelerators of this cluster. The cluster is "
        "stored or in the catalog.",
        examples=["h100:64"],
    ),
]


@calibrations_router.get("", responses=problems(404, 422))
def list_calibrations(app: AppOf, cluster: _CalibrationsCluster = None) -> Document[Listed[LearntCalibration]]:
    """List the calibrations: what stored trials show about each platform (accelerator, links and software).

    A calibration has factors by which predictions multiply step times. Predictions and sweeps use calibrations unless
    `uses_history` is false. The intervals of predictions become narrower with more trials. Predictions for a platform
    also use the calibrations of other platforms, with less weight the more the platforms differ.
    """
    accelerator = None if cluster is None else app.cluster(cluster).accelerator.name
    return Listed.whole(app.calibration_cache.calibrations(accelerator))


# Trainers that an operator registered to run as a trial.

trainers_router = APIRouter(prefix="/trainers", tags=["trainers"])


@trainers_router.get("", responses=problems())
def list_trainers(app: AppOf) -> Document[Listed[TrainerOffer]]:
    """List the registered trainers, with the options that a sweep may search. A sweep names a trainer with `trainer`.

    Commands, folders and variables are only visible to the operator who registered the trainers.
    """
    return Listed.whole(app.trainer_offers())
