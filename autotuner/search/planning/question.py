"""The id of a plan."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import autotuner
from autotuner.core import codec
from autotuner.search.planning.request import PlanRequest

_DIGITS = 16

_READ_BY_PLANS = (".py", ".toml")
"""Endings of code and of the catalog."""


def plan_id_of(request: PlanRequest) -> str:
    """Content key of the question, the code and the catalog: what has changed since is a plan of its own."""
    read = codec.loads(PlanRequest, codec.dumps(request))  # as whoever computes it reads it
    return codec.content_key(read, _release())[:_DIGITS]


@cache
def _release() -> str:
    """Digest of the package, in 10 milliseconds: a version number stays while somebody works on the cost model."""
    digest = hashlib.sha256()
    for path in sorted(Path(autotuner.__file__).parent.rglob("*")):
        if path.suffix in _READ_BY_PLANS:
            digest.update(path.read_bytes())
    return digest.hexdigest()
