"""The built-in tables of accelerators, models and training software."""

from __future__ import annotations

from fastapi import APIRouter

from api.dependencies import Name
from api.openapi import problems
from api.schemas import AcceleratorDetail, AcceleratorList, ModelList, StackList
from autotuner.catalog.hardware import accelerator_facts, accelerators, load_accelerator
from autotuner.catalog.models import load_model, models
from autotuner.catalog.software import load_stack, stacks
from autotuner.core.documents import Document

router = APIRouter(prefix="/catalog", tags=["catalog"])


@router.get("/accelerators", responses=problems())
def list_accelerators() -> Document[AcceleratorList]:
    """List the accelerators that a cluster can be named after (`h100-sxm:64`)."""
    return AcceleratorList(items=tuple(load_accelerator(name) for name in accelerators()))


@router.get("/accelerators/{name}", responses=problems(404, 422))
def read_accelerator(name: Name) -> Document[AcceleratorDetail]:
    """Read an accelerator by name or alias, with the source and date of every value."""
    return AcceleratorDetail(accelerator=load_accelerator(name), facts=dict(accelerator_facts(name)))


@router.get("/models", responses=problems())
def list_catalog_models() -> Document[ModelList]:
    """List the built-in models."""
    return ModelList(items=tuple(load_model(name) for name in models()))


@router.get("/stacks", responses=problems())
def list_stacks() -> Document[StackList]:
    """List the training software that a layout can be predicted for (`stack` of a prediction)."""
    return StackList(items=tuple(load_stack(name) for name in stacks()))
