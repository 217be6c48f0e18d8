"""A plan's question as a document, and the id of its plan."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cache
from pathlib import Path

import autotuner
from autotuner.core import wire
from autotuner.core.space import SearchSpace
from autotuner.search.planning.request import PlanRequest

_DIGITS = 16

_READ_BY_PLANS = (".py", ".toml")
"""Endings of code and of the catalog."""


def read_question(document: str) -> PlanRequest:
    """The question that ``wire.dumps`` wrote."""
    request = wire.loads(PlanRequest, document)
    space = wire.from_dict(SearchSpace, wire.to_dict(request.axes))  # which knows the words of each option
    return replace(request, axes={name: getattr(space, name) for name in request.axes})


def plan_id_of(request: PlanRequest) -> str:
    """Content key of the question, the code and the catalog: what has changed since is a plan of its own."""
    return wire.content_key(read_question(wire.dumps(request)), _release())[
        :_DIGITS
    ]  # as whoever takes it over reads it


@cache
def _release() -> str:
    """Digest of the package, in 10 milliseconds: a version number stays while somebody works on the cost model."""
    digest = hashlib.sha256()
    for path in sorted(Path(autotuner.__file__).parent.rglob("*")):
        if path.suffix in _READ_BY_PLANS:
            digest.update(path.read_bytes())
    return digest.hexdigest()
