"""Examples of what the catalog holds."""

from __future__ import annotations

from api.schemas import AcceleratorDetail, AcceleratorList, ModelList, StackList, StackProfileList
from autotuner.catalog.hardware import accelerator_facts, load_accelerator, load_cluster
from autotuner.catalog.models import load_model
from autotuner.catalog.software import Compared, StackProfile, load_stack
from autotuner.core.cluster import Cluster
from autotuner.core.model import TransformerSpec


def model() -> TransformerSpec:
    """A model of the catalog."""
    return load_model("llama-3-8b")


def cluster() -> Cluster:
    """A cluster of catalog accelerators."""
    return load_cluster("h100:8")


def model_list() -> ModelList:
    """A list of models."""
    return ModelList(items=(model(),))


def accelerator_list() -> AcceleratorList:
    """A list of accelerators."""
    return AcceleratorList(items=(load_accelerator("h100-sxm"),))


def accelerator_detail() -> AcceleratorDetail:
    """An accelerator with the origin of a value."""
    facts = accelerator_facts("h100-sxm")
    name = "memory_bytes"
    return AcceleratorDetail(accelerator=load_accelerator("h100-sxm"), facts={name: facts[name]})


def stack_list() -> StackList:
    """A list of training software."""
    return StackList(items=(load_stack("torch"),))


def stack_profile_list() -> StackProfileList:
    """Training software with the runs that it was fitted to."""
    runs = Compared(stack="nemo", device="h100-sxm", model="dense models", runs=126, tables=("dgxc_benchmarking",))
    profile = StackProfile(
        name="nemo",
        framework="NVIDIA NeMo",
        versions="24.11 to 25.05",
        date="2025-05",
        left_out_error=0.05,
        compared=(runs,),
    )
    return StackProfileList(items=(profile,))
