"""The built-in tables of accelerators, models and training software."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from api import examples
from api.dataclass_schema import schema_of
from api.dependencies import Name
from api.openapi import answers
from api.schemas import AcceleratorDetail, AcceleratorList, ModelList, StackList
from autotuner.catalog.load import (
    accelerator_facts,
    accelerators,
    load_accelerator,
    load_model,
    load_stack,
    models,
    stacks,
)
from autotuner.domain.wire import to_dict

__all__ = ["router"]

router = APIRouter(prefix="/catalog", tags=["catalog"])


@router.get("/accelerators", response_model=schema_of(AcceleratorList), responses=answers(examples.accelerator_list()))
def list_accelerators() -> Any:
    """List the accelerators that a cluster can be named after (`h100-sxm:64`)."""
    return to_dict(AcceleratorList(items=tuple(load_accelerator(name) for name in accelerators())))


@router.get(
    "/accelerators/{name}",
    response_model=schema_of(AcceleratorDetail),
    responses=answers(examples.accelerator_detail(), 404, 422),
)
def read_accelerator(name: Name) -> Any:
    """Read an accelerator by name or alias, with the source and date of every value."""
    return to_dict(AcceleratorDetail(accelerator=load_accelerator(name), facts=dict(accelerator_facts(name))))


@router.get("/models", response_model=schema_of(ModelList), responses=answers(examples.model_list()))
def list_catalog_models() -> Any:
    """List the built-in models."""
    return to_dict(ModelList(items=tuple(load_model(name) for name in models())))


@router.get("/stacks", response_model=schema_of(StackList), responses=answers(examples.stack_list()))
def list_stacks() -> Any:
    """List the training software that a layout can be predicted for (`stack` of a prediction)."""
    return to_dict(StackList(items=tuple(load_stack(name) for name in stacks())))
