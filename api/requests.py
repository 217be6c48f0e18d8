"""From what a caller sends to what the domain takes: names resolved, defaults filled in."""

from __future__ import annotations

from dataclasses import replace

from api.schemas import ExplanationRequest, PredictionRequest, SweepCreate
from autotuner.bootstrap import App
from autotuner.catalog.load import load_stack
from autotuner.domain.cluster import Cluster
from autotuner.domain.defaults import default_space
from autotuner.domain.legality import Job
from autotuner.domain.model import TransformerSpec
from autotuner.domain.search_space import SearchSpace
from autotuner.domain.stack import Stack
from autotuner.domain.sweep import SweepRequest
from autotuner.domain.wire import from_dict, to_dict
from autotuner.errors import InvalidInput

__all__ = ["as_described", "job_of", "space_of", "sweep_request"]

MAX_WORLD_SIZE = 2**20
"""Several times the largest cluster there is; a caller's slip must not keep the service counting its layouts."""


def job_of(app: App, body: SweepCreate | PredictionRequest | ExplanationRequest) -> Job:
    """Model, cluster, workload and software of the body; trials of a sweep run PyTorch itself.

    Raises:
        InvalidInput: A description breaks a rule.
        NotFound: A name is neither stored nor in the catalog.
    """
    stack = Stack() if isinstance(body, SweepCreate) else load_stack(body.stack)
    job = Job(model=_model(app, body.model), cluster=_cluster(app, body.cluster), workload=body.workload, stack=stack)
    if job.cluster.world_size > MAX_WORLD_SIZE:
        raise InvalidInput("cluster", job.cluster.name, f"must have at most {MAX_WORLD_SIZE} accelerators")
    return job


def space_of(given: dict[str, object], cluster: Cluster) -> SearchSpace:
    """The axes the caller chose, the others as the cluster's default has them.

    Raises:
        InvalidInput: An axis or one of its values does not exist.
    """
    return from_dict(SearchSpace, to_dict(default_space(cluster)) | given, "space")


def sweep_request(app: App, body: SweepCreate) -> SweepRequest:
    """The sweep that the body asks for."""
    job = job_of(app, body)
    return SweepRequest(
        job=job,
        space=space_of(body.space, job.cluster),
        budget=body.budget,
        trial=body.trial,
        seed=body.seed,
        name=body.name,
    )


def _model(app: App, reference: object) -> TransformerSpec:
    return app.model(reference) if isinstance(reference, str) else from_dict(TransformerSpec, reference, "model")


def _cluster(app: App, reference: object) -> Cluster:
    return (
        app.cluster(reference) if isinstance(reference, str) else as_described(from_dict(Cluster, reference, "cluster"))
    )


def as_described(cluster: Cluster) -> Cluster:
    """A cluster that a caller wrote down: whatever its peaks are, nobody measured them on this machine just now."""
    return replace(cluster, accelerator=replace(cluster.accelerator, peak_is_measured=False))
