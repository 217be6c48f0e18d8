"""Ids of runs in addresses; and a retune that a route changes, once it is clear that the caller may."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path

from api.dependencies import AppOf, CallerOf, Name
from autotuner.core.upkeep import Retune

CheckId = Annotated[str, Path(pattern=r"^[A-Za-z0-9-]{1,64}$", examples=["ck-7d2mxq4zab"])]
GateId = Annotated[str, Path(pattern=r"^[A-Za-z0-9-]{1,64}$", examples=["ga-4kq2mxw7ab"])]
OptimizerStudyId = Annotated[str, Path(pattern=r"^[A-Za-z0-9-]{1,64}$", examples=["os-4kq2mxw7ab"])]


def _retune(app: AppOf, name: Name, caller: CallerOf) -> Retune:
    retune = app.store.retunes.get(name)
    caller.require_own("retune", name, retune.created_by)
    return retune


OwnRetuneOf = Annotated[Retune, Depends(_retune)]
