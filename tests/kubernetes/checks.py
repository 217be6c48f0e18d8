"""What the API server holds objects to when they are made: here, the client's own models, and a few rules beside."""

from __future__ import annotations

from kubernetes.client import models
from pydantic import ValidationError

from tests.kubernetes.objects import Document, Refused

_MODELS = {"jobs": "V1Job", "services": "V1Service", "pods": "V1Pod"}
_MOST_OF_A_HOSTNAME = 63

_JOB_SET_SPEC = {
    *("coordinator", "failurePolicy", "managedBy", "network", "replicatedJobs", "startupPolicy", "successPolicy"),
    *("suspend", "ttlSecondsAfterFinished", "volumeClaimPolicies"),
}
_REPLICATED_JOB = {"dependsOn", "groupName", "name", "replicas", "template"}
_NETWORK = {"enableDNSHostnames", "publishNotReadyAddresses", "subdomain"}


def check(plural: str, document: Document) -> None:
    """Refuse what a strict server would.

    Raises:
        Refused: 400 for fields that are not known, 422 for values that do not fit.
    """
    if plural == "jobsets":
        _check_job_set(document)
        return
    _check_model(_MODELS[plural], document)
    if plural == "jobs":
        _check_job(document["metadata"]["name"], document["spec"])


def _check_model(model: str, document: Document) -> None:
    try:
        getattr(models, model).model_validate(document)
    except ValidationError as error:
        raise Refused(400, "BadRequest", f"strict decoding error: {error.errors()[0]}") from error


def _check_job(name: str, spec: Document) -> None:
    if spec["template"]["spec"]["restartPolicy"] != "Never":
        raise Refused(422, "Invalid", "spec.template.spec.restartPolicy: only Never goes with podFailurePolicy")
    if len(f"{name}-{spec['completions'] - 1}") > _MOST_OF_A_HOSTNAME:
        raise Refused(422, "Invalid", f"metadata.name: {name} makes hostnames longer than {_MOST_OF_A_HOSTNAME}")
    if spec.get("podReplacementPolicy") not in (None, "Failed"):
        raise Refused(422, "Invalid", "spec.podReplacementPolicy: only Failed goes with podFailurePolicy")


def _check_job_set(document: Document) -> None:
    spec = document["spec"]
    _check_known("spec", spec, _JOB_SET_SPEC)
    _check_known("spec.network", spec.get("network", {}), _NETWORK)
    for replicated in spec["replicatedJobs"]:
        _check_known("spec.replicatedJobs", replicated, _REPLICATED_JOB)
        _check_model("V1JobTemplateSpec", replicated["template"])
        name = f"{document['metadata']['name']}-{replicated['name']}-0"
        _check_job(name, replicated["template"]["spec"])


def _check_known(path: str, document: Document, known: set[str]) -> None:
    if unknown := document.keys() - known:
        raise Refused(400, "BadRequest", f'strict decoding error: unknown field "{path}.{min(unknown)}"')
