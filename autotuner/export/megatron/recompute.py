"""Activations that are computed again, or wait in the host's memory.

Names and limits: megatron-core 0.16.1, transformer/transformer_config.py, __post_init__.
"""

from __future__ import annotations

from autotuner.core.choices import Recompute
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.recompute import RecomputePolicy
from autotuner.core.stages import layers_per_stage
from autotuner.export.megatron.reading import Reading, Settings

MODULES = tuple(
    policy.value
    for policy in (
        RecomputePolicy.CORE_ATTN,
        RecomputePolicy.MOE_ACT,
        RecomputePolicy.LAYERNORM,
        RecomputePolicy.MLA_UP_PROJ,
        RecomputePolicy.MLP,
        RecomputePolicy.MOE,
        RecomputePolicy.SHARED_EXPERTS,
    )
)
"""Words of ``recompute_modules``; a stack says which of them its selective recomputation means."""

_DEFAULT_MODULES = ("core_attn",)


def write_recompute(job: Job, layout: Layout) -> Settings:
    """What is computed again, and what is offloaded."""
    written: Settings = {}
    if layout.recompute == Recompute.SELECTIVE:
        modules = tuple(policy.value for policy in job.stack.selective_recompute if policy.value in MODULES)
        written = {"recompute_granularity": "selective", "recompute_modules": modules or _DEFAULT_MODULES}
    elif layout.recompute == Recompute.FULL:
        every = layout.recompute_every
        num_layers = 1 if every == 1 else -(-max(1, layers_per_stage(layout, job.model.num_layers)) // every)
        method = "uniform" if every == 1 else "block"
        written = {"recompute_granularity": "full", "recompute_method": method, "recompute_num_layers": num_layers}
    if layout.offload_activations:
        written["cpu_offloading_num_layers"] = max(1, job.model.num_layers - 1)  # all of them is refused
    return written


def read_recompute(reading: Reading, layers_of_stage: int | None) -> dict[str, object]:
    """The same back.

    Args:
        reading: The settings.
        layers_of_stage: Layers of a stage between the ends, where the configuration tells.
    """
    found = _recomputed(reading, layers_of_stage)
    if reading.count("cpu_offloading_num_layers", 0) or reading.on("cpu_offloading"):
        found["offload_activations"] = True
        reading.changed("cpu_offloading", "a layout offloads what all layers keep")
    elif reading.on("fine_grained_activation_offloading"):
        found["offload_activations"] = True
        reading.changed("fine_grained_activation_offloading", "a layout offloads all that layers keep, no modules")
    return found


def _recomputed(reading: Reading, layers_of_stage: int | None) -> dict[str, object]:
    granularity = reading.word("recompute_granularity")
    if reading.on("recompute_activations"):
        granularity = "selective"
    elif not granularity and reading.on("checkpoint_activations"):  # before core 0.1
        granularity = "full"
    if granularity in ("", "none"):
        return {"recompute": Recompute.NONE}
    if granularity not in ("full", "selective"):
        raise InvalidInput("recompute_granularity", granularity, "must be full or selective", "full")
    if granularity == "selective":
        modules = reading.settings.words("recompute_modules") or _DEFAULT_MODULES
        if modules != _DEFAULT_MODULES:
            reading.changed("recompute_modules", f"which of {', '.join(modules)} run again is said by the stack")
        return {"recompute": Recompute.SELECTIVE}
    return {"recompute": Recompute.FULL, "recompute_every": _every(reading, layers_of_stage)}


def _every(reading: Reading, layers_of_stage: int | None) -> int:
    """One layer in so many recomputes: as many as the first ones of each stage that Megatron's block method takes."""
    num_layers = reading.count("recompute_num_layers")
    if reading.word("recompute_method", "uniform") != "block":
        if num_layers > 1:
            reading.changed(
                "recompute_num_layers", f"of {num_layers} layers that run again together each keeps its input"
            )
        return 1
    if layers_of_stage is None or num_layers >= layers_of_stage:
        if layers_of_stage is None:
            reading.changed("recompute_method", f"{num_layers} layers of a stage, whose size nothing says: told as all")
        return 1
    every = min(range(1, layers_of_stage + 1), key=lambda n: (abs(-(-layers_of_stage // n) - num_layers), n))
    told = -(-layers_of_stage // every)
    reading.changed(
        "recompute_method", f"the first {num_layers} of {layers_of_stage} layers are told as {told}, each {every}th"
    )
    return every
