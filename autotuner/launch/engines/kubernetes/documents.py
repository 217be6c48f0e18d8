"""Objects of Kubernetes as JSON, held to the client's own models."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from kubernetes.client import ApiClient, models
from pydantic import ValidationError

from autotuner.core.errors import InvalidInput


def checked(model: str, document: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """The document, if it is one of the client's model of that name: no unknown field at any depth, no wrong type.

    Raises:
        InvalidInput: With the path of the first field that does not fit, and the nearest that would.
    """
    try:
        value = getattr(models, model).model_validate(dict(document))
    except ValidationError as error:
        found = sorted(error.errors(), key=lambda one: one["type"] != "extra_forbidden")  # a misspelt name comes first
        raise _complaint(found[0], model, path) from error
    client: Any = ApiClient  # that part of it has no types
    return dict(client().sanitize_for_serialization(value))


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Both documents in one: objects are joined, lists follow each other, and else ``over`` is right."""
    joined = dict(base)
    for name, value in over.items():
        below = joined.get(name)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            joined[name] = merged(below, value)
        elif isinstance(below, list) and isinstance(value, list):
            joined[name] = [*below, *value]
        else:
            joined[name] = value
    return joined


def _complaint(error: Any, model: str, path: str) -> InvalidInput:
    where = [str(part) for part in error["loc"]]
    name = ".".join(filter(None, (path, *where)))
    if error["type"] != "extra_forbidden":
        return InvalidInput(name, error["input"], f"does not fit {model} of Kubernetes: {error['msg']}")
    known = _fields(model, where[:-1])
    near = get_close_matches(where[-1], known, 1)
    return InvalidInput(
        name, error["input"], f"is no field that Kubernetes knows in {model}", near[0] if near else None
    )


def _fields(model: str, where: list[str]) -> list[str]:
    """Names that an object has which lies at that path of a model."""
    cls = getattr(models, model)
    for part in where:
        if part.isdigit():
            continue
        types = {cls.attribute_map[name]: kind for name, kind in cls.openapi_types.items()}
        kind = types.get(part, "").removeprefix("List[").removesuffix("]")
        cls = getattr(models, kind, None)
        if cls is None:
            return []
    return list(cls.attribute_map.values())
